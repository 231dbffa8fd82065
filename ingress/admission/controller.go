package admission

import (
	"math/rand/v2"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/online"
)

// Arrival is a request as it arrives, and the engine as it is then.
type Arrival struct {
	ID      uint64 // the caller's, of one request
	Now     time.Duration
	Request Request
	// Sequence is the request for the predictor, with its expected prefix hit.
	Sequence predictor.Sequence
	// Engine is lent for the call.
	Engine *predictor.Engine
	Load   Load
}

// Controller joins a predictor and an Arm: what the one expects the other decides on, and what came of it the first learns.
type Controller struct {
	arm       Arm
	predictor *online.Predictor
	rng       *rand.Rand
	foresight online.Foresight
	in        Input
}

// NewController returns a controller that owns all three. Without rng (nil) nothing is left to chance.
func NewController(arm Arm, p *online.Predictor, rng *rand.Rand) *Controller {
	return &Controller{arm: arm, predictor: p, rng: rng}
}

// Predictor is the controller's; lent.
func (c *Controller) Predictor() *online.Predictor { return c.predictor }

// Decide decides on a request. Every one that is admitted must come to End. The outlook is lent until the next call. The
// error is predictor.ErrEngine; nothing was decided then.
func (c *Controller) Decide(a *Arrival) (Decision, *predictor.Outlook, error) {
	c.predictor.Advance(a.Now)
	if err := c.predictor.Foresee(a.Engine, &a.Sequence, &c.foresight); err != nil {
		return Decision{}, nil, err
	}
	c.in = Input{Now: a.Now, Request: a.Request, Outlook: c.foresight.Outlook, Cold: c.predictor.Cold(), Load: a.Load}
	d := c.arm.Decide(&c.in, c.rng)
	if d.Admit {
		weight := 1.0
		if d.Propensity > 0 {
			weight = 1 / d.Propensity
		}
		c.predictor.Admit(a.ID, &c.foresight, weight, a.Now)
	}
	return d, &c.foresight.Outlook, nil
}

// End tells how an admitted request ended.
func (c *Controller) End(id uint64, e online.Ending, now time.Duration) { c.predictor.End(id, e, now) }
