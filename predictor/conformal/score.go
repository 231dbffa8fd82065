package conformal

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrAlpha says that a level is outside (0, 1).
	ErrAlpha = errors.New("conformal: alpha outside (0, 1)")
	// ErrLevel says that there is no bound at this level: the rows are too few, or too few of them are finite.
	ErrLevel = errors.New("conformal: no bound at this level")
	// ErrValue says that a number cannot be what it is given for: a latency that is negative, a prediction that is not positive,
	// a score that is NaN, a weight that is not finite.
	ErrValue = errors.New("conformal: value out of range")
)

// Score is a nonconformity score: how much slower a row was than its prediction. Which one is used does not affect whether a bound
// holds, only how wide it is. The zero value is Ratio.
type Score uint8

const (
	// Ratio is log(y/ŷ): a bound is a multiple of the prediction. It means the same at both ends of a range of two decades.
	Ratio Score = iota
	// Absolute is y − ŷ, in seconds.
	Absolute
	// Scaled is (y − ŷ)/σ, with σ the predicted spread in seconds.
	Scaled
)

var scoreNames = [...]string{Ratio: "ratio", Absolute: "absolute", Scaled: "scaled"}

// String is the name that ParseScore reads.
func (s Score) String() string {
	if int(s) < len(scoreNames) {
		return scoreNames[s]
	}
	return fmt.Sprintf("score(%d)", uint8(s))
}

// ParseScore reads "ratio", "absolute" or "scaled"; else ErrValue.
func ParseScore(name string) (Score, error) {
	for s, n := range scoreNames {
		if n == name {
			return Score(s), nil
		}
	}
	return 0, fmt.Errorf("%w: score %q", ErrValue, name)
}

// Of is the score of a row that took y seconds and was predicted to take pred. scale is σ, in seconds; only Scaled reads it.
// Ratio needs y > 0 and pred > 0, the others y ≥ 0, Scaled scale > 0, all finite: else ErrValue.
func (s Score) Of(y, pred, scale float64) (float64, error) {
	if err := s.check(pred, scale); err != nil {
		return 0, err
	}
	if !(y >= 0) || math.IsInf(y, 1) || (s == Ratio && y == 0) {
		return 0, ErrValue
	}
	switch s {
	case Absolute:
		return y - pred, nil
	case Scaled:
		return (y - pred) / scale, nil
	default:
		return math.Log(y / pred), nil
	}
}

// Bound is the latency in seconds whose score is q, the inverse of Of; not below 0, +Inf for q = +Inf. pred and scale are as for
// Of; q must not be NaN: else ErrValue.
func (s Score) Bound(pred, scale, q float64) (float64, error) {
	if err := s.check(pred, scale); err != nil {
		return 0, err
	}
	if math.IsNaN(q) {
		return 0, ErrValue
	}
	switch s {
	case Absolute:
		return max(pred+q, 0), nil
	case Scaled:
		return max(pred+q*scale, 0), nil
	default:
		return pred * math.Exp(q), nil
	}
}

// check has no message of its own: it stands on the path of every request, and a formatted error allocates.
func (s Score) check(pred, scale float64) error {
	switch {
	case math.IsNaN(pred) || math.IsInf(pred, 0):
		return ErrValue
	case s == Ratio && pred <= 0:
		return ErrValue
	case s == Scaled && (!(scale > 0) || math.IsInf(scale, 1)):
		return ErrValue
	case s > Scaled:
		return ErrValue
	}
	return nil
}

// checkAlpha also refuses NaN.
func checkAlpha(alpha float64) error {
	if !(alpha > 0 && alpha < 1) {
		return fmt.Errorf("%w: %v", ErrAlpha, alpha)
	}
	return nil
}

// checkScore lets +Inf pass: a row that never completes is a miss of any bound.
func checkScore(s float64) error {
	if math.IsNaN(s) || math.IsInf(s, -1) {
		return ErrValue
	}
	return nil
}
