package arrival

import (
	"iter"
	"math"
	"slices"
	"time"
)

// Gaps are the first n distances between arrivals, the first of them from the start of the run, in seconds; fewer if the times
// end before. Taking a given number of them, instead of all that a given time holds, does not favour short ones.
func Gaps(times iter.Seq[time.Duration], n int) []float64 {
	out := make([]float64, 0, n)
	last := time.Duration(0)
	for at := range times {
		if len(out) == n {
			break
		}
		out = append(out, (at - last).Seconds())
		last = at
	}
	return out
}

// Dispersion is the index of dispersion: the variance by the mean of how many arrivals equal windows have. A window that length
// cuts off is not counted. It is 1 for a Poisson process, more for bursts, 0 for a constant rate with a whole number per window;
// NaN for fewer than two windows, or without arrivals.
func Dispersion(times iter.Seq[time.Duration], length, window time.Duration) float64 {
	counts := make([]float64, length/window)
	for at := range times {
		if i := int(at / window); i < len(counts) {
			counts[i]++
		}
	}
	var mean, square float64
	for _, c := range counts {
		mean += c / float64(len(counts))
	}
	for _, c := range counts {
		square += (c - mean) * (c - mean)
	}
	return square / float64(len(counts)-1) / mean
}

// Exponential is the distribution function of gaps of a Poisson process with the given rate per second.
func Exponential(rate float64) func(seconds float64) float64 {
	return func(x float64) float64 { return -math.Expm1(-rate * max(x, 0)) }
}

// KolmogorovSmirnov compares a sample, which it sorts, with a distribution that was known beforehand. It returns the greatest
// distance between the distribution functions and the probability of at least that distance for a sample of the distribution,
// by the asymptotic series with Stephens' correction for its size (Stephens 1970; good to about 0.01 for 10 or more). An empty
// sample has distance 0 and probability 1.
func KolmogorovSmirnov(sample []float64, cdf func(float64) float64) (distance, p float64) {
	n := float64(len(sample))
	if n == 0 {
		return 0, 1
	}
	slices.Sort(sample)
	for i, x := range sample {
		f := cdf(x)
		distance = max(distance, f-float64(i)/n, float64(i+1)/n-f)
	}
	root := math.Sqrt(n)
	lambda := (root + 0.12 + 0.11/root) * distance
	if lambda < 0.2 {
		return distance, 1 // to within 1e-12; the series hardly converges there
	}
	for k := 1.0; k <= 100; k++ {
		term := 2 * math.Exp(-2*k*k*lambda*lambda)
		if int(k)%2 == 0 {
			term = -term
		}
		p += term
		if math.Abs(term) < 1e-12 {
			break
		}
	}
	return distance, min(max(p, 0), 1)
}
