package online_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cadence-slo/cadence/predictor/online"
)

// The distribution is that of the latest ones, whatever came before.
func TestResidualIsOfTheLatest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20).Draw(t, "size")
		seen := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 80).Draw(t, "seen")
		r := online.NewResidual(size)
		for _, x := range seen {
			r.Observe(x)
			r.Observe(math.NaN())
		}
		latest := slices.Clone(seen[max(0, len(seen)-size):])
		slices.Sort(latest)
		if r.Len() != len(latest) {
			t.Fatalf("holds %d, want %d", r.Len(), len(latest))
		}
		n := float64(len(latest))
		for i, x := range latest {
			below, upTo := 0.0, 0.0
			for _, y := range latest {
				if y < x {
					below++
				}
				if y <= x {
					upTo++
				}
			}
			if got, want := r.CDF(x), (below+upTo)/2/n; math.Abs(got-want) > 1e-12 {
				t.Fatalf("CDF(%g) is %g, want %g, of %v", x, got, want, latest)
			}
			if got := r.Quantile((float64(i) + 0.5) / n); got != x {
				t.Fatalf("quantile %d of %v is %g", i, latest, got)
			}
		}
		if lo, hi := r.Quantile(0), r.Quantile(1); lo != latest[0] || hi != latest[len(latest)-1] {
			t.Fatalf("quantiles 0 and 1 are %g and %g of %v", lo, hi, latest)
		}
	})
}

// A CDF rises from 0 to 1, also before anything was seen.
func TestResidualCDFRises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := online.NewResidual(8)
		for _, x := range rapid.SliceOfN(rapid.Float64Range(-2, 2), 0, 12).Draw(t, "seen") {
			r.Observe(x)
		}
		before := 0.0
		for x := -6.0; x <= 6; x += 0.01 {
			p := r.CDF(x)
			if p < before-1e-12 || p > 1 {
				t.Fatalf("CDF(%g) is %g after %g", x, p, before)
			}
			before = p
		}
		if r.CDF(-9) != 0 || r.CDF(9) != 1 {
			t.Fatalf("CDF is %g far below and %g far above", r.CDF(-9), r.CDF(9))
		}
	})
}

func BenchmarkResidual(b *testing.B) {
	r := online.NewResidual(512)
	for i := range 1000 {
		r.Observe(math.Sin(float64(i)))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Observe(math.Sin(float64(i)))
		r.CDF(0.1)
	}
}
