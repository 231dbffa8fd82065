package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/scheduler"
	"github.com/cadence-slo/cadence/schema"
)

func TestEveryRequestIsServed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.schedule(config(), nil)
	in := r.ingress("i1")
	r.worker("w1", 4, 5)
	r.worker("w2", 4, 5)
	if !s.Ready() {
		t.Error("not ready")
	}
	ids := make([]schema.RequestID, 200)
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			for i := k; i < len(ids); i += 8 {
				ids[i] = in.submit(func(q *schema.Request) { q.Budget = time.Duration(i%3) * time.Second })
			}
		})
	}
	wg.Wait()
	r.allSettled(ids...)
	used := map[schema.WorkerID]int{}
	for _, id := range ids {
		e := r.end(id)
		used[e.Worker]++
		if e.Type != schema.Finished {
			t.Errorf("%s: %s %s", id, e.Type, e.Reason)
		}
		sameTokens(t, in.complete(id).tokens, spliced(5))
	}
	if len(used) != 2 {
		t.Errorf("served by %v, want both workers", used)
	}
	eventually(t, "the metrics count every request", func() bool { return s.ended(t, schema.Finished) == float64(len(ids)) })
	if err := s.halt(t); err != nil {
		t.Errorf("stopped: %v", err)
	}
	if n := s.ended(t, schema.Finished); n != 0 {
		t.Errorf("metrics are left behind after the end")
	}
	if s.Ready() {
		t.Error("ready after the end")
	}
}

// The scheduler dies in each phase of a request; the next one finds what it left, and nothing is lost or doubled.
func TestRestartInEachPhase(t *testing.T) {
	t.Parallel()
	isType := func(typ schema.Type) func([]*schema.Event) int {
		return func(es []*schema.Event) int {
			return slices.IndexFunc(es, func(e *schema.Event) bool { return e.Type == typ })
		}
	}
	for _, c := range []struct {
		name string
		cut  func([]*schema.Event) int // index of the event at which an append is cut off; -1: not this one
		keep func(at, n int) int       // how many events of that group are stored before
	}{
		{"before accepted is stored", isType(schema.Accepted), func(int, int) int { return 0 }},
		{"between accepted and dispatched", isType(schema.Dispatched), func(at, _ int) int { return at }},
		{"after dispatched is stored, unanswered", isType(schema.Dispatched), func(_, n int) int { return n }},
		{"before worker_down is stored", isType(schema.WorkerDown), func(at, _ int) int { return at }},
		{"after worker_down is stored, unanswered", isType(schema.WorkerDown), func(_, n int) int { return n }},
		{"before sealed is stored", isType(schema.Sealed), func(at, _ int) int { return at }},
		{"after sealed is stored, unanswered", isType(schema.Sealed), func(_, n int) int { return n }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			in := r.ingress("i1")
			died := make(chan struct{})
			var once sync.Once
			cfg := impatient()
			cfg.StopTimeout = time.Millisecond // it is killed
			first := r.schedule(cfg, func(s *scheduler.Scheduler) {
				s.Intercept(func(ctx context.Context, events []*schema.Event, next scheduler.Append) ([]uint64, error) {
					at := c.cut(events)
					if at < 0 {
						return next(ctx, events)
					}
					seqs, err := next(ctx, events[:c.keep(at, len(events))])
					if err != nil {
						return seqs, err
					}
					once.Do(func() { close(died) })
					<-ctx.Done() // it never hears the answer
					return nil, ctx.Err()
				})
			})
			old := r.worker("w1", 2, 0)
			id := in.submit(nil)
			if !slices.Contains([]string{"before accepted is stored", "between accepted and dispatched", "after dispatched is stored, unanswered"}, c.name) {
				in.relay(old, id, 3)
				old.kill()
			}
			waitFor(t, died)
			first.kill(t)
			r.schedule(impatient(), nil)
			if old.alive() {
				in.relay(old, id, 3)
				old.do(func() { old.finish(id) })
				sameTokens(t, in.complete(id).tokens, spliced(3))
			} else {
				r.worker("w2", 2, 6)
				sameTokens(t, in.complete(id).tokens, spliced(3, 3))
			}
			r.allSettled(id)
			if e := r.end(id); e.Type != schema.Finished {
				t.Errorf("%s %s", e.Type, e.Reason)
			}
		})
	}
}

