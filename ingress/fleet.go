package ingress

import (
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// A worker counts as gone when it was silent for missed heartbeat intervals, and for minSilence: a busy machine delays
// heartbeats, and refusing everyone for it would be worse than to queue a few requests for a worker that is gone.
const (
	missed     = 3
	minSilence = time.Second
)

// fleet is who serves which model now, as the workers' heartbeats tell it.
type fleet struct {
	mu      sync.RWMutex
	workers map[schema.WorkerID]worker
}

type worker struct {
	pool, model string
	context     int32
	draining    bool
	until       time.Time // gone from then on
}

func newFleet() *fleet { return &fleet{workers: map[schema.WorkerID]worker{}} }

// heard notes a heartbeat.
func (f *fleet) heard(s *schema.WorkerState, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, w := range f.workers {
		if now.After(w.until) {
			delete(f.workers, id)
		}
	}
	f.workers[s.Worker] = worker{pool: s.Pool, model: s.Model, context: s.ContextTokens, draining: s.Draining, until: now.Add(max(missed*s.Interval, minSilence))}
}

// serving returns the pool that serves a model now, the smallest context of its workers (0: they do not say), and
// whether there is any. Of several pools it is the one first by name.
func (f *fleet) serving(model string, now time.Time) (pool string, context int32, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, w := range f.workers {
		if w.model != model || w.draining || now.After(w.until) || (ok && w.pool > pool) {
			continue
		}
		if !ok || w.pool < pool {
			pool, context, ok = w.pool, w.context, true
		} else if w.context > 0 && (context == 0 || w.context < context) {
			context = w.context
		}
	}
	return pool, context, ok
}
