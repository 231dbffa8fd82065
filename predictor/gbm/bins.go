package gbm

import "slices"

// maxSketch is how many rows the edges of a feature's bins are taken from.
const maxSketch = 1 << 17

// binned holds features as bin numbers. A value lies in bin b iff edges[b-1] < value ≤ edges[b].
type binned struct {
	features int
	bins     []uint8     // row-major, rows × features: a leaf visits all features of scattered rows
	edges    [][]float32 // per feature, rising, at most Bins−1
}

func newBinned(d Data, bins int) binned {
	rows, features := d.Rows(), len(d.Columns)
	b := binned{features: features, bins: make([]uint8, rows*features), edges: make([][]float32, features)}
	sample := make([]float32, 0, min(rows, maxSketch))
	for f, column := range d.Columns {
		sample = sample[:0]
		stride := (rows + maxSketch - 1) / maxSketch
		for row := 0; row < rows; row += stride {
			sample = append(sample, column[row])
		}
		slices.Sort(sample)
		edges := binEdges(sample, bins)
		b.edges[f] = edges
		for row, v := range column {
			b.bins[row*features+f] = binOf(edges, v)
		}
	}
	return b
}

// binEdges cuts sorted values into at most bins bins: one per distinct value if they fit, else bins of about equal count in
// which equal values stay together. An edge lies midway between its neighbours.
func binEdges(sorted []float32, bins int) []float32 {
	distinct := 1
	for i := 1; i < len(sorted); i++ {
		if sorted[i] != sorted[i-1] {
			distinct++
		}
	}
	edges := make([]float32, 0, min(distinct, bins)-1)
	first := 0
	for i := 1; i < len(sorted) && len(edges) < bins-1; i++ {
		if sorted[i] == sorted[i-1] {
			continue
		}
		// The share of a bin is taken of what is left, so that one frequent value costs the others no bins.
		if distinct <= bins || (i-first)*(bins-len(edges)) >= len(sorted)-first {
			edges = append(edges, midway(sorted[i-1], sorted[i]))
			first = i
		}
	}
	return edges
}

// midway returns a value in [a, b) for a < b.
func midway(a, b float32) float32 {
	if mid := float32((float64(a) + float64(b)) / 2); mid < b {
		return mid
	}
	return a
}

// binOf returns the number of edges below v.
func binOf(edges []float32, v float32) uint8 {
	low, high := 0, len(edges)
	for low < high {
		mid := (low + high) / 2
		if edges[mid] < v {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return uint8(low)
}
