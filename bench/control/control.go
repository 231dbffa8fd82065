package control

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

// Options choose a controller.
type Options struct {
	Arm   string  // one of Arms
	Level float64 // of bounds; 0: 0.8, which the gate is best at
	// Constant is the arm's own; 0: its usual one. Of queue-wait the limit in seconds; of queue-depth how many may wait for each
	// worker; of in-flight how many may be held for each worker; of shed and marginal the part of the engines' time that is given
	// away; of constant-quantile and throughput the level that they are fitted at; of frozen-bound the hysteresis; of online-bound
	// what the bound is multiplied with; none has none.
	Constant float64
	// Seen is what constant-quantile, throughput and frozen-bound are fitted to.
	Seen    *Seen
	Profile *profile.Profile // that the controller believes of the engines; they may have another
	Seed    uint64
}

func (o *Options) level() float64 { return cmp.Or(o.Level, 0.8) }

// control is a controller in the simulator. It has the simulator's owner.
type control struct {
	cfg        *sim.Config
	profile    *profile.Profile
	controller *admission.Controller
	blind      admission.Arm // in its place, if the load is all that it looks at
	rng        *rand.Rand
	seen       *Seen // nil: nothing is collected
	engine     predictor.Engine
	classes    map[[2]string]int32 // by class and kind
	promised   map[int]bool        // guaranteed ones, by index
	ended      []time.Duration
	err        error
}

// classes is how many kinds of answers have a distribution of lengths of their own; further ones share the last.
const classes = 32

// lately is the time over which the rate of answers is taken.
const lately = 10 * time.Second

func newControl(cfg *sim.Config, o *Options) *control {
	return &control{cfg: cfg, profile: o.Profile, classes: map[[2]string]int32{}, promised: map[int]bool{}, rng: rand.New(rand.NewPCG(o.Seed, 0x61646d69))}
}

// Attach makes every request of a simulation ask a controller, or tells the pipeline its limit if that is all that the arm is. It
// takes cfg's Admit, and its Sink gets the records after the controller. The controller that it returns is nil for an arm that looks
// at nothing but the load. It returns ErrArm, ErrSeen and the errors of the controller's parts.
func Attach(cfg *sim.Config, o Options) (*admission.Controller, error) {
	k, err := kindOf(o.Arm)
	if err != nil {
		return nil, err
	}
	if k.fitted && o.Seen == nil {
		return nil, ErrSeen
	}
	constant := cmp.Or(o.Constant, k.constant)
	if k.make == nil {
		return nil, k.limit(cfg, constant)
	}
	arm, err := k.make(&o, constant)
	if err != nil {
		return nil, err
	}
	p, err := k.predictor(&o)
	if err != nil {
		return nil, err
	}
	c := newControl(cfg, &o)
	if k.fitted {
		c.classes = o.Seen.names()
	}
	if p == nil {
		c.blind = arm
	} else {
		c.controller = admission.NewController(arm, p, c.rng)
	}
	c.attach()
	return c.controller, nil
}

// attach takes the simulation's hooks.
func (c *control) attach() {
	next := c.cfg.Sink
	c.cfg.Admit = c.admit
	c.cfg.Sink = func(r *record.Request) error {
		c.end(r)
		if c.err == nil && next != nil {
			return next(r)
		}
		return c.err
	}
}

// admit is the simulator's hook.
func (c *control) admit(a *sim.Arrival) sim.Decision {
	w := place(a)
	s := c.sequence(a.Class, a.Kind, len(a.Prompt), a.CapTokens, 0)
	s.PrefillTokens -= int32(a.Cached(w))
	request := admission.Request{Class: promise(a.Class), Key: uint64(a.Index) + 1, PromptTokens: s.PromptTokens,
		CachedTokens: s.PromptTokens - s.PrefillTokens, CapTokens: s.CapTokens, E2E: a.SLO.E2E, TTFT: a.SLO.TTFT}
	load := c.load(a)
	if c.blind != nil {
		d := c.blind.Decide(&admission.Input{Now: a.Now, Request: request, Load: load}, c.rng)
		return c.say(a, &d, &predictor.Outlook{})
	}
	c.see(a, w)
	arrival := admission.Arrival{ID: uint64(a.Index), Now: a.Now, Request: request, Sequence: s, Engine: &c.engine, Load: load}
	d, o, err := c.controller.Decide(&arrival)
	if err != nil {
		c.err = err
		return sim.Decision{}
	}
	if c.seen != nil && d.Admit {
		c.seen.ask(a.Index, &request, &load)
	}
	return c.say(a, &d, o)
}