// A worker dies in the middle of answers: another one goes on from what was relayed, and no token is lost, repeated or changed.
func TestWorkerLostInMidStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.schedule(impatient(), nil)
	in := r.ingress("i1")
	w1 := r.worker("w1", 4, 0)
	ids := []schema.RequestID{in.submit(nil), in.submit(nil), in.submit(nil)}
	for i, id := range ids {
		in.relay(w1, id, i)
	}
	w1.do(func() { w1.generate(ids[2], 1); w1.finish(ids[2]) }) // all of it gets through
	in.complete(ids[2])
	r.allSettled(ids[2])
	w1.kill()
	w2 := r.worker("w2", 4, 7)
	sameTokens(t, in.complete(ids[0]).tokens, spliced(0, 7))
	sameTokens(t, in.complete(ids[1]).tokens, spliced(1, 6))
	r.allSettled(ids...)
	for _, id := range ids[:2] {
		if e := r.end(id); e.Type != schema.Finished || e.Worker != w2.id || e.Attempt != 2 {
			t.Errorf("%s of attempt %d by %s", e.Type, e.Attempt, e.Worker)
		}
		r.seen("sealed", of(schema.Sealed, id, 1))
	}
}

// A worker freezes, is declared lost, and comes back: what it says then is not believed and does not reach a client.
func TestFrozenWorkerComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.schedule(impatient(), nil)
	in := r.ingress("i1")
	w1 := r.worker("w1", 4, 0)
	id := in.submit(nil)
	in.relay(w1, id, 2)
	w1.mute()
	w2 := r.worker("w2", 4, 0)
	w2.waitFor(id)
	w1.do(func() { w1.generate(id, 5); w1.finish(id) })
	zombie := r.seen("the zombie's event", func(e *schema.Stored) bool { return e.Type == schema.Finished && e.Worker == "w1" })
	if r.end(id).Type != "" {
		t.Error("the zombie's event settled it")
	}
	// A request that ends later shows that the scheduler has passed the zombie's event.
	other := in.submit(nil)
	w2.waitFor(other)
	w2.do(func() { w2.finish(other) })
	r.seen("a later end", func(e *schema.Stored) bool {
		return e.Seq > zombie.Seq && e.Request == other && e.Type == schema.Finished
	})
	w2.do(func() { w2.generate(id, 1); w2.finish(id) })
	sameTokens(t, in.complete(id).tokens, spliced(2, 1))
	r.allSettled(id)
}

// The worker dies after the last token was relayed and before its event was stored: the scheduler says finished, once.
func TestFinishFoundBySeal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.schedule(impatient(), nil)
	in := r.ingress("i1")
	w := r.worker("w1", 4, 0)
	id := in.submit(nil)
	in.relay(w, id, 3)
	fin := &schema.Chunk{Request: id, Attempt: 1, Index: 3, Finish: &schema.Finish{Reason: schema.FinishStop, PromptTokens: 3, OutputTokens: 3}}
	if err := w.client.PublishChunk("i1", fin); err != nil {
		t.Fatal(err)
	}
	in.complete(id)
	w.kill()
	r.allSettled(id)
	if e := r.end(id); e.Type != schema.Finished || e.Worker != "" || e.OutputTokens != 3 || e.Attempt != 1 {
		t.Errorf("%+v", e)
	}
}

func TestIngressLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := impatient()
	r.schedule(cfg, nil)
	gone, stays := r.ingress("i1"), r.ingress("i2")
	w := r.worker("w1", 1, 0)
	runs := gone.submit(nil)
	w.waitFor(runs)
	waits := gone.submit(nil)
	other := stays.submit(nil)
	gone.kill()
	r.allSettled(runs, waits)
	for id, by := range map[schema.RequestID]schema.WorkerID{runs: "w1", waits: ""} {
		if e := r.end(id); e.Type != schema.Cancelled || e.Reason != string(schema.CancelIngressLost) || e.Worker != by {
			t.Errorf("%s %s by %q, want cancelled by %q", e.Type, e.Reason, e.Worker, by)
		}
	}
	w.waitFor(other)
	w.do(func() { w.finish(other) })
	r.allSettled(other)
}

// An ingress that died while no scheduler was there is found out by the next one.
func TestIngressLostBeforeTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := impatient()
	first := r.schedule(cfg, nil)
	in := r.ingress("i1")
	w := r.worker("w1", 4, 0)
	id := in.submit(nil)
	w.waitFor(id)
	if err := first.halt(t); err != nil {
		t.Fatal(err)
	}
	in.kill()
	r.schedule(cfg, nil)
	r.allSettled(id)
	if e := r.end(id); e.Type != schema.Cancelled || e.Reason != string(schema.CancelIngressLost) {
		t.Errorf("%s %s", e.Type, e.Reason)
	}
}

