package admission

import "math/rand/v2"

// ShedConfig are the constants of Shed.
type ShedConfig struct {
	// Window is how demand is measured, and its Utilisation which part of the capacity is filled. Weight, Every and Damping are not
	// used.
	Window PriceConfig
	Retry  Retry
}

// DefaultShed returns the defaults.
func DefaultShed() ShedConfig {
	c := ShedConfig{Window: DefaultPrice(), Retry: DefaultRetry()}
	c.Window.Utilisation = 1
	return c
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *ShedConfig) Validate() error {
	if err := c.Window.Validate(); err != nil {
		return err
	}
	return c.Retry.Validate()
}

// Shed refuses by chance whatever exceeds the capacity: if demand is n times what can be done, each request is admitted with
// probability 1/n.
type Shed struct {
	cfg    ShedConfig
	window *Price
}

// NewShed returns the arm, or ErrConfig.
func NewShed(cfg ShedConfig) (*Shed, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	window, err := NewPrice(cfg.Window)
	if err != nil {
		return nil, err
	}
	return &Shed{cfg: cfg, window: window}, nil
}

// Name returns "shed".
func (a *Shed) Name() string { return "shed" }

// Decide counts the request and draws.
func (a *Shed) Decide(in *Input, rng *rand.Rand) Decision {
	o := sane(in.Outlook)
	a.window.Add(in.Now, in.Request.Key, o.MeetIdle, o.Share, false)
	a.window.Sell(in.Load.part())
	p := 1.0
	if n := a.window.Demand(in.Now, in.Load.Workers); n > 1 {
		p = 1 / n
	}
	d := verdict(p >= 1 || rng != nil && rng.Float64() < p, ByDemand, in, &a.cfg.Retry, rng)
	if rng != nil {
		d.Propensity = p
	}
	return d
}
