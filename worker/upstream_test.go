package worker_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
)

// elsewhere is the mock as if its engine were another process: it can be lost, ends answers itself, and counts.
type elsewhere struct {
	*mock.Backend
	lost   atomic.Pointer[error]
	endsAt int // 0: never
	rows   int
	usage  worker.Usage
	lies   atomic.Int32 // ends with impossible counts
}

func (e *elsewhere) Healthy() error {
	if err := e.lost.Load(); err != nil {
		return *err
	}
	return nil
}

func (e *elsewhere) Step(b *batch.Batch, rows []batch.Row) error {
	if err := e.Backend.Step(b, rows); err != nil {
		return err
	}
	for i := range b.Entries {
		if b.Entries[i].Sample {
			if e.rows++; e.rows == e.endsAt {
				rows[i].Token, rows[i].Stop = mock.TurnEnd, true
			}
		}
	}
	return nil
}

func (e *elsewhere) Usage(batch.SeqID) (worker.Usage, bool) {
	if e.lies.Add(-1) >= 0 {
		return worker.Usage{PromptTokens: -3, OutputTokens: -5, Finish: schema.FinishStop}, true
	}
	return e.usage, e.usage.Finish != ""
}

func (r *rig) runElsewhere(e *elsewhere, m *mock.Config) {
	r.t.Helper()
	r.wrap = func(b *mock.Backend) worker.Backend { e.Backend = b; return e }
	r.run(func(c *worker.Config, to *mock.Config) {
		if m != nil {
			to.FailStep = m.FailStep
		}
	})
}

// An engine that is gone ends the worker's life at once, said in the log so that its requests go on elsewhere; nothing
// more is heard of them here, and there is a new life when the engine is back.
func TestLostEngineEndsTheLife(t *testing.T) {
	r := newRig(t)
	g := newGate()
	defer g.release()
	e := &elsewhere{}
	r.runElsewhere(e, &mock.Config{FailStep: func(*batch.Batch) error { g.pass(); return nil }})
	old := r.w.ID()
	req := newRequest(t, []int32{1, 2, 3}, 50)
	r.accept(req, 1)
	<-g.at
	gone := errors.New("the upstream is gone")
	e.lost.Store(&gone)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.w.Ready() { // until the next heartbeat
		<-tick.C
	}
	g.release()
	r.wait("worker_down", func() bool { return r.count(schema.WorkerDown) > 0 })
	r.mu.Lock()
	for i := range r.events {
		if x := &r.events[i]; x.Type == schema.WorkerDown && (x.Worker != old || x.Reason != string(schema.DownLost)) {
			t.Errorf("%+v", x)
		}
		if x := &r.events[i]; x.Request == req.ID && x.Type.Terminal() {
			t.Errorf("%s of a request that is to go on elsewhere", x.Type)
		}
	}
	r.mu.Unlock()
	e.lost.Store(nil)
	r.wait("another life", func() bool { return r.w.Ready() && r.count(schema.WorkerUp) == 2 })
	if r.w.ID() == old {
		t.Error("the old id again")
	}
	again := newRequest(t, []int32{1, 2, 3}, 5)
	again.IgnoreEOS = true
	r.accept(again, 1)
	r.answer(again.ID, 1, 0).check(t, say(again, 1, 5), textOf(t, say(again, 1, 5)...), schema.FinishLength)
}

// An end that the engine tells is one even if the request ignores ends, and its counts and its reason are those that
// count; an end that a stop string made is counted here.
func TestEngineEndsAndCounts(t *testing.T) {
	for _, c := range []struct {
		name   string
		endsAt int
		max    int32
		stop   bool
		want   schema.Finish
	}{
		{"told", 4, 10, false, schema.Finish{Reason: schema.FinishLength, PromptTokens: 30, CachedTokens: 20, OutputTokens: 41}},
		{"at the cap", 0, 3, false, schema.Finish{Reason: schema.FinishLength, PromptTokens: 30, CachedTokens: 20, OutputTokens: 41}},
		{"stop string", 0, 10, true, schema.Finish{Reason: schema.FinishStop, PromptTokens: 3, OutputTokens: 3}},
		{"stop string at the cap", 0, 2, true, schema.Finish{Reason: schema.FinishStop, PromptTokens: 3, OutputTokens: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			e := &elsewhere{endsAt: c.endsAt, usage: worker.Usage{PromptTokens: 30, CachedTokens: 20, OutputTokens: 40, Finish: schema.FinishLength}}
			r.runElsewhere(e, nil)
			req := newRequest(t, []int32{1, 2, 3}, c.max+1)
			req.IgnoreEOS = true
			resume := []int32{65}
			if c.stop {
				ids := say(req, 2, 2, resume...)
				req.Stop = []string{textOf(t, ids[1])}
			}
			r.accept(req, 2, resume...)
			a := r.answer(req.ID, 2, 1)
			if a.finish == nil || *a.finish != c.want {
				t.Fatalf("%+v, want %+v", a.finish, c.want)
			}
			events := r.settled(req.ID, 2)
			if last := events[len(events)-1]; last.OutputTokens != c.want.OutputTokens || last.Reason != string(c.want.Reason) {
				t.Errorf("%+v", last)
			}
		})
	}
}

// Counts that cannot be true end the request, for its client and in the log, and the worker goes on.
func TestImpossibleCountsFailTheRequest(t *testing.T) {
	r := newRig(t)
	e := &elsewhere{endsAt: 4}
	e.lies.Store(1)
	r.runElsewhere(e, nil)
	req := newRequest(t, []int32{1, 2, 3}, 10)
	req.IgnoreEOS = true
	r.accept(req, 1)
	if a := r.answer(req.ID, 1, 0); a.finish != nil || a.fault == nil || a.fault.Code != schema.FailedEngine {
		t.Errorf("finish %+v, fault %+v", a.finish, a.fault)
	}
	events := r.settled(req.ID, 1)
	if last := events[len(events)-1]; last.Type != schema.Failed || last.Reason != string(schema.FailedEngine) {
		t.Errorf("%+v", last)
	}
	again := newRequest(t, []int32{1, 2, 3}, 5)
	again.IgnoreEOS = true
	r.accept(again, 1)
	r.answer(again.ID, 1, 0).check(t, say(again, 1, 5), textOf(t, say(again, 1, 5)...), schema.FinishLength)
}
