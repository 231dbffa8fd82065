package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// BoundGate admits a request if a bound on its latency fits its budget: the seed's rule, U(x) ≤ SLO. Without a budget it admits.
//
// With a bound that was calibrated once, with admission off, it is the seed's arm (Frozen); with one that is calibrated online, the
// strongest simple rule known (Online). Which it is depends on the bound in the Outlook that it is given.
type BoundGate struct {
	// Label is its name in reports.
	Label string
	// Level of the bound, in (0, 1). A bound at another level is none.
	Level float64
	// Safety is what the bound is multiplied with, > 0: below 1 more is admitted than the level promises. 1 is the plain rule.
	Safety float64
	// Hysteresis is what the budget is multiplied with after a refusal, until the next is admitted, in (0, 1]; 1 is off.
	Hysteresis float64
	// OpenWithoutBound admits while there is no bound: a rule that learns from what it admits has to begin somewhere.
	OpenWithoutBound bool
	Retry            Retry

	refuse bool
}

// Frozen returns the seed's arm at a level (it had 0.80, 0.95 and 0.99): 0.9 of the budget once it refuses, no safety factor.
func Frozen(level float64) BoundGate {
	return BoundGate{Label: fmt.Sprintf("frozen-u%g", 100*level), Level: level, Safety: 1, Hysteresis: 0.9, Retry: DefaultRetry()}
}

// Online returns the gate for a bound that is calibrated online.
func Online(level float64) BoundGate {
	return BoundGate{Label: fmt.Sprintf("online-u%g", 100*level), Level: level, Safety: 1, Hysteresis: 1, OpenWithoutBound: true,
		Retry: DefaultRetry()}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (a *BoundGate) Validate() error {
	switch {
	case a.Label == "":
		return bad("bound.label", "empty", "a name")
	case !within(a.Level, 1e-6, 1-1e-6):
		return bad("bound.level", a.Level, "between 0 and 1")
	case !within(a.Safety, 1e-3, 1e3):
		return bad("bound.safety", a.Safety, "0.001 to 1000")
	case !within(a.Hysteresis, math.SmallestNonzeroFloat64, 1):
		return bad("bound.hysteresis", a.Hysteresis, "more than 0, to 1 (off)")
	}
	return a.Retry.Validate()
}

// Name returns the label.
func (a *BoundGate) Name() string { return a.Label }

// Decide compares the bound with the budget.
func (a *BoundGate) Decide(in *Input, rng *rand.Rand) Decision {
	o, r := &in.Outlook, &in.Request
	if r.E2E <= 0 {
		return verdict(true, Open, in, nil, rng)
	}
	bound := !in.Cold && o.Bound > 0 && math.Abs(o.Level-a.Level) < 1e-9
	if !bound && a.OpenWithoutBound {
		return verdict(true, ByBound, in, nil, rng)
	}
	return fits(bound, float64(o.Bound), a.Safety, a.Hysteresis, &a.refuse, in, &a.Retry, rng)
}

// fits compares a bound, in ns and times a safety factor, with the budget. A gate promises what the bound itself fits, if the request
// asks for it.
func fits(bound bool, ns, safety, hysteresis float64, refuse *bool, in *Input, retry *Retry, rng *rand.Rand) Decision {
	budget := float64(in.Request.E2E)
	if *refuse {
		budget *= hysteresis
	}
	*refuse = !bound || !(float64(safety*ns) <= budget)
	d := verdict(!*refuse, ByBound, in, retry, rng)
	if d.Admit && in.Request.promise() && ns <= float64(in.Request.E2E) {
		d.Class = schema.Guaranteed
	}
	return d
}

// ConstantQuantile is the bound gate whose bound is the same for every request: a quantile of the latencies that were seen, without
// features.
type ConstantQuantile struct {
	Bound time.Duration // > 0; see FitConstant
	Retry Retry

	refuse bool
}

// FitConstant returns the arm for a level, in (0, 1), from latencies: the ⌈(n+1)·level⌉-th smallest, or ErrFit if there are too few
// for it.
func FitConstant(latencies []time.Duration, level float64) (ConstantQuantile, error) {
	scores := make([]float64, len(latencies))
	for i, l := range latencies {
		scores[i] = float64(l)
	}
	q, err := conformal(scores, level)
	if err == nil && !(q >= 1) {
		err = fmt.Errorf("%w: the latencies are not above 0", ErrFit)
	}
	if err != nil {
		return ConstantQuantile{}, err
	}
	return ConstantQuantile{Bound: time.Duration(q), Retry: DefaultRetry()}, nil
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (a *ConstantQuantile) Validate() error {
	if a.Bound <= 0 {
		return bad("constant.bound", a.Bound, "more than 0")
	}
	return a.Retry.Validate()
}

// Name returns "constant-quantile".
func (a *ConstantQuantile) Name() string { return "constant-quantile" }

// Decide compares the constant with the budget.
func (a *ConstantQuantile) Decide(in *Input, rng *rand.Rand) Decision {
	if in.Request.E2E <= 0 {
		return verdict(true, Open, in, nil, rng)
	}
	return fits(true, float64(a.Bound), 1, 1, &a.refuse, in, &a.Retry, rng)
}

// conformal returns the ⌈(n+1)·level⌉-th smallest score (split conformal, one-sided), or ErrFit if there is none. It sorts the
// scores.
func conformal(scores []float64, level float64) (float64, error) {
	if !within(level, 1e-6, 1-1e-6) {
		return 0, fmt.Errorf("%w: level is %v, allowed: between 0 and 1", ErrFit, level)
	}
	k := int(math.Ceil(float64(len(scores)+1)*level - 1e-9)) // what is whole but for rounding is whole
	if k > len(scores) {
		return 0, fmt.Errorf("%w: %d observations are too few for level %v", ErrFit, len(scores), level)
	}
	slices.Sort(scores)
	return scores[k-1], nil
}