// Clients leave at every moment of their requests' lives.
func TestCancelRaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.schedule(config(), nil)
	in := r.ingress("i1")
	w := r.worker("w1", 3, 0)
	var ids []schema.RequestID
	for i := range 150 {
		id := in.submit(nil)
		ids = append(ids, id)
		switch i % 5 {
		case 0: // at once: before, with or after its dispatch
			in.leave(id)
		case 1: // when it is accepted
			r.seen("accepted", of(schema.Accepted, id, 0))
			in.leave(id)
		case 2: // when it runs, or waits behind what runs
			in.leave(ids[i-1])
			in.leave(id)
		case 3: // while its worker finishes it
			w.do(func() {
				for q := range w.jobs {
					w.finish(q)
				}
			})
			in.leave(id)
		case 4: // not at all
		}
	}
	w.do(func() { // what is left runs to its end
		w.auto = 1
		for q := range w.jobs {
			w.finish(q)
		}
	})
	r.allSettled(ids...)
	if n := w.holds(); n != 0 {
		t.Errorf("the worker still holds %d requests", n)
	}
}

func TestPoisonEndsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.schedule(config(), nil)
	in := r.ingress("i1")
	w := r.worker("w1", 2, 0)
	w.do(func() { w.answer = func(*schema.Dispatch) schema.Verdict { return schema.VerdictInvalid } })
	id := in.submit(nil)
	if a := in.until("an error", id, func(a *answer) bool { return a.err != nil }); a.err.Code != schema.FailedInvalid {
		t.Errorf("the client was told %+v", a.err)
	}
	// And a body that is not a request at all.
	bad := newID(t)
	in.mu.Lock()
	in.clients[bad] = &answer{}
	in.mu.Unlock()
	body := fmt.Sprintf(`{"v":1,"request_id":%q,"ingress":"i1","tenant":"t","prompt":"!!"}`, bad)
	if _, err := in.client.PublishRequest(t.Context(), pool, bad, []byte(body)); err != nil {
		t.Fatal(err)
	}
	in.until("an error", bad, func(a *answer) bool { return a.err != nil })
	if _, err := in.client.PublishRequest(t.Context(), pool, newID(t), []byte("?")); err != nil {
		t.Fatal(err)
	}
	r.allSettled(id, bad)
	for _, id := range []schema.RequestID{id, bad} {
		if e := r.end(id); e.Type != schema.Failed || e.Reason != string(schema.FailedInvalid) {
			t.Errorf("%s %s", e.Type, e.Reason)
		}
	}
	// A restart reads all of them again and ends none of them again.
	if err := s.halt(t); err != nil {
		t.Fatal(err)
	}
	r.schedule(config(), nil)
	w.do(func() { w.answer = nil; w.auto = 1 })
	r.allSettled(in.submit(nil))
	letters := r.deadLetters()
	if len(letters) != 3 {
		t.Errorf("%d dead letters, want 3", len(letters))
	}
}

// The server restarts under load: everybody reconnects, nobody is declared lost for it, and nothing is lost.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.schedule(config(), nil)
	in := r.ingress("i1")
	w := r.worker("w1", 4, 0)
	var ids []schema.RequestID
	for range 20 {
		ids = append(ids, in.submit(nil))
	}
	w.waitFor(ids[0])
	r.server.Restart(t)
	for range 20 {
		ids = append(ids, in.submit(nil))
	}
	for _, id := range ids {
		w.waitFor(id)
		w.do(func() { w.generate(id, 2); w.finish(id) })
	}
	r.allSettled(ids...)
	for _, id := range ids {
		if e := r.end(id); e.Type != schema.Finished || e.Attempt != 1 {
			t.Errorf("%s of attempt %d (%s)", e.Type, e.Attempt, e.Reason)
		}
	}
	if !s.Ready() {
		t.Error("not ready after the restart")
	}
}

func TestDeposedStops(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.schedule(config(), nil)
	in := r.ingress("i1")
	w := r.worker("w1", 4, 0)
	id := in.submit(nil)
	w.waitFor(id)
	r.schedule(config(), nil)
	if err := old.wait(t); !errors.Is(err, scheduler.ErrDeposed) {
		t.Errorf("the old scheduler: %v, want ErrDeposed", err)
	}
	next := in.submit(nil)
	w.waitFor(next)
	w.do(func() { w.finish(id); w.finish(next) })
	r.allSettled(id, next)
	if w.took != 2 {
		t.Errorf("the worker took %d attempts, want 2", w.took)
	}
}

func TestBadConfig(t *testing.T) {
	for key, change := range map[string]func(*scheduler.Config){
		"pool":             func(c *scheduler.Config) { c.Pool = "a b" },
		"dispatch_timeout": func(c *scheduler.Config) { c.DispatchTimeout = 0 },
		"seal_timeout":     func(c *scheduler.Config) { c.SealTimeout = 0 },
		"stop_timeout":     func(c *scheduler.Config) { c.StopTimeout = -1 },
		"max_attempts":     func(c *scheduler.Config) { c.MaxAttempts = 0 },
	} {
		cfg := scheduler.DefaultConfig()
		change(&cfg)
		if err := cfg.Validate(); !errors.Is(err, scheduler.ErrConfig) || !containsKey(err, key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
