package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The first k of rows of many blocks, with few and many ties, are those that sorting finds.
func TestTopKIsWhatSortingFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 5*peakTokens), rapid.IntRange(few-1, 2*few)).Draw(t, "vocab")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		distinct := rapid.SampledFrom([]float64{1, 3, 1000, 1e9}).Draw(t, "distinct")
		scale := rapid.SampledFrom([]float64{1e-20, 1, 1e30}).Draw(t, "scale")
		logits, order := make([]float32, n), make([]int32, n)
		for i := range logits {
			logits[i], order[i] = float32((math.Floor(rng.Float64()*distinct)/distinct-0.5)*scale), int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
		var w Scratch
		w.grow(n)
		best, err := w.findPeaks(logits)
		if err != nil || best != order[0] {
			t.Fatalf("best is %d, %v, want %d", best, err, order[0])
		}
		r := row{Scratch: &w, logits: logits, top: float64(logits[best])}
		for _, k := range []int{1, 40, rng.IntN(n)} {
			if k == 0 || k >= n {
				continue
			}
			want := slices.Sorted(slices.Values(order[:k]))
			if got := r.topK(k); !slices.Equal(got, want) {
				t.Fatalf("first %d of %d: %v, want %v", k, n, got, want)
			}
		}
	})
}

// Zeros of both signs are equal, and the order of bits is the order of numbers.
func TestPeakOrdersAsNumbersDo(t *testing.T) {
	negative := float32(math.Copysign(0, -1))
	for _, block := range [][]float32{
		{0, negative}, {negative, 0}, {-1, negative}, {-math.MaxFloat32, -1}, {math.MaxFloat32, 1e-45}, {-1e-45, -1e-44},
	} {
		if got, finite := peak(block); got != slices.Max(block) || !finite {
			t.Errorf("%v: %v, finite %v", block, got, finite)
		}
	}
	var w Scratch
	if best, err := w.findPeaks([]float32{-1, negative, 0}); err != nil || best != 1 {
		t.Errorf("best is %d, %v", best, err)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, finite := peak([]float32{1, float32(bad), 2}); finite {
			t.Errorf("%v is finite", bad)
		}
	}
}
