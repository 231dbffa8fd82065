package load

import (
	"iter"
	"math/rand/v2"
	"time"
)

// Poisson returns the arrival times of a Poisson process with the given rate per second (> 0) in [0, length), counted
// from the start of the run. The same seed gives the same times, and a longer run begins with those of a shorter one.
func Poisson(seed uint64, rate float64, length time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		rng := rand.New(rand.NewPCG(seed, 0x6f70656e6c6f6f70))
		for t := 0.0; ; {
			t += rng.ExpFloat64() / rate
			at := time.Duration(t * float64(time.Second))
			if at >= length || !yield(at) {
				return
			}
		}
	}
}
