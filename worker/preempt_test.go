package worker_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
)

// crowded is a worker that promises three times the pages that it has: 24 for eight requests, in chunks that leave ends of every
// length.
func crowded(c *worker.Config, m *mock.Config) {
	c.KVOvercommit, c.ChunkTokens = 3, 5
	m.KVCells, m.ContextTokens, m.BatchTokens = 24*16, 24*16, 64
}

// preempted counts an attempt's preemptions, and checks the events of one that has ended as it should.
func preempted(t *testing.T, events []schema.Event, req *schema.Request, resumed int) (n int) {
	t.Helper()
	var seen []schema.Type
	made := int32(resumed)
	for i := range events {
		e := &events[i]
		if err := e.Validate(); err != nil {
			t.Error(err)
		}
		if e.OutputTokens < made || e.OutputTokens > req.MaxTokens {
			t.Errorf("%s: %s tells of %d tokens after %d", req.ID, e.Type, e.OutputTokens, made)
		}
		if made = e.OutputTokens; e.Type == schema.Preempted {
			n++
			continue
		}
		seen = append(seen, e.Type)
		if e.CachedTokens < 0 || int(e.CachedTokens) >= len(req.Prompt)+resumed {
			t.Errorf("%s: %s tells of %d cached tokens of %d", req.ID, e.Type, e.CachedTokens, len(req.Prompt))
		}
	}
	if want := []schema.Type{schema.PrefillStarted, schema.FirstToken, schema.Finished}; !slices.Equal(seen, want) {
		t.Errorf("%s: events %v beside %d preemptions", req.ID, seen, n)
		return n
	}
	if first, last := events[slices.IndexFunc(events, func(e schema.Event) bool { return e.Type == schema.FirstToken })], events[len(events)-1]; last.QueueTime != first.QueueTime ||
		last.PrefillTime != first.PrefillTime || last.QueueTime <= 0 || last.PrefillTime <= 0 || last.OutputTokens != req.MaxTokens {
		t.Errorf("%s: %+v after %+v", req.ID, last, first)
	}
	return n
}

// Whoever is preempted says what it would have said, in one piece, and its events tell of one request.
func TestPreemptedRequestsGoOn(t *testing.T) {
	r := start(t, crowded)
	rng := rand.New(rand.NewPCG(8, 9))
	heads := [][]int32{make([]int32, 48), make([]int32, 33)}
	for _, h := range heads {
		for i := range h {
			h[i] = rng.Int32N(256)
		}
	}
	var waiting []*schema.Request
	for i := range 64 {
		prompt := slices.Clone(heads[i%2][:rng.IntN(len(heads[i%2]))])
		for range 1 + rng.IntN(30) {
			prompt = append(prompt, rng.Int32N(256))
		}
		req := newRequest(t, prompt, 40+rng.Int32N(100))
		req.Sampling.Seed, req.IgnoreEOS = rng.Uint64(), true
		if i%4 == 0 {
			req.Class = schema.Guaranteed
		}
		waiting = append(waiting, req)
	}
	all := slices.Clone(waiting)
	for ended := 0; len(waiting) > 0; {
		var items []schema.DispatchItem
		for _, req := range waiting[:min(8, len(waiting))] {
			items = append(items, item(t, req, 1))
		}
		full := waiting[:0]
		for i, v := range r.dispatch(1, items...) {
			if v == schema.VerdictFull {
				full = append(full, waiting[i])
			} else if v != schema.VerdictAccepted {
				t.Fatal(v)
			}
		}
		none := len(full) == len(items)
		waiting = append(full, waiting[len(items):]...)
		if none {
			r.wait("room", func() bool { return r.count(schema.Finished) > ended })
			r.note(func() { ended = r.count(schema.Finished) })
		}
	}
	n, cached := 0, false
	for _, req := range all {
		a := r.answer(req.ID, 1, 0)
		want := say(req, 1, int(req.MaxTokens))
		a.check(t, want, textOf(t, want...), schema.FinishLength)
		if int(a.finish.PromptTokens) != len(req.Prompt) || a.finish.OutputTokens != req.MaxTokens || a.finish.CachedTokens < 0 || int(a.finish.CachedTokens) >= len(req.Prompt) {
			t.Errorf("%+v for %d and %d tokens", a.finish, len(req.Prompt), req.MaxTokens)
		}
		cached = cached || a.finish.CachedTokens > 0
		events := r.settled(req.ID, 1)
		n += preempted(t, events, req, 0)
		if last := events[len(events)-1]; last.CachedTokens != a.finish.CachedTokens {
			t.Errorf("%d cached tokens for the client, %d in the log", a.finish.CachedTokens, last.CachedTokens)
		}
	}
	t.Logf("%d preemptions of %d requests", n, len(all))
	if n < 16 || !cached {
		t.Errorf("%d preemptions, cached tokens: %t: not the test that it should be", n, cached)
	}
	r.idle()
	if m := r.metrics(); int(m["cadence_worker_preemptions_total"]) != n || m["cadence_worker_preempted_tokens_total"] == 0 {
		t.Errorf("%v preemptions of %v tokens counted, %d in the log", m["cadence_worker_preemptions_total"], m["cadence_worker_preempted_tokens_total"], n)
	}
}

