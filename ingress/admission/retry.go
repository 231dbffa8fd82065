package admission

import (
	"math"
	"math/rand/v2"
	"time"
)

// Retry says when a refused client should come back.
type Retry struct {
	// Spread is by which part of the time, and a second, a client may be told to come later, so that not all come together; in [0,
	// 10].
	Spread float64
	// Max is the longest that a client is told to wait: whole seconds, ≥ 1s.
	Max time.Duration
}

// DefaultRetry returns the defaults.
func DefaultRetry() Retry { return Retry{Spread: 0.5, Max: time.Minute} }

// Validate returns ErrConfig, naming the key and the allowed values.
func (r *Retry) Validate() error {
	switch {
	case !within(r.Spread, 0, 10):
		return bad("retry.spread", r.Spread, "0 to 10")
	case r.Max < time.Second || r.Max%time.Second != 0:
		return bad("retry.max", r.Max, "whole seconds from 1s")
	}
	return nil
}

// After returns the Retry-After for a request that would find room once drain has passed: whole seconds, from 1s to Max. Up to Spread
// of it, and a second more, is left to chance; so is the last part before Max, lest all that are refused for long come back
// together: a drain beyond (Max - 1s)/(1 + Spread) counts as that, and the request may come back before it has passed.
func (r *Retry) After(drain time.Duration, rng *rand.Rand) time.Duration {
	most := max(1, math.Floor(float64(r.Max-time.Second)/(1+r.Spread)/float64(time.Second)))
	s := min(max(1, math.Ceil(float64(drain)/float64(time.Second))), most)
	s += math.Floor(draw(rng) * (math.Floor(r.Spread*s) + 2))
	return min(time.Duration(s)*time.Second, r.Max)
}
