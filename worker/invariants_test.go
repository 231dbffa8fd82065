package worker_test

import (
	"errors"
	"testing"

	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/mock"
	"github.com/cadence-slo/cadence/worker/radix"
)

// crooked says that its books are wrong once so many pages are in use, and works as before.
type crooked struct {
	kv.Allocator
	pages int
}

func (c *crooked) Check() error {
	if c.Stats().Used >= c.pages {
		return kv.ErrInvariant
	}
	return c.Allocator.Check()
}

// A worker that checks its planner stops when the books are wrong, though every answer so far was right.
func TestBrokenBooksStopTheWorker(t *testing.T) {
	r := start(t, func(c *worker.Config, _ *mock.Config) {
		c.CheckInvariants = true
		c.NewPlanner = func(cfg batch.Config) (*batch.Planner, error) {
			pages, err := kv.NewPaged(cfg.PageTokens, cfg.KVPages)
			if err != nil {
				return nil, err
			}
			cache, err := radix.New(cfg.PageTokens)
			if err != nil {
				return nil, err
			}
			return batch.NewWith(cfg, &crooked{pages, 8}, cache)
		}
	})
	short := newRequest(t, make([]int32, 20), 4)
	r.accept(short, 1)
	r.answer(short.ID, 1, 0)
	r.accept(newRequest(t, make([]int32, 200), 4), 1)
	if err := r.ended(); !errors.Is(err, worker.ErrBackend) || !errors.Is(err, kv.ErrInvariant) {
		t.Fatalf("the worker ended with %v", err)
	}
}
