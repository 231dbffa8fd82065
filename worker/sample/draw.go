package sample

import (
	"math"
	"slices"
)

// Scratch is working memory for rows of one vocabulary. The zero value is ready; it grows to 16 bytes a token, and to 21
// with filters.
type Scratch struct {
	kept, some []int32 // kept: len is of what the last draw chose from
	weight     []float64
	peaks      []float32 // of the blocks of the row
	buckets    [buckets]float64
	was        []scored // before penalties
	ids        []int32  // to ask a filter about, with its answers
	ok         []bool
	ranking    ranking
}

type scored struct {
	id    int32
	logit float32
}

// grow makes room for a row of n.
func (w *Scratch) grow(n int) {
	if len(w.weight) < n {
		w.weight, w.kept, w.some = make([]float64, n), make([]int32, n), make([]int32, n)
	}
}

// all returns the first n ids, in memory for draw.
func (w *Scratch) all(n int) []int32 {
	kept := w.kept[:n]
	for id := range kept {
		kept[id] = int32(id)
	}
	return kept
}

// stream is the source of a position's random numbers, one for each token: the same for the same seed and position,
// everywhere.
type stream uint64

func newStream(seed uint64, pos int32) stream {
	return stream(mix(mix(seed) + uint64(uint32(pos))*0x9e3779b97f4a7c15))
}

// uniform returns the number of a token, in (0, 1].
func (s stream) uniform(id int32) float64 {
	return float64(mix(uint64(s)+uint64(uint32(id))*0xd1342543de82ef95)>>11+1) / (1 << 53)
}

// mix is SplitMix64's output function (Stafford's variant 13): a bijection that scatters neighbours.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// draw chooses among those of kept, memory of w, that the parameters keep; nil is the whole row, whose peaks are in w.
// best is the most probable.
func (s *Sampler) draw(logits []float32, kept []int32, best, pos int32, w *Scratch) int32 {
	r := row{Scratch: w, logits: logits, top: float64(logits[best]), inv: 1 / float64(s.p.Temperature)}
	k := int(s.p.TopK)
	switch {
	case kept == nil && k > 0 && k < len(logits):
		kept = r.topK(k)
	case kept == nil:
		kept = w.all(len(logits))
	case k > 0 && k < len(kept):
		kept = r.first(kept, k)
	}
	total := 0.0 // for top-p
	for _, id := range kept {
		p := exp((float64(logits[id]) - r.top) * r.inv)
		w.weight[id] = p
		total += p
	}
	if p := float64(s.p.TopP); p > 0 && p < 1 {
		kept = r.until(kept, r.last(kept, true, p*total))
	}
	if floor := float64(s.p.MinP); floor > 0 {
		kept = slices.DeleteFunc(kept, func(id int32) bool { return w.weight[id] < floor && id != best })
	}
	w.kept = kept
	return r.race(kept, newStream(s.p.Seed, pos))
}

// row is a row of logits with the weights of its tokens, by id: proportional to their probabilities, 1 for the most
// probable.
type row struct {
	*Scratch
	logits   []float32
	top, inv float64
}

// before reports whether a comes before b by falling probability.
func (r *row) before(a, b int32) bool {
	x, y := r.logits[a], r.logits[b]
	return x > y || x == y && a < b
}

// first drops all but the first k of ids.
func (r *row) first(ids []int32, k int) []int32 { return r.until(ids, r.last(ids, false, float64(k))) }

// until drops the ids that come after last.
func (r *row) until(ids []int32, last int32) []int32 {
	l, n := r.logits[last], 0
	for _, id := range ids {
		if x := r.logits[id]; x > l || x == l && id <= last {
			ids[n] = id
			n++
		}
	}
	return ids[:n]
}

const (
	buckets = 2048
	// few is how many ids are not worth a histogram.
	few = 2048
)

