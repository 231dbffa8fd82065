package control

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

// ErrArm is returned for an arm that there is none of; the message names those that there are.
var ErrArm = errors.New("control: no such arm")

// makers make an arm that wants bounds at a level.
var makers = map[string]func(level float64) (admission.Arm, error){
	"marginal": func(float64) (admission.Arm, error) { return admission.NewMarginal(admission.DefaultConfig()) },
	"online-bound": func(level float64) (admission.Arm, error) {
		g := admission.Online(level)
		return &g, g.Validate()
	},
}

// Arms are the names that Attach knows, sorted.
func Arms() []string { return slices.Sorted(maps.Keys(makers)) }

// Options choose a controller.
type Options struct {
	Arm     string           // one of Arms
	Level   float64          // of bounds; 0: 0.8, which the gate is best at
	Profile *profile.Profile // that the controller believes of the engines; they may have another
	Seed    uint64
}

// control is a controller in the simulator. It has the simulator's owner.
type control struct {
	cfg        *sim.Config
	profile    *profile.Profile
	controller *admission.Controller
	engine     predictor.Engine
	classes    map[string]int32
	promised   map[int]bool // guaranteed ones, by index
	ended      []time.Duration
	err        error
}

// classes is how many kinds of answers have a distribution of lengths of their own; further ones share the last.
const classes = 32

// lately is the time over which the rate of answers is taken.
const lately = 10 * time.Second

// Attach makes every request of a simulation ask a controller. It takes cfg's Admit, and its Sink gets the records after the
// controller. It returns ErrArm and the errors of the controller's parts.
func Attach(cfg *sim.Config, o Options) (*admission.Controller, error) {
	make, ok := makers[o.Arm]
	if !ok {
		return nil, fmt.Errorf("%w: %q, allowed: %s", ErrArm, o.Arm, strings.Join(Arms(), ", "))
	}
	level := cmp.Or(o.Level, 0.8)
	arm, err := make(level)
	if err != nil {
		return nil, err
	}
	oc := online.DefaultConfig(level)
	oc.Classes = classes
	p, err := online.New(oc)
	if err != nil {
		return nil, err
	}
	c := &control{cfg: cfg, profile: o.Profile, classes: map[string]int32{}, promised: map[int]bool{},
		controller: admission.NewController(arm, p, rand.New(rand.NewPCG(o.Seed, 0x61646d69)))}
	next := cfg.Sink
	cfg.Admit = c.admit
	cfg.Sink = func(r *record.Request) error {
		c.end(r)
		if c.err == nil && next != nil {
			return next(r)
		}
		return c.err
	}
	return c.controller, nil
}

// admit is the simulator's hook.
func (c *control) admit(a *sim.Arrival) sim.Decision {
	w := c.see(a)
	s := c.sequence(a.Class, a.Kind, len(a.Prompt), a.CapTokens, 0)
	s.PrefillTokens -= int32(a.Cached(w))
	arrival := admission.Arrival{ID: uint64(a.Index), Now: a.Now, Sequence: s, Engine: &c.engine, Load: c.load(a),
		Request: admission.Request{Class: promise(a.Class), Key: uint64(a.Index) + 1, PromptTokens: s.PromptTokens,
			CachedTokens: s.PromptTokens - s.PrefillTokens, CapTokens: s.CapTokens, E2E: a.SLO.E2E, TTFT: a.SLO.TTFT}}
	d, o, err := c.controller.Decide(&arrival)
	if err != nil {
		c.err = err
		return sim.Decision{}
	}
	if d.Class == schema.Guaranteed {
		c.promised[a.Index] = true
	}
	out := sim.Decision{Refuse: !d.Admit, RetryAfter: d.RetryAfter, Bound: o.Bound, Predicted: o.Predicted, Note: string(d.Reason)}
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
	return predictor.Sequence{PromptTokens: int32(prompt), PrefillTokens: int32(prompt), CapTokens: int32(most), Lengths: c.class(class + "/" + kind),
		Age: age, E2E: slo.E2E, TTFT: slo.TTFT}
}

func (c *control) slos() map[string]record.SLO {
	if c.cfg.SLOs != nil {
		return c.cfg.SLOs
	}
	return c.cfg.Source.SLOs()
}

// class numbers the kinds of answers as they come.
func (c *control) class(name string) int32 {
	n, ok := c.classes[name]
	if !ok {
		n = int32(min(len(c.classes), classes-1))
		c.classes[name] = n
	}
	return n
}

// see makes the engine of what the simulator shows: the worker with the fewest requests, with its share of the queue. It
// returns the worker's place.
func (c *control) see(a *sim.Arrival) int {
	best := 0
	for i := range a.Pool.Workers {
		if len(a.Pool.Workers[i].Requests) < len(a.Pool.Workers[best].Requests) {
			best = i
		}
	}
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
	return best
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
	c.controller.End(uint64(r.Index), e, now)
}
