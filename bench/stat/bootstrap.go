package stat

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Resamples is the usual number of resamples of a bootstrap, Level the coverage of its intervals.
const (
	Resamples = 20000
	Level     = 0.95
)

// FewPairs is the number of pairs below which intervals are too narrow for their Level, which whoever shows them must say.
const FewPairs = 10

// ErrPairs is returned for samples that are not pairs.
var ErrPairs = errors.New("stat: not pairs")

// Estimate is a value with its interval.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Excludes reports whether x is outside the interval.
func (e Estimate) Excludes(x float64) bool { return x < e.Low || x > e.High }

// Paired is how b differs from a over pairs of runs. With no pairs all is 0.
type Paired struct {
	Pairs     int `json:"pairs"`
	Resamples int `json:"resamples"`
	// Of the differences b − a.
	Mean   Estimate `json:"mean_difference"`
	Median Estimate `json:"median_difference"`
	// Of the ratios b / a of the pairs whose a is not 0.
	RatioPairs  int      `json:"ratio_pairs"`
	MeanRatio   Estimate `json:"mean_ratio"`
	MedianRatio Estimate `json:"median_ratio"`
}

// PairedBootstrap compares two arms over pairs of runs, a[i] with b[i] (same seed, same load): percentile intervals of
// Level from resampling the pairs (Efron, 1979); resamples ≤ 0 is Resamples. Pairs in which a value is NaN are left out.
// It returns ErrPairs if there are not as many values in a as in b.
//
// An interval never leaves the range of what was seen. Up to three pairs it is that range, and covers the true median
// with a probability of 1 − 2^(1−n) only: 75 % for three. That of a mean of five pairs covers about 84 %, see FewPairs.
func PairedBootstrap(a, b []float64, resamples int, seed uint64) (Paired, error) {
	if len(a) != len(b) {
		return Paired{}, fmt.Errorf("%w: %d and %d values", ErrPairs, len(a), len(b))
	}
	if resamples <= 0 {
		resamples = Resamples
	}
	var differences, ratios []float64
	for i := range a {
		if math.IsNaN(a[i]) || math.IsNaN(b[i]) {
			continue
		}
		differences = append(differences, b[i]-a[i])
		if a[i] != 0 {
			ratios = append(ratios, b[i]/a[i])
		}
	}
	p := Paired{Pairs: len(differences), RatioPairs: len(ratios), Resamples: resamples}
	p.Mean, p.Median = bootstrap(differences, resamples, seed)
	p.MeanRatio, p.MedianRatio = bootstrap(ratios, resamples, seed)
	return p, nil
}

// bootstrap estimates mean and median of x.
func bootstrap(x []float64, resamples int, seed uint64) (mean, median Estimate) {
	if len(x) == 0 {
		return Estimate{}, Estimate{}
	}
	rng := rand.New(rand.NewPCG(seed, 0x626f6f7473747261))
	x = slices.Clone(x)
	slices.Sort(x) // the order of pairs says nothing, and a sample of sorted values can be sorted by counting
	means, medians := make([]float64, resamples), make([]float64, resamples)
	drawn, sample := make([]int, len(x)), make([]float64, 0, len(x))
	for k := range resamples {
		clear(drawn)
		for range x {
			drawn[rng.IntN(len(x))]++
		}
		sample = sample[:0]
		for i, n := range drawn {
			for range n {
				sample = append(sample, x[i])
			}
		}
		means[k], medians[k] = average(sample), Quantile(sample, 0.5)
	}
	interval := func(value float64, of []float64) Estimate {
		slices.Sort(of)
		return Estimate{Value: value, Low: Quantile(of, (1-Level)/2), High: Quantile(of, (1+Level)/2)}
	}
	return interval(average(x), means), interval(Quantile(x, 0.5), medians)
}

func average(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// Spread is a value over seeds.
type Spread struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
}

// Over sums up values; those that are NaN are left out.
func Over(values ...float64) Spread {
	s := Spread{}
	for _, v := range values {
		if math.IsNaN(v) {
			continue
		}
		if s.Count == 0 {
			s.Min, s.Max = v, v
		}
		s.Count++
		s.Mean += v
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	}
	if s.Count > 0 {
		s.Mean /= float64(s.Count)
	}
	return s
}
