package sample

import (
	"fmt"
	"math"
)

// peakTokens is the width of a block of a row: the largest logit of each block tells which ones a top-k can be in.
const peakTokens = 64

// findPeaks fills w.peaks and returns the id of the largest logit, the lowest of equals. It reads the row once.
func (w *Scratch) findPeaks(logits []float32) (int32, error) {
	if len(logits) == 0 {
		return 0, fmt.Errorf("%w: no values", ErrLogits)
	}
	w.peaks = w.peaks[:0]
	best := 0
	for from := 0; from < len(logits); from += peakTokens {
		peak, finite := peak(block(logits, from/peakTokens))
		if !finite {
			return 0, notFinite(logits, from)
		}
		if w.peaks = append(w.peaks, peak); peak > w.peaks[best] {
			best = len(w.peaks) - 1
		}
	}
	for i, l := range block(logits, best) {
		if l == w.peaks[best] {
			return int32(best*peakTokens + i), nil
		}
	}
	panic("sample: a block without its own largest logit")
}

func block(logits []float32, n int) []float32 {
	return logits[n*peakTokens : min((n+1)*peakTokens, len(logits))]
}

// peak returns the largest logit of a block and whether all of it are finite. It works on the bits, which order as the
// numbers do once those of the negative ones are turned over: no branch depends on what is in the row.
func peak(block []float32) (float32, bool) {
	top, size := int32(math.MinInt32), uint32(0)
	for _, l := range block {
		bits := math.Float32bits(l)
		size = max(size, bits&^(1<<31))
		top = max(top, ordered(int32(bits)))
	}
	return math.Float32frombits(uint32(ordered(top))), size < 0x7f800000
}

// ordered is its own inverse.
func ordered(bits int32) int32 { return bits ^ int32(uint32(bits>>31)>>1) }

func notFinite(logits []float32, from int) error {
	for i, l := range logits[from:] {
		if l-l != 0 { // NaN for NaN and for infinities
			return fmt.Errorf("%w: token %d has %v", ErrLogits, from+i, l)
		}
	}
	return ErrLogits
}

// topK returns the k first ids of the row by before, k < len(r.logits), rising. The k-th largest peak is a bound: k
// blocks have a logit that large, so that what is below it is not among the k first, and only the blocks that reach it
// are read again, k of them but for ties.
func (r *row) topK(k int) []int32 {
	kept := r.kept[:0]
	bound := float32(math.Inf(-1))
	if k < len(r.peaks) {
		p := row{Scratch: r.Scratch, logits: r.peaks, top: r.top}
		bound = r.peaks[p.last(r.all(len(r.peaks)), false, float64(k))]
	}
	for n, peak := range r.peaks {
		if peak < bound {
			continue
		}
		for i, l := range block(r.logits, n) {
			if l >= bound {
				kept = append(kept, int32(n*peakTokens+i))
			}
		}
	}
	return r.first(kept, k)
}
