package stat

import (
	"math"
	"slices"
	"time"
)

// Durations sums up a set of durations exactly. The zero value is of none.
type Durations struct {
	Count int           `json:"count"`
	Open  int           `json:"open,omitempty"` // of Count: lower bounds, what was waited for had not come
	Mean  time.Duration `json:"mean_ns"`
	Min   time.Duration `json:"min_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P95   time.Duration `json:"p95_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
	// Certain is how many of the smallest are exact: the rank of the first lower bound, Count if there is none.
	Certain int `json:"certain"`
}

// Exact reports whether the q-quantile is what it says; otherwise it is a lower bound.
func (d *Durations) Exact(q float64) bool {
	return d.Open == 0 || int(math.Ceil(q*float64(d.Count-1))) < d.Certain
}

// summarize sums up the durations in exact and the lower bounds in open. It sorts both.
func summarize(exact, open []time.Duration) Durations {
	slices.Sort(exact)
	d := Durations{Count: len(exact) + len(open), Open: len(open), Certain: len(exact)}
	if d.Count == 0 {
		return d
	}
	all := exact
	if len(open) > 0 {
		slices.Sort(open)
		// A bound that equals a duration stands behind it: what it bounds is longer.
		d.Certain, _ = slices.BinarySearch(exact, open[0]+1)
		all = slices.Concat(exact, open)
		slices.Sort(all)
	}
	sum := 0.0
	for _, x := range all {
		sum += float64(x)
	}
	d.Mean = time.Duration(math.Round(sum / float64(d.Count)))
	d.Min, d.Max = all[0], all[d.Count-1]
	d.P50, d.P90, d.P95 = quantile(all, 0.5), quantile(all, 0.9), quantile(all, 0.95)
	d.P99, d.P999 = quantile(all, 0.99), quantile(all, 0.999)
	return d
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return time.Duration(math.Round(Quantile(sorted, q)))
}

// Quantile returns the q-quantile, q in [0, 1], of ascending values: linear between order statistics (definition 7 of
// Hyndman and Fan, 1996, the usual one of NumPy and R). It is NaN for no values.
func Quantile[T ~int64 | ~float64](sorted []T, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := min(max(q, 0), 1) * float64(len(sorted)-1)
	i := int(at)
	low := float64(sorted[i])
	if i+1 == len(sorted) {
		return low
	}
	return low + (at-float64(i))*(float64(sorted[i+1])-low)
}