// A request that waits for its place again can be cancelled, and a newer attempt can take over from it.
func TestPreemptedRequestsEndWhileTheyWait(t *testing.T) {
	for _, end := range []string{"cancel", "replace"} {
		t.Run(end, func(t *testing.T) {
			g := newGate()
			defer g.release()
			var lost batch.ID // who was preempted first
			armed := true     // until then
			r := newRig(t)
			var planner *batch.Planner
			r.run(crowded, func(c *worker.Config, m *mock.Config) {
				c.PrefixCache = false
				m.StepBase = time.Millisecond // what is sent at the gate arrives long before the end
				c.NewPlanner = func(cfg batch.Config) (p *batch.Planner, err error) {
					planner, err = batch.New(cfg)
					return planner, err
				}
				m.FailStep = func(b *batch.Batch) error {
					if armed && len(b.Preempted) > 0 {
						armed, lost = false, b.Preempted[0].ID
						g.pass()
					}
					return nil
				}
			})
			var reqs []*schema.Request
			var items []schema.DispatchItem
			for i := range 8 {
				req := newRequest(t, []int32{int32(i), 2, 3}, 120)
				req.IgnoreEOS = true
				reqs, items = append(reqs, req), append(items, item(t, req, 1))
			}
			for i, v := range r.dispatch(1, items...) {
				if v != schema.VerdictAccepted {
					t.Fatalf("item %d: %s", i, v)
				}
			}
			<-g.at
			// The engine is in a step without it. Items were numbered from 1 in their order.
			victim := reqs[lost-1]
			made := 0
			switch end {
			case "cancel":
				if err := r.client.PublishCancel(&schema.Cancel{Request: victim.ID, Reason: schema.CancelDisconnect}); err != nil {
					t.Fatal(err)
				}
				r.flush()
			case "replace":
				made = 7
				r.accept(victim, 2, say(victim, 1, made)...)
			}
			g.release()
			n := 0
			for _, req := range reqs {
				if req == victim {
					continue
				}
				want := say(req, 1, 120)
				r.answer(req.ID, 1, 0).check(t, want, textOf(t, want...), schema.FinishLength)
				n += preempted(t, r.settled(req.ID, 1), req, 0)
			}
			if end == "cancel" {
				a := r.answer(victim.ID, 1, 0)
				if a.fault == nil || a.fault.Code != schema.FailedCancelled || len(a.ids) == 0 || !slices.Equal(a.ids, say(victim, 1, len(a.ids))) {
					t.Errorf("ended with %+v, %+v after %d tokens", a.finish, a.fault, len(a.ids))
				}
				events := r.settled(victim.ID, 1)
				for i := range events {
					if err := events[i].Validate(); err != nil {
						t.Error(err)
					}
				}
				if got := types(events); !slices.Equal(got, []schema.Type{schema.PrefillStarted, schema.FirstToken, schema.Preempted, schema.Cancelled}) || int(events[3].OutputTokens) != len(a.ids) {
					t.Errorf("events %v after %d tokens", got, len(a.ids))
				}
			} else {
				want := say(victim, 2, 120-made, say(victim, 1, made)...)
				r.answer(victim.ID, 2, made).check(t, want, textOf(t, want...), schema.FinishLength)
				preempted(t, r.settled(victim.ID, 2), victim, made)
				for _, e := range r.of(victim.ID, 1) {
					if e.Type.Terminal() {
						t.Errorf("the replaced attempt said %s", e.Type)
					}
				}
			}
			r.idle()
		})
	}
}
