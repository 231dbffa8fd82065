package control

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

// Control is what decides in a simulation. It has the simulator's owner.
type Control struct {
	cfg     *sim.Config
	o       Options
	profile *profile.Profile // that is believed
	desks   []*desk          // by ingress
	seen    *Seen            // nil: nothing is collected

	engine   predictor.Engine
	held     map[int]held // by index
	promises Promises
	ended    []time.Duration
	err      error
}

// desk is one ingress's.
type desk struct {
	number     int
	controller *admission.Controller
	blind      admission.Arm // in its place, if the load is all that it looks at
	rng        *rand.Rand
	classes    *admission.Classes
}

func newControl(cfg *sim.Config, o *Options) *Control {
	c := &Control{cfg: cfg, o: *o, profile: o.believed(), held: map[int]held{}}
	if c.profile != o.Profile {
		cfg.Believed = c.profile
	}
	return c
}

// newDesk adds an ingress.
func (c *Control) newDesk() *desk {
	d := &desk{number: len(c.desks), rng: rand.New(rand.NewPCG(c.o.Seed, 0x61646d69+uint64(len(c.desks)))), classes: admission.NewClasses(classes)}
	c.desks = append(c.desks, d)
	return d
}

// Attach makes every request of a simulation ask a controller, or tells the pipeline its limit if that is all that the arm is. It
// takes cfg's Admit, and its Sink gets the records after the controllers. It returns ErrArm, ErrSeen, ErrOptions and the errors of the
// controller's parts.
func Attach(cfg *sim.Config, o Options) (*Control, error) {
	k, err := kindOf(o.Arm)
	if err != nil {
		return nil, err
	}
	if k.fitted && o.Seen == nil {
		return nil, ErrSeen
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	constant := cmp.Or(o.Constant, k.constant)
	c := newControl(cfg, &o)
	if k.make == nil {
		if err := k.limit(cfg, constant); err != nil {
			return nil, err
		}
		return c, nil
	}
	for range o.ingresses() {
		arm, err := k.make(&o, constant)
		if err != nil {
			return nil, err
		}
		p, err := k.predictor(&o)
		if err != nil {
			return nil, err
		}
		if o.Open {
			arm = admission.None{}
		}
		d := c.newDesk()
		if k.fitted {
			d.classes = o.Seen.classes.Clone()
		}
		if p == nil {
			d.blind = arm
		} else {
			d.controller = admission.NewController(arm, p, d.rng)
		}
	}
	cfg.Admit = c.admit
	c.listen()
	return c, nil
}

// listen takes the simulation's records.
func (c *Control) listen() {
	next := c.cfg.Sink
	c.cfg.Sink = func(r *record.Request) error {
		c.end(r)
		if c.err == nil && next != nil {
			return next(r)
		}
		return c.err
	}
}

// Controllers are those of the ingresses, in their order; lent. There are none where an arm looks at nothing but the load.
func (c *Control) Controllers() []*admission.Controller {
	var out []*admission.Controller
	for _, d := range c.desks {
		if d.controller != nil {
			out = append(out, d.controller)
		}
	}
	return out
}

// Promises are what was promised so far.
func (c *Control) Promises() Promises { return c.promises }

// chance is a number in [0, 1) that goes with a request.
func (c *Control) chance(index int, of uint64) float64 {
	return rand.New(rand.NewPCG(c.o.Seed^of, uint64(index))).Float64()
}

// deal returns the ingress that a request comes to.
func (c *Control) deal(index int) *desk {
	n := len(c.desks)
	if c.o.ByHash {
		return c.desks[int(c.chance(index, 0x6465616c)*float64(n))]
	}
	return c.desks[index%n]
}

// admit is the simulator's hook.
func (c *Control) admit(a *sim.Arrival) sim.Decision {
	d := c.deal(a.Index)
	w := place(a)
	c.look(a, d.number)
	s := c.sequence(d, a.Index, a.Class, a.Kind, len(a.Prompt), a.CapTokens, 0)
	cached := int32(a.Cached(w))
	s.PrefillTokens = s.PromptTokens - cached
	request := admission.Request{Class: schema.BestEffort, Key: uint64(a.Index) + 1, PromptTokens: s.PromptTokens, CachedTokens: cached,
		CapTokens: s.CapTokens, E2E: a.SLO.E2E, TTFT: a.SLO.TTFT}
	if c.wants(a.Class, a.Index) {
		request.Class = schema.Guaranteed
	}
	h := held{ingress: d.number, cached: cached, limit: s.CapTokens, slo: a.SLO}
	load := c.load(a)
	if d.blind != nil {
		decision := d.blind.Decide(&admission.Input{Now: a.Now, Request: request, Load: load}, d.rng)
		return c.say(a, &request, &decision, &predictor.Outlook{}, h)
	}
	c.see(a, d, w)
	arrival := admission.Arrival{ID: uint64(a.Index), Now: a.Now, Request: request, Sequence: s, Engine: &c.engine, Load: load}
	decision, o, err := d.controller.Decide(&arrival)
	if err != nil {
		c.err = err
		return sim.Decision{}
	}
	if c.seen != nil && decision.Admit {
		c.seen.ask(a.Index, &request, &load)
	}
	return c.say(a, &request, &decision, o, h)
}

// say tells the simulator, and remembers what was admitted.
func (c *Control) say(a *sim.Arrival, r *admission.Request, d *admission.Decision, o *predictor.Outlook, h held) sim.Decision {
	asked := r.Class == schema.Guaranteed && r.E2E > 0
	if asked {
		c.promises.Asked++
	}
	out := sim.Decision{Refuse: !d.Admit, RetryAfter: d.RetryAfter, Bound: o.Bound, Predicted: o.Predicted, Note: d.Reason.String(), Class: d.Class}
	if !d.Admit {
		out.Reason = d.Reason.Refusal()
		if asked {
			c.promises.Refused++
		}
		return out
	}
	if h.promised = d.Class == schema.Guaranteed; h.promised {
		c.promises.Given++
	}
	c.held[a.Index] = h
	return out
}

// end is what the sink does with a record.
func (c *Control) end(r *record.Request) {
	now := r.Intended + r.E2E
	if r.Outcome == record.OK {
		c.ended = append(c.ended, now)
	}
	h, ok := c.held[r.Index]
	if !ok {
		return // refused, or nobody was asked
	}
	delete(c.held, r.Index)
	if h.promised {
		c.promises.end(r, h.slo)
	}
	if c.seen != nil {
		c.seen.end(r)
	}
	e := online.Ending{E2E: r.E2E, Tokens: int32(r.OutputTokens), Cut: int32(r.OutputTokens) >= h.limit}
	switch r.Outcome {
	case record.OK:
	case record.Timeout:
		e.How = online.Left
	case record.Censored:
		return
	default:
		e.How = online.Dropped
	}
	if d := c.desks[h.ingress]; d.controller != nil {
		d.controller.End(uint64(r.Index), e, now)
	}
}