// say tells the simulator.
func (c *control) say(a *sim.Arrival, d *admission.Decision, o *predictor.Outlook) sim.Decision {
	if d.Class == schema.Guaranteed {
		c.promised[a.Index] = true
	}
	out := sim.Decision{Refuse: !d.Admit, RetryAfter: d.RetryAfter, Bound: o.Bound, Predicted: o.Predicted, Note: d.Reason.String()}
	if !d.Admit {
		out.Reason = schema.RefusedSLO
	}
	return out
}

func promise(class string) schema.Class {
	if class == string(schema.Guaranteed) {
		return schema.Guaranteed
	}
	return schema.BestEffort
}

// sequence is a request for the predictor.
func (c *control) sequence(class, kind string, prompt, most int, age time.Duration) predictor.Sequence {
	slo := record.Objective(c.slos(), class)
	return predictor.Sequence{PromptTokens: int32(prompt), PrefillTokens: int32(prompt), CapTokens: int32(most), Lengths: c.class([2]string{class, kind}),
		Age: age, E2E: slo.E2E, TTFT: slo.TTFT}
}

func (c *control) slos() map[string]record.SLO {
	if c.cfg.SLOs != nil {
		return c.cfg.SLOs
	}
	return c.cfg.Source.SLOs()
}

// class numbers the kinds of answers as they come.
func (c *control) class(name [2]string) int32 {
	n, ok := c.classes[name]
	if !ok {
		n = int32(min(len(c.classes), classes-1))
		c.classes[name] = n
	}
	return n
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

// see makes the engine of what the simulator shows of a worker, with its share of the queue.
func (c *control) see(a *sim.Arrival, best int) {
	w := &a.Pool.Workers[best]
	l := &c.cfg.Latency
	e := &c.engine
	*e = predictor.Engine{Profile: c.profile, Plan: c.cfg.Batch, Running: e.Running[:0], Waiting: e.Waiting[:0], FreePages: w.Usage.FreePages,
		Delay:  l.Request + l.Append + l.Dispatch + l.Token,
		Enter:  l.Request + l.Append + l.Dispatch,
		Refill: l.Token + l.Append + l.Dispatch}
	if !w.Idle {
		e.StepLeft = max(1, w.StepSince+w.Step-a.Now)
	}
	slices.SortFunc(w.Requests, func(x, y sim.Running) int { return x.Index - y.Index })
	for i := range w.Requests {
		r := &w.Requests[i]
		s := c.sequence(r.Class, r.Kind, r.PromptTokens, r.CapTokens, a.Now-r.Arrived)
		s.PrefillTokens, s.OutputTokens, s.Guaranteed = int32(r.PrefillTokens), int32(r.OutputTokens), c.promised[r.Index]
		e.Running = append(e.Running, s)
	}
	for i := best; i < len(a.Pool.Queue); i += len(a.Pool.Workers) {
		q := &a.Pool.Queue[i]
		s := c.sequence(q.Class, q.Kind, q.PromptTokens, q.CapTokens, a.Now-q.Arrived)
		s.Guaranteed = c.promised[q.Index]
		e.Waiting = append(e.Waiting, s)
	}
}

// load counts the pool.
func (c *control) load(a *sim.Arrival) admission.Load {
	l := admission.Load{Workers: len(a.Pool.Workers), Waiting: a.Pool.Waiting, Tokens: int64(a.Pool.WaitingPromptTokens) + int64(a.Pool.WaitingCapTokens)}
	for i := range a.Pool.Workers {
		for _, r := range a.Pool.Workers[i].Requests {
			l.Tokens += int64(r.PrefillTokens) + int64(max(0, r.CapTokens-r.OutputTokens))
		}
	}
	for len(c.ended) > 0 && c.ended[0] < a.Now-lately {
		c.ended = c.ended[1:]
	}
	if n := len(c.ended); n > 0 {
		l.Wait = time.Duration(l.Waiting) * lately / time.Duration(n)
	}
	return l
}

// end is what the sink does with a record.
func (c *control) end(r *record.Request) {
	delete(c.promised, r.Index)
	if c.seen != nil {
		c.seen.end(r)
	}
	e := online.Ending{E2E: r.E2E, Tokens: int32(r.OutputTokens), Cut: r.OutputTokens >= r.CapTokens}
	now := r.Intended + r.E2E
	switch r.Outcome {
	case record.OK:
		c.ended = append(c.ended, now)
	case record.Timeout:
		e.How = online.Left
	case record.Censored:
		return
	default:
		e.How = online.Dropped // of one that was refused nobody knows
	}
	if c.controller != nil {
		c.controller.End(uint64(r.Index), e, now)
	}
}
