package streams_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/nats-io/nats.go/jetstream"
)

// reshape changes the configuration of EVENTS.
func reshape(t *testing.T, c *streams.Client, change func(*jetstream.StreamConfig)) {
	t.Helper()
	s, err := c.JetStream().Stream(t.Context(), streams.Events)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	change(&cfg)
	if _, err := c.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// No event is lost because the store is full: the writer goes on when there is room.
func TestWriterWaitsWhileTheStoreIsFull(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	reshape(t, c, func(s *jetstream.StreamConfig) { s.Discard, s.MaxBytes = jetstream.DiscardNew, 1 })
	if _, err := c.PublishEvent(t.Context(), accepted(id(t), 99)); !errors.Is(err, streams.ErrFull) {
		t.Fatalf("%v, want ErrFull", err)
	}
	w := c.NewEventWriter(t.Context(), 10, func(id string, err error) { t.Errorf("%s given up: %v", id, err) })
	got := make(chan uint64, 10)
	tail, _, err := c.TailEvents(t.Context(), 0, nil, func(e *schema.Stored, _ uint64) { got <- e.RequestSeq }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Stop()
	for n := range uint64(3) {
		if err := w.Emit(accepted(id(t), n+1)); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Close(short); !errors.Is(err, streams.ErrUnavailable) || w.Pending() != 3 {
		t.Fatalf("closed with %d pending: %v", w.Pending(), err)
	}
	reshape(t, c, func(s *jetstream.StreamConfig) { s.MaxBytes = -1 })
	for n := range uint64(3) {
		if seq := streamstest.Receive(t, got); seq != n+1 {
			t.Fatalf("event %d is %d", n+1, seq)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Whoever waits for room does not wait for a writer that has stopped.
func TestEmitEndsWithTheWriter(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	reshape(t, c, func(s *jetstream.StreamConfig) { s.Discard, s.MaxBytes = jetstream.DiscardNew, 1 })
	ctx, stop := context.WithCancel(t.Context())
	w := c.NewEventWriter(ctx, 1, nil)
	done := make(chan error, 1)
	go func() {
		for {
			if err := w.Emit(accepted(id(t), 1)); err != nil {
				done <- err
				return
			}
		}
	}()
	stop()
	if err := streamstest.Receive(t, done); !errors.Is(err, streams.ErrUnavailable) {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
}
