package conformal

import (
	"fmt"
	"math"
	"sort"
)

// Side says in which direction coverage has left its level.
type Side uint8

const (
	// TooManyMisses: bounds do not hold any more.
	TooManyMisses Side = iota
	// TooFewMisses: bounds hold by more than they promise, and refuse for nothing.
	TooFewMisses
)

// String is the side's name.
func (s Side) String() string {
	if s == TooFewMisses {
		return "too_few_misses"
	}
	return "too_many_misses"
}

// Alarm says that coverage has left its level.
type Alarm struct {
	Side Side
	// Rows since the statistic was last zero: the estimate of when the change came.
	Rows int
	// Misses among those rows.
	Misses int
}

// CUSUM watches the misses of issued bounds with two one-sided Bernoulli CUSUMs (Reynolds and Stoumbos 1999), for the share α·Factor
// and for α/Factor. Their reference values are rounded to 1/m, so that a statistic is a Markov chain on whole numbers and its average
// run length in control, the mean number of rows from the start to a false alarm, is known exactly, if rows are independent and miss
// with probability α. Rows that follow a quantile which learns from them miss more evenly than that, and raise fewer false alarms.
// After an alarm the side that raised it starts anew.
type CUSUM struct {
	alpha, factor, target float64
	up, down              side
}

type side struct {
	miss, hit int // what a row adds
	limit     int // an alarm at or above
	arl       float64
	at        int
	rows      int // since at was zero
	misses    int
}

// NewCUSUM makes both sides with the lowest limits whose average run length in control is at least arl rows each, 1 ≤ arl ≤ 10⁷; an
// alarm of either side is then false about every arl/2 rows. factor ≥ 1.25 is the ratio of shares that is to be found, with
// alpha·factor < 1; 2 is usual. alpha ≥ 0.001: the chain grows with 1/alpha², and is solved here. ErrAlpha, ErrValue.
func NewCUSUM(alpha, factor, arl float64) (*CUSUM, error) {
	if err := checkAlpha(alpha); err != nil {
		return nil, err
	}
	if alpha < 0.001 || !(factor >= 1.25) || alpha*factor >= 1 || !(arl >= 1 && arl <= 1e7) {
		return nil, fmt.Errorf("%w: alpha %v, factor %v, run length %v", ErrValue, alpha, factor, arl)
	}
	c := &CUSUM{alpha: alpha, factor: factor, target: arl}
	m := steps(alpha, alpha*factor)
	c.up = side{miss: m - 1, hit: -1}
	m = steps(alpha, alpha/factor)
	c.down = side{miss: 1 - m, hit: 1}
	c.up.setLimit(arl, func(limit int) float64 { return upARL(alpha, c.up.miss, limit) })
	c.down.setLimit(arl, func(limit int) float64 { return downARL(alpha, -c.down.miss, limit) })
	return c, nil
}

// steps is the whole number of hits that outweigh a miss, m ≥ 2: the likelihood ratio of p1 against p0 says how many.
func steps(p0, p1 float64) int {
	hit := math.Log((1 - p1) / (1 - p0))
	miss := math.Log(p1 / p0)
	return max(2, int(math.Round((hit-miss)/hit)))
}

func (s *side) setLimit(target float64, arl func(limit int) float64) {
	high := 1
	for arl(high) < target {
		high *= 2
	}
	s.limit = sort.Search(high, func(l int) bool { return l >= 1 && arl(l) >= target })
	s.arl = arl(s.limit)
}

// upARL solves L_j = 1 + p·L_{j+up} + (1−p)·L_{max(j−1,0)}, L_j = 0 from limit on, for L_0: from above, as
// L_j = a_j + (1−c_j)·L_{j−1}.
// Only positive numbers are added, so that nothing cancels however long the run.
func upARL(p float64, up, limit int) float64 {
	a, c := make([]float64, limit), make([]float64, limit)
	for j := limit - 1; ; j-- {
		// L_{j+up} = x + (1−z)·L_j
		x, z := 0.0, 1.0
		if j+up < limit {
			z = 0
			for k := j + 1; k <= j+up; k++ {
				x, z = a[k]+(1-c[k])*x, c[k]+(1-c[k])*z
			}
		}
		if j == 0 {
			return (1 + p*x) / (p * z)
		}
		d := 1 - p + p*z
		a[j], c[j] = (1+p*x)/d, p*z/d
	}
}

// downARL solves L_j = 1 + (1−p)·L_{j+1} + p·L_{max(j−down,0)}, L_limit = 0, for L_0: from below, as L_j = L_0 − u_j.
func downARL(p float64, down, limit int) float64 {
	u := make([]float64, limit+1)
	for j := range limit {
		u[j+1] = u[j] + (1+p*(u[j]-u[max(j-down, 0)]))/(1-p)
	}
	return u[limit]
}

// ARL is the average run length in control of each side, in rows: at least what NewCUSUM was asked for.
func (c *CUSUM) ARL() (up, down float64) { return c.up.arl, c.down.arl }

// Observe counts a row that was issued a bound; censored rows are not given. ok is true if it raises an alarm.
func (c *CUSUM) Observe(miss bool) (alarm Alarm, ok bool) {
	up, down := c.up.observe(miss), c.down.observe(miss)
	switch {
	case up:
		return c.up.restart(TooManyMisses), true
	case down:
		return c.down.restart(TooFewMisses), true
	}
	return Alarm{}, false
}

func (s *side) observe(miss bool) bool {
	s.rows++
	if miss {
		s.misses++
		s.at += s.miss
	} else {
		s.at += s.hit
	}
	if s.at <= 0 {
		s.at, s.rows, s.misses = 0, 0, 0
	}
	return s.at >= s.limit
}

func (s *side) restart(which Side) Alarm {
	a := Alarm{Side: which, Rows: s.rows, Misses: s.misses}
	s.at, s.rows, s.misses = 0, 0, 0
	return a
}

// CUSUMState is the state of a CUSUM for an artifact.
type CUSUMState struct {
	Alpha  float64 `json:"alpha"`
	Factor float64 `json:"factor"`
	ARL    float64 `json:"arl"` // as asked for
	// At, rows and misses of the two sides, TooManyMisses first.
	At     [2]int `json:"at"`
	Rows   [2]int `json:"rows"`
	Misses [2]int `json:"misses"`
}

// Export is a copy of the state.
func (c *CUSUM) Export() CUSUMState {
	return CUSUMState{Alpha: c.alpha, Factor: c.factor, ARL: c.target, At: [2]int{c.up.at, c.down.at},
		Rows: [2]int{c.up.rows, c.down.rows}, Misses: [2]int{c.up.misses, c.down.misses}}
}

// ImportCUSUM makes the CUSUM that Export was called on. ErrState.
func ImportCUSUM(s CUSUMState) (*CUSUM, error) {
	c, err := NewCUSUM(s.Alpha, s.Factor, s.ARL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	for i, w := range []*side{&c.up, &c.down} {
		if s.At[i] < 0 || s.At[i] >= w.limit || s.Misses[i] < 0 || s.Rows[i] < s.Misses[i] {
			return nil, fmt.Errorf("%w: %+v", ErrState, s)
		}
		w.at, w.rows, w.misses = s.At[i], s.Rows[i], s.Misses[i]
	}
	return c, nil
}
