package online

import (
	"math"
	"slices"
)

// Residual is the distribution of the latest log(latency / simulated latency at the answer's length). It implements
// predictor.Residual: before there are any, a prior that is as wide as a factor of 2 either way.
type Residual struct {
	ring   []float64 // in order of arrival
	sorted []float64
	next   int
}

// prior is half the width of a uniform distribution around 0.
const prior = math.Ln2

// NewResidual keeps the latest size of them, ≥ 1.
func NewResidual(size int) *Residual {
	return &Residual{ring: make([]float64, 0, size), sorted: make([]float64, 0, size)}
}

// Len is how many it holds.
func (r *Residual) Len() int { return len(r.ring) }

// Observe adds one, in the place of the oldest if there are enough. What is not a finite number changes nothing.
func (r *Residual) Observe(x float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return
	}
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, x)
	} else {
		i, _ := slices.BinarySearch(r.sorted, r.ring[r.next])
		r.sorted = slices.Delete(r.sorted, i, i+1)
		r.ring[r.next] = x
	}
	if r.next++; r.next == cap(r.ring) {
		r.next = 0
	}
	i, _ := slices.BinarySearch(r.sorted, x)
	r.sorted = slices.Insert(r.sorted, i, x)
}

// CDF is the probability of at most x. Between two that were seen it is linear; half of one's weight lies outside on either side,
// spread over a factor of e.
func (r *Residual) CDF(x float64) float64 {
	n := len(r.sorted)
	if n == 0 {
		return min(max(0, (x+prior)/(2*prior)), 1)
	}
	i, found := slices.BinarySearch(r.sorted, x)
	if found {
		j := i
		for j < n && r.sorted[j] == x {
			j++
		}
		return float64(i+j) / float64(2*n)
	}
	if i == 0 || i == n {
		const reach = 1.0 // of the half that lies outside
		out := 0.5 / float64(n)
		if i == 0 {
			return out * max(0, 1-(r.sorted[0]-x)/reach)
		}
		return 1 - out*max(0, 1-(x-r.sorted[n-1])/reach)
	}
	a, b := r.sorted[i-1], r.sorted[i]
	return (float64(i) - 0.5 + (x-a)/(b-a)) / float64(n)
}

// Quantile is the least x of those that were seen with CDF(x) ≥ p, or the greatest if there is none; of the prior its own. p is in
// [0, 1].
func (r *Residual) Quantile(p float64) float64 {
	n := len(r.sorted)
	if n == 0 {
		return (2*min(max(0, p), 1) - 1) * prior
	}
	return r.sorted[min(max(0, int(math.Ceil(p*float64(n)-0.5-1e-9))), n-1)]
}

// shifted is a distribution moved by a location.
type shifted struct {
	of *Residual
	by float64
}

func (s *shifted) CDF(x float64) float64      { return s.of.CDF(x - s.by) }
func (s *shifted) Quantile(p float64) float64 { return s.by + s.of.Quantile(p) }
