package scheduler

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/scheduler/lease"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/prometheus/client_golang/prometheus"
)

// A fold forgets by id what ended long ago; what it read of REQUESTS it knows by place, so that a quiet pool's last
// requests, read again, do not run again. Here the core remembers nothing.
func TestNothingIsTakenTwiceByPlace(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	cfg := DefaultConfig()
	s, err := New(cfg, c, lease.Sole{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const done, bad, other, fresh = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002", "00000000-0000-7000-8000-000000000003", "00000000-0000-7000-8000-000000000004"
	for _, e := range []schema.Event{
		{Type: schema.Accepted, Request: done, Pool: cfg.Pool, Tenant: "t", Ingress: "i1", RequestSeq: 5},
		{Type: schema.Finished, Request: done, Pool: cfg.Pool, Attempt: 1, Worker: "w1", Reason: "stop"},
		{Type: schema.Failed, Request: bad, Pool: cfg.Pool, Reason: "invalid", RequestSeq: 6},
		{Type: schema.Accepted, Request: other, Pool: "other", Tenant: "t", Ingress: "i1", RequestSeq: 7},
	} {
		e.Time, e.Source = 1, "s"
		if _, err := c.PublishEvent(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	claim, err := c.ClaimPool(t.Context(), cfg.Pool, "s", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Scheduler: s}
	if _, err := s.fold(t.Context(), claim.Epoch(), &r.taken); err != nil {
		t.Fatal(err)
	}
	if r.core, err = core.New(s.cfg.core()); err != nil {
		t.Fatal(err)
	}
	r.work, r.endWork = context.WithCancel(t.Context())
	defer r.endWork()
	for _, m := range []struct {
		id   schema.RequestID
		seq  uint64
		live int
	}{{done, 5, 0}, {bad, 6, 0}, {other, 7, 1}, {fresh, 5, 2}} { // the last one: REQUESTS was recreated
		a := &arrival{request: core.Request{ID: m.id, Seq: m.seq}, taken: r.taken.has(m.seq, m.id)}
		r.enqueue(a)
		if live := r.core.Stats(0).Live; live != m.live || r.read != m.seq {
			t.Errorf("%s at %d: %d in hand, want %d; read up to %d", m.id, m.seq, live, m.live, r.read)
		}
	}
}
