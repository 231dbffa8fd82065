package admission

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/schema"
)

// ErrConfig is returned for constants that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("admission: invalid configuration")

// ErrFit is returned for observations that no baseline can be fitted to.
var ErrFit = errors.New("admission: no fit")

// Request is what a decision needs to know of the request itself.
type Request struct {
	// Class that is asked for; "" is best effort.
	Class schema.Class
	// Key is the same for all attempts of one client at one request, so that they count as one demand; 0: it has none.
	Key uint64
	// PromptTokens, ≥ 0; CachedTokens of them are expected in the prefix cache, in [0, PromptTokens].
	PromptTokens, CachedTokens int32
	// CapTokens is the most that it may generate, ≥ 0.
	CapTokens int32
	// E2E and TTFT are its objectives, from its arrival; 0: none. Nothing can be guaranteed without E2E.
	E2E, TTFT time.Duration
}

// tokens returns the most tokens that it may take.
func (r *Request) tokens() int64 { return int64(max(0, r.PromptTokens)) + int64(max(0, r.CapTokens)) }

// Load is the state of the pool in a few counts, kept with or without a model.
type Load struct {
	// Workers are live and take requests, ≥ 0.
	Workers int
	// Ingresses let requests in to these workers, each about as many, this one included; 0 is 1. What is said of the workers' time
	// as a whole is this one's part of it.
	Ingresses int
	// Waiting requests are admitted and not at a worker, ≥ 0.
	Waiting int
	// Wait is how long a newcomer would wait for its place at a worker, by the rate at which requests got theirs lately; 0: it
	// would not, or that is not known.
	Wait time.Duration
	// Tokens are still to be computed for all that were admitted: prompts, and answers up to their caps; ≥ 0.
	Tokens int64
}

// part is the part of the workers' time that is this ingress's.
func (l *Load) part() float64 { return 1 / float64(max(1, l.Ingresses)) }

// Input is all that a decision is made from.
type Input struct {
	// Now is the time since any fixed moment; if it goes back it counts as standing still.
	Now     time.Duration
	Request Request
	// Outlook is what is expected of the request if it is admitted. Its Bound is at the level that the Arm wants.
	Outlook predictor.Outlook
	// Cold says that no model is calibrated: of the Outlook only Predicted, First, Breaks, Drain and Idle mean something.
	Cold bool
	Load Load
}

// Decision is what is done with a request.
type Decision struct {
	Admit  bool
	Reason Reason
	// Class it is labelled with, if it is admitted: Guaranteed only if it asked for that and is promised it.
	Class schema.Class
	// Propensity is the probability with which a request in this very situation is admitted, in [0, 1].
	Propensity float64
	// Lambda is the price of a second of an engine's time, in requests within their objectives, ≥ 0; 0 where none was looked at.
	Lambda float64
	// Gain is by how many requests within their objectives the expectation grows, ≤ 1; 0 where that was not looked at.
	Gain float64
	// RetryAfter is for a refusal: whole seconds, ≥ 1s; 0 if it is admitted.
	RetryAfter time.Duration
	// Note says what else a reader of the log must know; one of the Note constants, mostly "".
	Note string
}

// NoteCold is the note of decisions that were made without a calibrated model.
const NoteCold = "cold start: physics with a margin"

// Arm decides on requests as they arrive, in the order of their arrival. It has one owner.
type Arm interface {
	// Name is a short, stable name for reports.
	Name() string
	// Decide decides on the request and remembers that it came. The input is lent for the call; rng is only drawn from where chance
	// decides, and for the jitter of a Retry-After. Without one (nil) nothing is admitted by chance, and nothing jittered.
	Decide(in *Input, rng *rand.Rand) Decision
}

// verdict is the decision of a rule without chance, for best effort.
func verdict(admit bool, reason Reason, in *Input, retry *Retry, rng *rand.Rand) Decision {
	d := Decision{Admit: admit, Reason: reason, Class: schema.BestEffort}
	if admit {
		d.Propensity = 1
	} else {
		d.RetryAfter = retry.After(in.Outlook.Drain, rng)
	}
	return d
}

// promise reports whether the request asks for something that can be guaranteed.
func (r *Request) promise() bool { return r.Class == schema.Guaranteed && r.E2E > 0 }

// draw returns a number in [0, 1).
func draw(rng *rand.Rand) float64 {
	if rng == nil {
		return 0
	}
	return rng.Float64()
}

func bad(key string, value any, allowed string) error {
	return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, key, value, allowed)
}

// within reports whether v is in [lo, hi]; NaN is not.
func within(v, lo, hi float64) bool { return v >= lo && v <= hi }

// worst is more harm than any request can do; it is finite so that it can be written down.
const worst = 1e9

// sane returns the outlook with what is out of range taken as the worst that it can mean.
func sane(o predictor.Outlook) predictor.Outlook {
	unit := func(p float64) float64 {
		if !(p >= 0) { // NaN too
			return 0
		}
		return min(p, 1)
	}
	o.Meet, o.MeetIdle = unit(o.Meet), unit(o.MeetIdle)
	if !(o.Harm <= worst) {
		o.Harm = worst
	}
	o.Harm = max(0, o.Harm)
	o.Cost = max(1, o.Cost)
	if o.Share <= 0 {
		o.Share = o.Cost
	}
	o.Bound, o.BoundIdle = max(0, o.Bound), max(0, o.BoundIdle)
	return o
}
