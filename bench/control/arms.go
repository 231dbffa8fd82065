package control

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor/online"
)

// ErrArm is returned for an arm that there is none of; the message names those that there are.
var ErrArm = errors.New("control: no such arm")

// ErrSeen is returned for an arm that is fitted, without anything to fit it to.
var ErrSeen = errors.New("control: the arm is fitted to what Collect sees")

// knowledge is what an arm's decisions are made from.
type knowledge uint8

const (
	byLoad  knowledge = iota // counts of what is there
	learned                  // an outlook that learns
	frozen                   // an outlook that does not
)

// kind is how requests are decided on by an arm.
type kind struct {
	constant float64 // if none is chosen
	by       knowledge
	fitted   bool // wants Options.Seen
	// make returns the arm for a constant; nil: the pipeline is told instead, by limit, and lets everything in.
	make  func(o *Options, constant float64) (admission.Arm, error)
	limit func(cfg *sim.Config, constant float64) error
}

// kinds are the arms; what their constants are is told at Options.Constant.
var kinds = map[string]kind{
	"none": {limit: func(*sim.Config, float64) error { return nil }},
	"queue-wait": {constant: 0.75, limit: func(cfg *sim.Config, s float64) error {
		a := admission.DefaultQueueWait()
		a.Limit = time.Duration(s * float64(time.Second))
		cfg.MaxQueueWait = a.MaxWait()
		return a.Validate()
	}},
	"in-flight": {constant: 16, limit: func(cfg *sim.Config, n float64) error {
		cfg.MaxOpen = max(1, int(n)) * cfg.Workers
		return nil
	}},
	"queue-depth": {constant: 8, make: func(_ *Options, n float64) (admission.Arm, error) {
		a := admission.DefaultQueueDepth()
		a.PerWorker = n
		return &a, a.Validate()
	}},
	"constant-quantile": {constant: 0.95, fitted: true, make: func(o *Options, level float64) (admission.Arm, error) {
		a, err := admission.FitConstant(o.Seen.Latencies, level)
		return &a, err
	}},
	"throughput": {constant: 0.95, fitted: true, make: func(o *Options, level float64) (admission.Arm, error) {
		a, err := admission.FitThroughput(o.Seen.Samples, level)
		return &a, err
	}},
	"shed": {constant: 1, by: learned, make: func(_ *Options, utilisation float64) (admission.Arm, error) {
		c := admission.DefaultShed()
		c.Window.Utilisation = utilisation
		return admission.NewShed(c)
	}},
	"frozen-bound": {constant: 0.9, by: frozen, fitted: true, make: func(o *Options, hysteresis float64) (admission.Arm, error) {
		g := admission.Frozen(o.level())
		g.Hysteresis = hysteresis
		return &g, g.Validate()
	}},
	"online-bound": {constant: 1, by: learned, make: func(o *Options, safety float64) (admission.Arm, error) {
		g := admission.Online(o.level())
		g.Safety = safety
		return &g, g.Validate()
	}},
	"marginal": {constant: admission.DefaultPrice().Utilisation, by: learned, make: func(_ *Options, utilisation float64) (admission.Arm, error) {
		c := admission.DefaultConfig()
		c.Price.Utilisation = utilisation
		return admission.NewMarginal(c)
	}},
}

// Arms are the names that Attach knows, sorted.
func Arms() []string { return slices.Sorted(maps.Keys(kinds)) }

// kindOf returns an arm, or ErrArm.
func kindOf(name string) (kind, error) {
	k, ok := kinds[name]
	if !ok {
		return kind{}, fmt.Errorf("%w: %q, allowed: %s", ErrArm, name, strings.Join(Arms(), ", "))
	}
	return k, nil
}

// predictor returns what the arm is told from; nil: from the load alone.
func (k *kind) predictor(o *Options) (*online.Predictor, error) {
	switch k.by {
	case learned:
		return newPredictor(o.level())
	case frozen:
		return o.Seen.Predictor.Frozen(o.level())
	default:
		return nil, nil
	}
}

// newPredictor returns one that has seen nothing.
func newPredictor(level float64) (*online.Predictor, error) {
	c := online.DefaultConfig(level)
	c.Classes = classes
	return online.New(c)
}
