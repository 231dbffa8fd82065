package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// maxTokens bounds every length of a description.
const maxTokens = 1 << 20

// Range is a number of tokens in [Min, Max]: uniform, or, if Mu or Sigma is set, lognormal, rounded and clipped. Min = Max
// is a fixed one.
type Range struct {
	Min   int     `yaml:"min" json:"min"`
	Max   int     `yaml:"max" json:"max"`
	Mu    float64 `yaml:"mu,omitempty" json:"mu,omitempty"`       // mean of the logarithm
	Sigma float64 `yaml:"sigma,omitempty" json:"sigma,omitempty"` // its standard deviation, ≥ 0
}

func (r Range) draw(rng *rand.Rand) int {
	if r.Mu == 0 && r.Sigma == 0 {
		return r.Min + rng.IntN(r.Max-r.Min+1)
	}
	x := math.Round(math.Exp(r.Mu + r.Sigma*rng.NormFloat64()))
	return int(min(max(x, float64(r.Min)), float64(r.Max)))
}

func (r Range) validate(key string) error {
	if r.Min < 1 || r.Max < r.Min || r.Max > maxTokens {
		return fmt.Errorf("%w: %s is %d to %d, allowed: 1 ≤ min ≤ max ≤ %d", ErrSpec, key, r.Min, r.Max, maxTokens)
	}
	if !(r.Sigma >= 0 && r.Sigma <= 10) || !(r.Mu >= -20 && r.Mu <= 20) {
		return fmt.Errorf("%w: %s has mu %v and sigma %v, allowed: -20 to 20 and 0 to 10", ErrSpec, key, r.Mu, r.Sigma)
	}
	return nil
}

// Output says how long answers are: exactly one of Fixed, Tokens and Cap is set.
type Output struct {
	Fixed  int    `yaml:"fixed,omitempty" json:"fixed,omitempty"`   // tokens of every answer, which is also its cap
	Tokens *Range `yaml:"tokens,omitempty" json:"tokens,omitempty"` // the same, drawn
	Cap    *Range `yaml:"cap,omitempty" json:"cap,omitempty"`       // what a client would send as max_tokens; answers are shorter
	// RealisedRatio, in (0, 1], is the length of an answer as a part of its cap; RealisedMin is the least, ≥ 1.
	RealisedRatio float64 `yaml:"realised_ratio,omitempty" json:"realised_ratio,omitempty"`
	RealisedMin   int     `yaml:"realised_min,omitempty" json:"realised_min,omitempty"`
}

// draw returns a cap and the length of the answer under it.
func (o *Output) draw(rng *rand.Rand) (limit, realised int) {
	switch {
	case o.Cap != nil:
		limit = o.Cap.draw(rng)
		return limit, o.realised(limit)
	case o.Tokens != nil:
		limit = o.Tokens.draw(rng)
		return limit, limit
	default:
		return o.Fixed, o.Fixed
	}
}

// realised is the length of an answer whose cap is limit.
func (o *Output) realised(limit int) int {
	return min(limit, max(o.RealisedMin, int(math.Round(o.RealisedRatio*float64(limit)))))
}

// longest is the most tokens of an answer.
func (o *Output) longest() int {
	switch {
	case o.Cap != nil:
		return o.realised(o.Cap.Max)
	case o.Tokens != nil:
		return o.Tokens.Max
	default:
		return o.Fixed
	}
}

func (o *Output) validate(prefix string) error {
	ways := 0
	for _, set := range []bool{o.Fixed != 0, o.Tokens != nil, o.Cap != nil} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		return fmt.Errorf("%w: %soutput has more than one of fixed, tokens and cap", ErrSpec, prefix)
	}
	if o.Cap == nil && (o.RealisedRatio != 0 || o.RealisedMin != 0) {
		return fmt.Errorf("%w: %soutput.realised_ratio and output.realised_min say nothing without output.cap", ErrSpec, prefix)
	}
	switch {
	case o.Tokens != nil:
		return o.Tokens.validate(prefix + "output.tokens")
	case o.Cap == nil:
		if o.Fixed < 1 || o.Fixed > maxTokens {
			return fmt.Errorf("%w: %soutput.fixed is %d, allowed without output.tokens and output.cap: 1 to %d", ErrSpec, prefix, o.Fixed, maxTokens)
		}
		return nil
	case !(o.RealisedRatio > 0 && o.RealisedRatio <= 1):
		return fmt.Errorf("%w: %soutput.realised_ratio is %v, allowed: more than 0 to 1", ErrSpec, prefix, o.RealisedRatio)
	case o.RealisedMin < 1 || o.RealisedMin > o.Cap.Min:
		return fmt.Errorf("%w: %soutput.realised_min is %d, allowed: 1 to output.cap.min (%d)", ErrSpec, prefix, o.RealisedMin, o.Cap.Min)
	}
	return o.Cap.validate(prefix + "output.cap")
}