// last returns the member of ids, in the order of before, with which the sum of weights (of 1 each if not weighted)
// reaches target; the last of all if none does. It leaves ids as they are. O(len(ids)) expected: a histogram over the
// logits finds the bucket that the member is in, quickselect finds it there.
func (r *row) last(ids []int32, weighted bool, target float64) int32 {
	if len(ids) <= few {
		return r.quickselect(append(r.some[:0], ids...), weighted, target)
	}
	low := r.logits[ids[0]]
	for _, id := range ids {
		low = min(low, r.logits[id])
	}
	scale := (buckets - 1) / max(r.top-float64(low), 1e-30)
	bucket := func(l float32) int { return int((r.top - float64(l)) * scale) }
	clear(r.buckets[:])
	for _, id := range ids {
		if weighted {
			r.buckets[bucket(r.logits[id])] += r.weight[id]
		} else {
			r.buckets[bucket(r.logits[id])]++
		}
	}
	at, final := 0, bucket(low)
	for at < final && r.buckets[at] < target {
		target -= r.buckets[at]
		at++
	}
	some := r.some[:0]
	for _, id := range ids {
		if bucket(r.logits[id]) == at {
			some = append(some, id)
		}
	}
	return r.quickselect(some, weighted, target)
}

// quickselect is last by partition, O(len(ids)) expected. It reorders ids.
func (r *row) quickselect(ids []int32, weighted bool, target float64) int32 {
	for {
		pivot := r.median(ids[0], ids[len(ids)/2], ids[len(ids)-1])
		m, sum := 0, 0.0 // ids[:m] come before the pivot, with that sum
		one := 1.0
		for k, id := range ids {
			if r.before(id, pivot) {
				ids[k], ids[m] = ids[m], id
				m++
				if weighted {
					one = r.weight[id]
				}
				sum += one
			}
		}
		if sum >= target {
			ids = ids[:m]
			continue
		}
		at := m + slices.Index(ids[m:], pivot)
		ids[m], ids[at] = ids[at], ids[m]
		if weighted {
			one = r.weight[pivot]
		}
		if sum += one; sum >= target || m+1 == len(ids) {
			return pivot
		}
		target -= sum
		ids = ids[m+1:]
	}
}

func (r *row) median(a, b, c int32) int32 {
	if r.before(b, a) {
		a, b = b, a
	}
	if r.before(c, b) {
		if b = c; r.before(b, a) {
			b = a
		}
	}
	return b
}

// race draws one of ids with a probability proportional to its weight: each arrives after an exponentially distributed
// time of that rate, the first one wins. Unlike a walk along the sum of weights, where a small change of any of them
// moves all that follow, rounding changes the winner only where two arrive as good as together.
func (r *row) race(ids []int32, s stream) int32 {
	winner, first := ids[0], math.Inf(1)
	for _, id := range ids {
		u, w := s.uniform(id), r.weight[id]
		// It arrives at -ln(u)/w, which is (1-u)/w at least: the logarithm is seldom needed.
		if 1-u < first*w {
			if t := -math.Log(u) / w; t < first {
				winner, first = id, t
			}
		}
	}
	return winner
}

// table[j] is 2^(j/64).
var table = func() (t [64]float64) {
	for j := range t {
		t[j] = math.Exp2(float64(j) / 64)
	}
	return
}()

// exp returns e^x for x ≤ 0 to 4e-11 of its value, the same on every architecture (math.Exp is not; the conversions
// forbid fused multiply-add) and in half of its time. Below e^-50 it returns 0: 2¹⁸ such weights beside one of 1 do
// not change a float64.
func exp(x float64) float64 {
	if x < -50 {
		return 0
	}
	k := int(float64(x*(64/math.Ln2)) - 0.5)
	d := x - float64(float64(k)*(math.Ln2/64))
	p := 1 + float64(d*(1+float64(d*(0.5+float64(d*(1.0/6))))))
	return math.Float64frombits(uint64(1023+k>>6)<<52) * (table[k&63] * p)
}
