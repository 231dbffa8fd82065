package conformal

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// WeightedRow is a score and its weight, 1/propensity: how many rows it stands for, of those that were not observed too.
type WeightedRow struct {
	Score  float64
	Weight float64 // finite, ≥ 0; a row of weight 0 does not count
}

// Weighted is split conformal calibration under selection with known propensities (Tibshirani, Barber, Candès, Ramdas 2019, eq. 7):
// the quantile of the weighted scores, with the test row's own mass at +∞. It does not change.
type Weighted struct {
	scores []float64 // ascending
	cum    []float64 // cum[i] is the weight of scores[:i+1]
	square float64   // Σw²
}

// NewWeighted copies rows, in any order. A score that is NaN or −Inf, and a weight that is negative or not finite, is ErrValue.
func NewWeighted(rows []WeightedRow) (*Weighted, error) {
	rows = slices.Clone(rows)
	for i, r := range rows {
		if checkScore(r.Score) != nil || !(r.Weight >= 0) || math.IsInf(r.Weight, 1) {
			return nil, fmt.Errorf("%w: row %d is %+v", ErrValue, i, r)
		}
	}
	// By weight too, so that the order in which rows come cannot change the last bit of a sum.
	slices.SortFunc(rows, func(a, b WeightedRow) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Weight, b.Weight))
	})
	w := &Weighted{}
	total := 0.0
	for _, r := range rows {
		if r.Weight == 0 {
			continue
		}
		total += r.Weight
		w.square += r.Weight * r.Weight
		w.scores = append(w.scores, r.Score)
		w.cum = append(w.cum, total)
	}
	if math.IsInf(total, 1) || math.IsInf(w.square, 1) {
		return nil, fmt.Errorf("%w: the weights overflow", ErrValue)
	}
	return w, nil
}

// Len is the number of rows with weight.
func (w *Weighted) Len() int { return len(w.scores) }

// EffectiveRows is (Σw)²/Σw² over the rows and a test row of weight test: how many equal rows they are worth. The test row adds at
// most one.
func (w *Weighted) EffectiveRows(test float64) float64 {
	sum := w.total() + test
	if sum == 0 {
		return 0
	}
	return sum * sum / (w.square + test*test)
}

// Quantile is the score that a further row of weight test, 1/propensity, exceeds with probability ≤ alpha. It does not grow with
// alpha. ErrAlpha; ErrValue if test is not positive and finite; ErrLevel if the rows with the test row are worth fewer than 1/alpha
// equal ones, or if the rows below +∞ lack the mass. With equal weights it is Split's, whose own condition is the same.
func (w *Weighted) Quantile(alpha, test float64) (float64, error) {
	if err := checkAlpha(alpha); err != nil {
		return 0, err
	}
	if !(test > 0) || math.IsInf(test, 1) {
		return 0, fmt.Errorf("%w: test weight %v", ErrValue, test)
	}
	if w.EffectiveRows(test) < (1-weightSlack)/alpha {
		return 0, ErrLevel
	}
	need := (w.total() + test) * (1 - alpha) * (1 - weightSlack)
	i := sort.SearchFloat64s(w.cum, need)
	if i == len(w.cum) {
		return 0, ErrLevel
	}
	return finite(w.scores[i])
}

// weightSlack is what sums of weights may be wrong by, relatively, so that equal weights such as 1/0.3 still meet a rank exactly.
const weightSlack = 1e-12

func (w *Weighted) total() float64 {
	if len(w.cum) == 0 {
		return 0
	}
	return w.cum[len(w.cum)-1]
}
