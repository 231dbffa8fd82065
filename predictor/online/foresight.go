package online

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/length"
)

// Foresight is what was said of a request, as far as its end is compared with it. It can be used again.
type Foresight struct {
	predictor.Outlook
	place
	curve    []predictor.Knot
	age      time.Duration // when it was said
	budget   time.Duration // E2E, from its arrival; 0: none
	typical  float64       // simulated latency at the median length, ns, ≥ 1
	class    int32
	features [feature.Count]float32
}

// place is where a request stands in the calibration.
type place struct {
	group     conformal.Group
	location  float64 // of the residual, as the model has it; 0 without one
	supported bool    // by the model
	version   int     // of the groups and the model
}

// at is when the simulation had so many tokens, in ns from when it was asked.
func (f *Foresight) at(tokens float64) float64 {
	i, found := slices.BinarySearchFunc(f.curve, tokens, func(k predictor.Knot, tokens float64) int {
		return cmp.Compare(k.Tokens, tokens)
	})
	switch {
	case found || i == 0:
		return max(1, f.curve[i].At)
	case i == len(f.curve):
		return max(1, f.curve[i-1].At)
	}
	a, b := &f.curve[i-1], &f.curve[i]
	return max(1, a.At+(tokens-a.Tokens)/(b.Tokens-a.Tokens)*(b.At-a.At))
}

// median is the simulated latency at the median length by other lengths, in ns.
func (f *Foresight) median(l *length.Table) float64 {
	limit := int32(f.curve[len(f.curve)-1].Tokens)
	return f.at(l.Quantile(f.class, 0, limit, 0.5))
}

// How says how a request ended.
type How uint8

const (
	// Completed: the client has all of the answer.
	Completed How = iota
	// Dropped: we ended it, for a limit or a failure, which no bound would have covered.
	Dropped
	// Left: the client went before the end.
	Left
)

// Ending is how a request ended.
type Ending struct {
	How    How
	E2E    time.Duration // from its arrival
	Tokens int32         // of the answer, as far as it came
	Cut    bool          // its cap ended the answer
}

// tracked is a request that was admitted, and what became of it. It is owned by the list of open ones, then by the past, then by the pool.
type tracked struct {
	Foresight
	id          uint64
	ticket      conformal.Ticket
	since       time.Duration // when it was admitted
	explored    bool          // the rule would have refused it
	hopeless    bool          // so would any: it was expected to be late
	in          bool          // its score belongs to the margins
	overdue     bool          // its bound has passed, its end is not known
	lower       bool          // latency is a lower bound, and stays one
	latency     float64       // logarithm of the seconds from its admission, as far as it is known; +Inf of one that was dropped
	residual    float64       // log(latency / simulated latency at its length); NaN if that is not known
	prev, later *tracked      // in the order of admission, while it is open
}

// score is the logarithm of the latency by the simulated one, and by what the model makes of that.
func (t *tracked) score() (physics, model float64) {
	physics = t.latency - math.Log(t.typical/1e9)
	return physics, physics - t.location
}

// past is the latest rows that have ended, oldest first.
type past struct {
	ring []*tracked
	head int
	n    int
}

func (h *past) at(i int) *tracked { return h.ring[(h.head+i)%len(h.ring)] }

// push adds a row, and returns the one that makes room for it, or nil.
func (h *past) push(t *tracked) (old *tracked) {
	if h.n == len(h.ring) {
		old = h.pop()
	}
	h.ring[(h.head+h.n)%len(h.ring)] = t
	h.n++
	return old
}

// pop takes the oldest out.
func (h *past) pop() *tracked {
	t := h.ring[h.head]
	h.ring[h.head] = nil
	h.head = (h.head + 1) % len(h.ring)
	h.n--
	return t
}
