// Package simtest shows tests the simulated engines as the predictor sees them; not for other code.
package simtest

import (
	"slices"

	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/batch"
)

// See makes e the worker's engine at an arrival, believed to be as fast as p, in a pipeline with the latencies l. Its sequences are
// for the caller to add: e.Running and e.Waiting are empty, their memory is kept, and the worker's requests, which it returns, are in the
// order of their arrival. The view is the simulator's, and valid until the caller's Admit returns.
func See(e *predictor.Engine, a *sim.Arrival, worker int, p *profile.Profile, plan batch.Config, l *sim.Latency) []sim.Running {
	w := &a.Pool.Workers[worker]
	*e = predictor.Engine{Profile: p, Plan: plan, Running: e.Running[:0], Waiting: e.Waiting[:0], FreePages: w.Usage.FreePages,
		Delay:  l.Request + l.Append + l.Dispatch + l.Token,
		Enter:  l.Request + l.Append + l.Dispatch,
		Refill: l.Token + l.Append + l.Dispatch}
	if !w.Idle {
		e.StepLeft = max(1, w.StepSince+w.Step-a.Now)
	}
	slices.SortFunc(w.Requests, func(x, y sim.Running) int { return x.Index - y.Index })
	return w.Requests
}
