package gbm

import (
	"errors"
	"fmt"
)

// ErrParams is the error of parameters outside their ranges.
var ErrParams = errors.New("gbm: parameters")

const (
	maxBins   = 255
	maxLeaves = 1024 // two nodes per leaf, counted in 16 bits
	maxRounds = 1 << 16
)

// Params says what to fit and how. The zero value is not valid; start from [DefaultParams].
type Params struct {
	// Level is the quantile to fit, inside (0, 1).
	Level float64
	// Rounds is the largest number of trees, [1, 65536].
	Rounds int
	// Leaves is the largest number of leaves of a tree, [2, 1024].
	Leaves int
	// MinRows is the least number of training rows in a leaf, ≥ 1.
	MinRows int
	// Bins is the largest number of bins of a feature, [2, 255].
	Bins int
	// L2 ≥ 0 is weight added to every leaf with a gradient of zero: it damps gains, and leaf values by W/(W+L2) where W is
	// the weight of the rows in the leaf.
	L2 float64
	// LearningRate is the share of each tree's values that is added, (0, 1].
	LearningRate float64
	// RowFraction and FeatureFraction are the shares drawn anew, without replacement, for each tree, (0, 1]; 1 draws none.
	RowFraction, FeatureFraction float64
	// Monotone has an entry per feature: +1 never falls, −1 never rises, 0 free. Nil is 0 for all.
	Monotone []int8
	// Patience is after how many rounds without a better validation loss training ends; the model keeps the trees up to
	// the best round. 0 keeps them all, whether there is validation data or not.
	Patience int
}

// DefaultParams returns parameters for a quantile of some thousand to some hundred thousand rows.
func DefaultParams(level float64) Params {
	return Params{
		Level: level, Rounds: 200, Leaves: 31, MinRows: 20, Bins: maxBins,
		LearningRate: 0.1, RowFraction: 1, FeatureFraction: 1,
	}
}

// Check returns ErrParams for data with this many features, or nil.
func (p Params) Check(features int) error {
	for _, c := range []struct {
		ok   bool
		what string
		got  any
	}{
		{p.Level > 0 && p.Level < 1, "level outside (0, 1)", p.Level},
		{p.Rounds >= 1 && p.Rounds <= maxRounds, "rounds outside [1, 65536]", p.Rounds},
		{p.Leaves >= 2 && p.Leaves <= maxLeaves, "leaves outside [2, 1024]", p.Leaves},
		{p.MinRows >= 1, "rows per leaf below 1", p.MinRows},
		{p.Bins >= 2 && p.Bins <= maxBins, "bins outside [2, 255]", p.Bins},
		{p.L2 >= 0 && finite(p.L2), "L2 negative or not finite", p.L2},
		{p.LearningRate > 0 && p.LearningRate <= 1, "learning rate outside (0, 1]", p.LearningRate},
		{p.RowFraction > 0 && p.RowFraction <= 1, "row fraction outside (0, 1]", p.RowFraction},
		{p.FeatureFraction > 0 && p.FeatureFraction <= 1, "feature fraction outside (0, 1]", p.FeatureFraction},
		{p.Monotone == nil || len(p.Monotone) == features, "monotone constraints of another number of features", len(p.Monotone)},
		{p.Patience >= 0, "patience negative", p.Patience},
	} {
		if !c.ok {
			return fmt.Errorf("%w: %s: %v", ErrParams, c.what, c.got)
		}
	}
	for feature, sign := range p.Monotone {
		if sign < -1 || sign > 1 {
			return fmt.Errorf("%w: monotone constraint %d of feature %d", ErrParams, sign, feature)
		}
	}
	return nil
}

// sampled says whether two rounds of the same state can differ.
func (p Params) sampled() bool { return p.RowFraction < 1 || p.FeatureFraction < 1 }

func (p Params) sign(feature int) int8 {
	if p.Monotone == nil {
		return 0
	}
	return p.Monotone[feature]
}
