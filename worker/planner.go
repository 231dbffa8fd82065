package worker

import (
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
)

// newPlanner makes the planner, as batch.New does, and returns its prefix tree beside it, nil if there is none to tell of. Planner
// and tree belong to the engine loop.
func (c *Config) newPlanner(plan batch.Config) (*batch.Planner, *radix.Tree, error) {
	if c.NewPlanner != nil {
		p, err := c.NewPlanner(plan)
		return p, nil, err
	}
	if !plan.PrefixCache {
		p, err := batch.New(plan)
		return p, nil, err
	}
	pages, err := kv.NewPaged(plan.PageTokens, plan.KVPages)
	if err != nil {
		return nil, nil, err
	}
	tree, err := radix.New(plan.PageTokens)
	if err != nil {
		return nil, nil, err
	}
	p, err := batch.NewWith(plan, pages, tree)
	return p, tree, err
}
