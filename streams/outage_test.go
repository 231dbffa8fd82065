package streams_test

import (
	"context"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/nats-io/nats.go/jetstream"
)

// Events were stored, nobody was told, and when the connection comes back the server has forgotten their ids.
func TestLongOutageStoresNothingTwice(t *testing.T) {
	s := streamstest.Start(t)
	c := s.Client(t)
	reshape(t, c, func(s *jetstream.StreamConfig) { s.Duplicates = 100 * time.Millisecond })
	p := streamstest.NewProxy(t, s)
	cfg := streams.DefaultConfig()
	cfg.Timeout = 200 * time.Millisecond
	direct := s.URL
	s.URL = p.URL()
	far := streams.WithMemory(s.ClientWith(t, cfg), 50*time.Millisecond)
	s.URL = direct

	seen := make(chan *schema.Stored, 100)
	tail, _, err := c.TailEvents(t.Context(), 0, []schema.Type{schema.Accepted}, func(e *schema.Stored, _ uint64) { seen <- e }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Stop()
	emitted := 0
	event := func() *schema.Event {
		emitted++
		return accepted(id(t), uint64(emitted))
	}
	w := far.NewEventWriter(t.Context(), 100, nil)
	if err := w.Emit(event()); err != nil {
		t.Fatal(err)
	}
	streamstest.Receive(t, seen)
	a, err := far.ClaimPool(t.Context(), "p", "s", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p.LoseAnswers.Store(true)
	for range 3 {
		if err := w.Emit(event()); err != nil {
			t.Fatal(err)
		}
	}
	group := []*schema.Event{event(), event()}
	appended := make(chan error, 1)
	var seqs []uint64
	go func() {
		var err error
		seqs, err = a.Append(t.Context(), group)
		appended <- err
	}()
	stored := map[uint64]uint64{}
	for range 5 {
		e := streamstest.Receive(t, seen)
		stored[e.RequestSeq] = e.Seq
	}
	// The server has forgotten them once it has forgotten what was stored after them.
	probe := &schema.Event{Type: schema.Cancelled, Time: 1, Source: "test", Request: id(t), Reason: string(schema.CancelOperator)}
	first, err := c.PublishEvent(t.Context(), probe)
	if err != nil {
		t.Fatal(err)
	}
	for again := first; again == first; {
		if again, err = c.PublishEvent(t.Context(), probe); err != nil {
			t.Fatal(err)
		}
	}
	p.LoseAnswers.Store(false)
	p.Cut()
	if err := streamstest.Receive(t, appended); err != nil {
		t.Fatal(err)
	}
	for i, e := range group {
		if seqs[i] != stored[e.RequestSeq] {
			t.Errorf("event %d is said to lie at %d, lies at %d", e.RequestSeq, seqs[i], stored[e.RequestSeq])
		}
	}
	last := event()
	if err := w.Emit(last); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if e := streamstest.Receive(t, seen); e.RequestSeq != last.RequestSeq {
		t.Errorf("event %d was stored twice", e.RequestSeq)
	}
}
