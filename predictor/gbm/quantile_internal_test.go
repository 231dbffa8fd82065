package gbm

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestQuantile holds the selection against sorting, and its loss against that of every other value.
func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) weighted {
			return weighted{float64(rapid.IntRange(-20, 20).Draw(t, "value")), float64(rapid.IntRange(1, 5).Draw(t, "weight"))}
		}), 1, 300).Draw(t, "points")
		level := rapid.Float64Range(0.001, 0.999).Draw(t, "level")
		sorted := slices.Clone(points)
		slices.SortFunc(sorted, func(a, b weighted) int { return int(a.value - b.value) })
		var total, sum float64
		for _, p := range points {
			total += p.weight
		}
		want := math.NaN()
		for _, p := range sorted {
			if sum += p.weight; sum >= level*total {
				want = p.value
				break
			}
		}
		got := quantile(slices.Clone(points), level)
		loss := func(at float64) (sum float64) {
			for _, p := range points {
				sum += p.weight * Pinball(level, p.value, at)
			}
			return sum
		}
		if got != want {
			t.Fatalf("%v, sorting says %v", got, want)
		}
		for _, p := range points {
			if loss(p.value) < loss(got)-1e-9 {
				t.Fatalf("loss %v at %v, %v at %v", loss(got), got, loss(p.value), p.value)
			}
		}
	})
}

// TestBins: every value has the bin that its edges say, few values have one each, and bins of many are about equal.
func TestBins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float32Range(-1e38, 1e38), 1, 500).Draw(t, "values")
		bins := rapid.IntRange(2, maxBins).Draw(t, "bins")
		b := newBinned(Data{Columns: [][]float32{values}, Labels: make([]float64, len(values))}, bins)
		edges := b.edges[0]
		if len(edges) >= bins {
			t.Fatalf("%d edges for %d bins", len(edges), bins)
		}
		count := make([]int, len(edges)+1)
		for row, v := range values {
			bin := int(b.bins[row])
			count[bin]++
			if bin > 0 && v <= edges[bin-1] || bin < len(edges) && v > edges[bin] {
				t.Fatalf("%v in bin %d of %v", v, bin, edges)
			}
		}
		distinct := slices.Clone(values)
		slices.Sort(distinct)
		distinct = slices.Compact(distinct)
		if len(distinct) <= bins && len(edges) != len(distinct)-1 {
			t.Fatalf("%d edges between %d values", len(edges), len(distinct))
		}
		if slices.Contains(count, 0) {
			t.Fatalf("an empty bin: %v", count)
		}
		if len(distinct) == len(values) && slices.Max(count) > (len(values)+bins-1)/bins {
			t.Fatalf("uneven bins: %v", count)
		}
	})
}
