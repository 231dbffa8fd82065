package control

import (
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
)

// held is what is known of a request that was admitted and has not ended.
type held struct {
	ingress  int
	promised bool
	cached   int32 // of its prompt, by the ingress's estimate at its arrival
	limit    int32 // tokens that it may generate
	slo      record.SLO
}

// classes is how many kinds of answers have a distribution of lengths of their own; further ones share.
const classes = 256

// lately is the time over which the rate of answers is taken.
const lately = 10 * time.Second

// sees reports whether an ingress has heard of a request that arrived so long ago. Of one that nobody decided on all have.
func (c *Control) sees(ingress, index int, age, old time.Duration) bool {
	h, ok := c.held[index]
	return !ok || h.ingress == ingress || age >= old
}

// look leaves in the view what the ingress sees of it. The view is the simulator's, which makes it anew for each arrival.
func (c *Control) look(a *sim.Arrival, ingress int) {
	if c.o.ingresses() == 1 {
		return
	}
	v := &a.Pool
	v.Queue = slices.DeleteFunc(v.Queue, func(q sim.Waiting) bool {
		hidden := !c.sees(ingress, q.Index, a.Now-q.Arrived, c.o.PoolAge)
		if hidden {
			v.Waiting--
			v.WaitingPromptTokens -= q.PromptTokens
			v.WaitingCapTokens -= q.CapTokens
		}
		return hidden
	})
	for i := range v.Workers {
		w := &v.Workers[i]
		w.Requests = slices.DeleteFunc(w.Requests, func(r sim.Running) bool { return !c.sees(ingress, r.Index, a.Now-r.Arrived, c.o.EngineAge) })
	}
}

// place returns the worker with the fewest requests.
func place(a *sim.Arrival) int {
	best := 0
	for i := range a.Pool.Workers {
		if len(a.Pool.Workers[i].Requests) < len(a.Pool.Workers[best].Requests) {
			best = i
		}
	}
	return best
}

// sequence is a request for the predictor; of one that an ingress admitted, it is as that knows it.
func (c *Control) sequence(d *desk, index int, class, kind string, prompt, most int, age time.Duration) predictor.Sequence {
	slo := record.Objective(c.slos(), class)
	h := c.held[index]
	s := predictor.Sequence{PromptTokens: int32(prompt), PrefillTokens: int32(prompt), CapTokens: int32(most), Lengths: d.classes.Of(class, kind, int32(most)),
		Age: age, E2E: slo.E2E, TTFT: slo.TTFT, Guaranteed: h.promised}
	if h.ingress == d.number { // others do not tell what they expect in the cache
		s.PrefillTokens -= h.cached
	}
	return s
}

// see makes the engine of what the simulator shows of a worker, with its share of the queue.
func (c *Control) see(a *sim.Arrival, d *desk, best int) {
	w := &a.Pool.Workers[best]
	l := &c.cfg.Latency
	e := &c.engine
	*e = predictor.Engine{Profile: c.profile, Plan: c.cfg.Batch, Slow: w.Slow, Running: e.Running[:0], Waiting: e.Waiting[:0],
		FreePages: w.Usage.FreePages, StepLeft: w.StepLeft,
		Delay:  l.Request + l.Append + l.Dispatch + l.Token,
		Enter:  l.Request + l.Append + l.Dispatch,
		Refill: l.Token + l.Append + l.Dispatch}
	if c.o.Slow != nil {
		e.Slow = c.o.Slow(a.Now)
	}
	slices.SortFunc(w.Requests, func(x, y sim.Running) int { return x.Index - y.Index })
	for i := range w.Requests {
		r := &w.Requests[i]
		s := c.sequence(d, r.Index, r.Class, r.Kind, r.PromptTokens, r.CapTokens, a.Now-r.Arrived)
		if r.OutputTokens > 0 || r.PrefillTokens < r.PromptTokens { // otherwise nothing was looked up in the cache yet
			s.PrefillTokens, s.OutputTokens = int32(r.PrefillTokens), int32(r.OutputTokens)
		}
		e.Running = append(e.Running, s)
	}
	for i := best; i < len(a.Pool.Queue); i += len(a.Pool.Workers) {
		q := &a.Pool.Queue[i]
		e.Waiting = append(e.Waiting, c.sequence(d, q.Index, q.Class, q.Kind, q.PromptTokens, q.CapTokens, a.Now-q.Arrived))
	}
}

// load counts the pool.
func (c *Control) load(a *sim.Arrival) admission.Load {
	l := admission.Load{Workers: len(a.Pool.Workers), Ingresses: c.o.ingresses(), Waiting: a.Pool.Waiting,
		Tokens: int64(a.Pool.WaitingPromptTokens) + int64(a.Pool.WaitingCapTokens)}
	for i := range a.Pool.Workers {
		for _, r := range a.Pool.Workers[i].Requests {
			l.Tokens += int64(r.PrefillTokens) + int64(max(0, r.CapTokens-r.OutputTokens))
		}
	}
	for len(c.ended) > 0 && c.ended[0] < a.Now-lately {
		c.ended = c.ended[1:]
	}
	if n := len(c.ended); n > 0 {
		l.Wait = time.Duration(l.Waiting) * min(lately, a.Now) / time.Duration(n)
	}
	return l
}

func (c *Control) slos() map[string]record.SLO {
	if c.cfg.SLOs != nil {
		return c.cfg.SLOs
	}
	return c.cfg.Source.SLOs()
}
