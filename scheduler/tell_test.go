package scheduler_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// queueWatch keeps what schedulers say waits.
type queueWatch struct {
	mu     sync.Mutex
	states []*schema.PoolState
}

func (r *rig) watchQueue() *queueWatch {
	r.t.Helper()
	w := &queueWatch{}
	if _, err := r.client.SubscribePoolStates(func(s *schema.PoolState) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.states = append(w.states, s)
	}); err != nil {
		r.t.Fatal(err)
	}
	return w
}

// until waits until the newest state is as ok wants it.
func (w *queueWatch) until(t *testing.T, what string, ok func(*schema.PoolState) bool) (s *schema.PoolState) {
	t.Helper()
	eventually(t, "a state with "+what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.states); n > 0 && ok(w.states[n-1]) {
			s = w.states[n-1]
		}
		return s != nil
	})
	return s
}

func (w *queueWatch) all() []*schema.PoolState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.states)
}

func listed(s *schema.PoolState) (ids []schema.RequestID) {
	for i := range s.Waiting {
		ids = append(ids, s.Waiting[i].Request)
	}
	return ids
}

// What waits is told in the order of the queue, while nobody serves, after one has gone, and after a worker took the rest.
func TestPoolStateFollowsTheQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.watchQueue()
	s := r.schedule(config(), nil)
	in := r.ingress("i1")
	first := w.until(t, "nothing", func(s *schema.PoolState) bool { return s.WaitingRequests == 0 })
	if first.Pool != pool || first.Epoch == 0 || first.Interval <= 0 || first.RequestSeq != 0 {
		t.Errorf("%+v", first)
	}
	budgets := []time.Duration{40 * time.Second, 0, 20 * time.Second, 30 * time.Second}
	var ids []schema.RequestID
	for _, b := range budgets {
		ids = append(ids, in.submit(func(q *schema.Request) { q.Budget, q.TTFTBudget = b, b/2 }))
	}
	want := []schema.RequestID{ids[2], ids[3], ids[0], ids[1]}
	full := w.until(t, "all four", func(s *schema.PoolState) bool { return s.WaitingRequests == 4 })
	if !slices.Equal(listed(full), want) || full.RequestSeq < 4 || full.Epoch != first.Epoch {
		t.Errorf("%v at %d, want %v", listed(full), full.RequestSeq, want)
	}
	q := full.Waiting[0]
	if q.Tenant == "" || q.PromptTokens < 1 || q.PrefillTokens != q.PromptTokens || q.CapTokens < 1 || q.Budget != 20*time.Second-q.Age || q.TTFTBudget != 10*time.Second-q.Age {
		t.Errorf("%+v", q)
	}
	prompt, most := int64(0), int64(0)
	for _, q := range full.Waiting {
		prompt, most = prompt+int64(q.PromptTokens), most+int64(q.CapTokens)
	}
	if full.WaitingPromptTokens != prompt || full.WaitingCapTokens != most {
		t.Errorf("sums %d and %d, want %d and %d", full.WaitingPromptTokens, full.WaitingCapTokens, prompt, most)
	}
	in.leave(ids[3])
	w.until(t, "the others", func(s *schema.PoolState) bool {
		return slices.Equal(listed(s), []schema.RequestID{ids[2], ids[0], ids[1]})
	})
	r.worker("w1", 2, 0) // takes two and keeps them
	w.until(t, "the last", func(s *schema.PoolState) bool { return slices.Equal(listed(s), []schema.RequestID{ids[1]}) })
	if err := s.halt(t); err != nil {
		t.Error(err)
	}
	// Who takes over tells the same, and that it has read as far.
	r.schedule(config(), nil)
	again := w.until(t, "the last, by another", func(s *schema.PoolState) bool { return s.Epoch > full.Epoch && s.WaitingRequests == 1 })
	if listed(again)[0] != ids[1] || again.RequestSeq < 4 {
		t.Errorf("%+v", again)
	}
}

// Of two schedulers of a pool only the one that has it speaks.
func TestOnlyTheActiveSchedulerTells(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.watchQueue()
	old := r.schedule(config(), nil)
	before := w.until(t, "the first epoch", func(*schema.PoolState) bool { return true })
	r.schedule(config(), nil)
	if err := old.wait(t); err == nil {
		t.Error("the first scheduler was not deposed")
	}
	flush(t, old.client)
	flush(t, r.client)
	from := len(w.all())
	eventually(t, "three more states", func() bool { return len(w.all()) >= from+3 })
	for _, s := range w.all()[from:] {
		if s.Epoch <= before.Epoch {
			t.Errorf("the deposed one speaks: %+v", s)
		}
	}
}

// flush returns when what a client has sent is with the server, and what came for it has been handed over.
func flush(t *testing.T, c *streams.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}
