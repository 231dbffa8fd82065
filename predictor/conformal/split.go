package conformal

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Rank is the finite-sample rank ceil((n+1)(1−α)) of split conformal prediction: of n exchangeable scores, the one with this rank in
// ascending order (1 … n) is exceeded by a further one with probability ≤ α. ok is false if it is beyond n, or if alpha is outside
// (0, 1): then no order statistic of n rows is a bound at this level.
func Rank(n int, alpha float64) (k int, ok bool) {
	if n < 0 || !(alpha > 0 && alpha < 1) {
		return 0, false
	}
	k = ceil(float64(n+1) * (1 - alpha))
	return k, k <= n
}

// MinRows is the smallest n that a bound at alpha needs, ceil(1/α)−1: 99 for 0.01. It is 0 if alpha is outside (0, 1).
func MinRows(alpha float64) int {
	if !(alpha > 0 && alpha < 1) {
		return 0
	}
	return sort.Search(int(min(1/alpha+2, math.MaxInt32)), func(n int) bool { _, ok := Rank(n, alpha); return ok })
}

// ceil takes what is within a few roundings of an integer for it: 100·(1−0.01) must not be 100 because of its last bit.
func ceil(x float64) int {
	if r := math.Round(x); math.Abs(x-r) <= 4*0x1p-52*math.Abs(x) {
		return int(r)
	}
	return int(math.Ceil(x))
}

// Split is split conformal calibration: quantiles of the scores of held-out rows. It does not change.
type Split struct {
	scores []float64 // ascending
}

// NewSplit copies scores, in any order. +Inf stands for a row that missed any bound; NaN and −Inf are ErrValue. No scores are no
// error: there is no bound at any level then.
func NewSplit(scores []float64) (*Split, error) {
	for i, s := range scores {
		if err := checkScore(s); err != nil {
			return nil, fmt.Errorf("%w: score %d is %v", err, i, s)
		}
	}
	s := &Split{scores: slices.Clone(scores)}
	slices.Sort(s.scores)
	return s, nil
}

// Len is the number of rows.
func (s *Split) Len() int { return len(s.scores) }

// Scores is a copy in ascending order, what NewSplit takes.
func (s *Split) Scores() []float64 { return slices.Clone(s.scores) }

// Quantile is the score that a further exchangeable row exceeds with probability ≤ alpha. It is finite, and does not grow with
// alpha. ErrAlpha; ErrLevel if the rows, or those of them that are finite, are fewer than alpha needs.
func (s *Split) Quantile(alpha float64) (float64, error) {
	if err := checkAlpha(alpha); err != nil {
		return 0, err
	}
	k, ok := Rank(len(s.scores), alpha)
	if !ok {
		return 0, ErrLevel
	}
	return finite(s.scores[max(k, 1)-1])
}

func finite(q float64) (float64, error) {
	if math.IsInf(q, 1) {
		return 0, ErrLevel
	}
	return q, nil
}
