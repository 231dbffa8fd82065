package validate

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
)

// Level is the level of significance at which a seed is rejected.
const Level = 0.05

// Process is what many seeds of an arrival process show. Gaps are compared with those of a Poisson process of the same rate.
type Process struct {
	Process string        `json:"process"`
	Poisson bool          `json:"poisson"` // whether it should pass for a Poisson process
	Rate    float64       `json:"rate"`
	Length  time.Duration `json:"length_ns"`
	Seeds   int           `json:"seeds"` // 1 to this
	Gaps    int           `json:"gaps"`  // of each seed, the first ones

	Rejected  float64   `json:"rejected_ratio"`     // of the seeds, at Level
	MedianP   float64   `json:"median_p"`           // 0.5 if it is a Poisson process
	UniformP  float64   `json:"uniform_p"`          // probability of p-values that are at least as far from uniform as these
	PValues   []float64 `json:"p_values,omitempty"` // by seed; left out of reports where it should not pass
	Mean      float64   `json:"arrivals_mean"`      // within Length
	Deviation float64   `json:"arrivals_sd"`        // over seeds
	Expected  float64   `json:"arrivals_expect"`    // Rate × Length
	Index     float64   `json:"dispersion_index"`   // of counts in windows of a tenth of Length, the mean over seeds
	Passed    bool      `json:"passed"`
}

// Arrivals looks at a process over seeds 1 to n.
//
// A process that should pass for Poisson passes if the share of rejected seeds is within four standard errors of Level, its
// p-values look uniform at a level of 0.001, and counts have the mean and the index of dispersion of a Poisson process within
// four standard errors. One that should not passes if at least half of the seeds are rejected, and its mean is the rate all the
// same.
func Arrivals(p arrival.Process, poisson bool, n int, rate float64, length time.Duration) Process {
	out := Process{Process: p.String(), Poisson: poisson, Rate: rate, Length: length, Seeds: n, Gaps: int(math.Round(rate * length.Seconds())), Expected: rate * length.Seconds()}
	rejected := 0
	var counts, indices []float64
	for seed := range uint64(n) {
		seed++
		// A ramp knows its length: its gaps are those within it.
		all := length
		if _, ramp := p.(arrival.Ramp); !ramp {
			all = math.MaxInt64
		}
		_, pv := arrival.KolmogorovSmirnov(arrival.Gaps(p.Times(seed, rate, all), out.Gaps), arrival.Exponential(rate))
		out.PValues = append(out.PValues, pv)
		if pv < Level {
			rejected++
		}
		times := slices.Collect(p.Times(seed, rate, length))
		counts = append(counts, float64(len(times)))
		if i := arrival.Dispersion(slices.Values(times), length, length/10); !math.IsNaN(i) {
			indices = append(indices, i)
		}
	}
	out.Rejected = float64(rejected) / float64(n)
	sorted := slices.Sorted(slices.Values(out.PValues))
	out.MedianP = (sorted[(n-1)/2] + sorted[n/2]) / 2
	_, out.UniformP = arrival.KolmogorovSmirnov(sorted, func(x float64) float64 { return min(max(x, 0), 1) })
	out.Mean, out.Deviation = moments(slices.Values(counts))
	index, spread := moments(slices.Values(indices))
	out.Index = index
	out.Passed = within(out.Mean, out.Expected, max(out.Deviation, 1), n)
	if poisson {
		out.Passed = out.Passed && within(out.Rejected, Level, math.Sqrt(Level*(1-Level)), n) && out.UniformP > 0.001 && within(index, 1, spread, n)
	} else {
		out.Passed = out.Passed && out.Rejected >= 0.5
	}
	return out
}

// within reports whether a mean of n values is within four standard errors of what is expected.
func within(mean, expected, deviation float64, n int) bool {
	return math.Abs(mean-expected) <= 4*deviation/math.Sqrt(float64(n))
}

// moments are mean and standard deviation; 0 of nothing.
func moments(values iter.Seq[float64]) (mean, deviation float64) {
	n, sum, squares := 0.0, 0.0, 0.0
	for v := range values {
		n++
		sum += v
	}
	if n == 0 {
		return 0, 0
	}
	mean = sum / n
	for v := range values {
		squares += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(squares / max(1, n-1))
}
