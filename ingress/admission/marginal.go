package admission

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/schema"
)

// Config are the constants of Marginal.
type Config struct {
	// MinMeet is the probability to meet the objectives on an idle engine up to which a request counts as infeasible, in [0, 1).
	MinMeet float64
	// Hysteresis is what a worth or a budget is multiplied with after a refusal, until one of its class is admitted again by that
	// rule, in (0, 1]; 1 is off.
	Hysteresis float64
	// ColdMargin is what a latency of the physics alone is multiplied with, ≥ 1.
	ColdMargin float64
	// ChargeCost charges a request what its admission adds to the engine's time now, instead of its part of the time of a full
	// engine; see Price about cost.
	ChargeCost bool
	Price      PriceConfig
	Explore    Explore
	Retry      Retry
}

// DefaultConfig returns the defaults. With the cold margin hardly anything is refused below the knee while nothing is known yet, and a
// start in overload is not much worse than with a wider one.
func DefaultConfig() Config {
	return Config{MinMeet: 0.01, Hysteresis: 1, ColdMargin: 1.5, Price: DefaultPrice(), Explore: DefaultExplore(), Retry: DefaultRetry()}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	switch {
	case !within(c.MinMeet, 0, 0.999):
		return bad("min_meet", c.MinMeet, "0 to 0.999")
	case !within(c.Hysteresis, math.SmallestNonzeroFloat64, 1):
		return bad("hysteresis", c.Hysteresis, "more than 0, to 1 (off)")
	case !within(c.ColdMargin, 1, 1000):
		return bad("cold_margin", c.ColdMargin, "1 to 1000")
	}
	if err := c.Price.Validate(); err != nil {
		return err
	}
	if err := c.Explore.Validate(); err != nil {
		return err
	}
	return c.Retry.Validate()
}

// Marginal is the rule of the package documentation: it admits what adds more to the goodput than the engine's time is worth.
//
// Without a calibrated model (Input.Cold) nothing more is promised and nothing priced: a request is admitted if the latency of the
// physics, times ColdMargin, is within its objectives, or if the engine is idle; one that asked for a guarantee is then served as
// best effort.
type Marginal struct {
	cfg    Config
	price  *Price
	quota  quota
	refuse [2]bool // the last decision of the rule for best effort, and for guaranteed ones
}

// NewMarginal returns the rule, or ErrConfig.
func NewMarginal(cfg Config) (*Marginal, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	price, err := NewPrice(cfg.Price)
	if err != nil {
		return nil, err
	}
	return &Marginal{cfg: cfg, price: price}, nil
}

// Name returns "marginal".
func (m *Marginal) Name() string { return "marginal" }

// Decide decides on a request.
func (m *Marginal) Decide(in *Input, rng *rand.Rand) Decision {
	d := Decision{Class: schema.BestEffort, Propensity: 1}
	o := sane(in.Outlook)
	if in.Cold {
		d.Note = NoteCold
	}
	if o.Breaks {
		d.Reason = ProtectsGuaranteed
	} else if in.Cold {
		d.Admit, d.Reason = m.cold(in, &o), ByMargin
	} else {
		m.price.Sell(in.Load.part())
		d.Lambda = m.price.Lambda(in.Now, in.Load.Workers)
		d.Gain = o.Meet - o.Harm
		d.Admit, d.Reason = m.rule(&in.Request, &o, float64(d.Lambda*m.charge(&o).Seconds()))
		if d.Admit && d.Reason == ByBound {
			d.Class = schema.Guaranteed
		}
	}
	if !d.Admit && o.Idle && d.Reason != Infeasible && d.Reason != ProtectsGuaranteed {
		d.Admit, d.Reason = true, Idle
	}
	m.quota.fill(&m.cfg.Explore, in.Now, float64(max(0, in.Load.Workers))*in.Load.part())
	if !d.Admit {
		m.explore(in, &d, rng)
	}
	if !in.Cold {
		m.price.Add(in.Now, in.Request.Key, o.MeetIdle, m.charge(&o), d.Class == schema.Guaranteed)
	}
	if !d.Admit {
		d.RetryAfter = m.retry(in, d.Reason, rng)
	}
	return d
}

// charge is the engine's time that the request has to be worth.
func (m *Marginal) charge(o *predictor.Outlook) time.Duration {
	if m.cfg.ChargeCost {
		return o.Cost
	}
	return o.Share
}

// rule is the rule without idleness and chance; the charge is the price of the whole request.
func (m *Marginal) rule(r *Request, o *predictor.Outlook, charge float64) (admit bool, reason Reason) {
	switch promise := r.promise(); {
	case o.MeetIdle <= m.cfg.MinMeet, promise && o.BoundIdle > r.E2E:
		return false, Infeasible
	case promise:
		fits := o.Bound > 0 && float64(o.Bound) <= float64(m.damp(1)*float64(r.E2E))
		m.refuse[1] = !fits
		return fits, ByBound
	default:
		worth := float64(m.damp(0)*o.Meet) > max(o.Harm, charge)
		m.refuse[0] = !worth
		return worth, ByPrice
	}
}

// damp returns what a worth or budget of a class is multiplied with.
func (m *Marginal) damp(class int) float64 {
	if m.refuse[class] {
		return m.cfg.Hysteresis
	}
	return 1
}

// cold reports whether the physics alone say, with a margin, that the objectives are met.
func (m *Marginal) cold(in *Input, o *predictor.Outlook) bool {
	fits := func(predicted, objective time.Duration) bool {
		return objective <= 0 || float64(m.cfg.ColdMargin*float64(predicted)) <= float64(objective)
	}
	return fits(o.Predicted, in.Request.E2E) && fits(o.First, in.Request.TTFT)
}

// explore may admit by chance what was refused, and says how probable that was.
func (m *Marginal) explore(in *Input, d *Decision, rng *rand.Rand) {
	d.Propensity = 0
	if d.Reason == ProtectsGuaranteed || rng == nil {
		return
	}
	tokens := in.Request.tokens()
	if d.Propensity = m.quota.chance(&m.cfg.Explore, tokens); d.Propensity > 0 && rng.Float64() < d.Propensity {
		m.quota.take(tokens)
		d.Admit, d.Reason = true, Exploration
	}
}

// retry returns the Retry-After of a refusal. What is infeasible will stay so for long.
func (m *Marginal) retry(in *Input, reason Reason, rng *rand.Rand) time.Duration {
	drain := in.Outlook.Drain
	if reason == Infeasible {
		drain = m.cfg.Retry.Max
	}
	return m.cfg.Retry.After(drain, rng)
}

// Lambda returns the present price; see Price.Lambda.
func (m *Marginal) Lambda(now time.Duration, workers int) float64 {
	return m.price.Lambda(now, workers)
}

// Demand returns the present demand by capacity; see Price.Demand.
func (m *Marginal) Demand(now time.Duration, workers int) float64 {
	return m.price.Demand(now, workers)
}
