package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/gbm"
)

// Bounder says what a latency stays below with probability 1−alpha, in seconds, > 0; ok is false where it claims nothing. It sees what was
// known at the arrival, and does not change it.
type Bounder interface {
	Bound(k *Known, alpha float64) (seconds float64, ok bool)
}

// Report is what bounds were worth on rows that nothing was fitted to or calibrated on.
type Report struct {
	// All is of the rows with a bound together, Groups of each group, in ascending order. Counts are of rows, whatever their weights.
	All    artifact.Cell
	Groups []artifact.Cell
	// Unbounded rows have no bound, and are in no cell.
	Unbounded int
	// Pinball is the mean pinball loss of log(bound) as a quantile of log(latency), over rows that are bounded and not censored: the
	// less the better. It compares bounds of one level on the same rows.
	Pinball float64
}

// Cells are the rows of an artifact's table of coverage: all together, then each group, of a fold.
func (r *Report) Cells(fold int) []artifact.Cell {
	cells := append([]artifact.Cell{r.All}, r.Groups...)
	for i := range cells {
		cells[i].Fold = fold
	}
	return cells
}

// confidence of intervals.
const confidence = 0.95

// Evaluate reports on bounds at alpha. Groups are by class and by the deciles of load. The intervals are clustered by run; a cell of one
// run has none, [0, 1]. ErrRow; ErrConfig for alpha.
func Evaluate(rows []Row, b Bounder, deciles conformal.Deciles, alpha float64) (Report, error) {
	var rep Report
	if !(alpha > 0 && alpha < 1) {
		return rep, fmt.Errorf("%w: alpha is %v, allowed: between 0 and 1", ErrConfig, alpha)
	}
	if err := check(rows, -1); err != nil {
		return rep, err
	}
	tally := conformal.Tally{}
	var all []float64
	byGroup := map[conformal.Group][]float64{}
	lost, n := 0.0, 0
	for i := range rows {
		r := &rows[i]
		bound, ok := b.Bound(&r.Known, alpha)
		if !ok {
			rep.Unbounded++
			continue
		}
		g := conformal.Group{Class: r.Class, Decile: deciles.Of(r.Load)}
		tally.Add(r.Run, conformal.Resolution{Group: g, Verdict: judge(r, bound)})
		all, byGroup[g] = append(all, bound), append(byGroup[g], bound)
		if !r.Censored {
			lost += gbm.Pinball(1-alpha, r.Label, math.Log(bound/r.Predicted))
			n++
		}
	}
	rep.Pinball = lost / max(1, float64(n))
	var err error
	if rep.All, err = cell(alpha, tally.Marginal(), all); err != nil {
		return rep, err
	}
	for _, g := range tally.Groups() {
		c, err := cell(alpha, tally.Runs(g), byGroup[g])
		if err != nil {
			return rep, err
		}
		c.Group = &g
		rep.Groups = append(rep.Groups, c)
	}
	return rep, nil
}

// judge compares a latency, of which only a lower bound may be known, with a bound.
func judge(r *Row, bound float64) conformal.Verdict {
	switch {
	case r.Latency() > bound:
		return conformal.Miss
	case r.Censored:
		return conformal.Censored
	}
	return conformal.Hit
}

// cell sums up runs with their bounds, which it sorts.
func cell(alpha float64, runs []conformal.Coverage, bounds []float64) (artifact.Cell, error) {
	c := artifact.Cell{Alpha: alpha, Coverage: conformal.Total(runs), High: 1}
	var err error
	if c.Low, c.High, err = conformal.Clustered(runs, confidence); errors.Is(err, conformal.ErrRuns) {
		c.Low, c.High = 0, 1
	} else if err != nil {
		return c, err
	}
	sum := 0.0
	for _, b := range bounds {
		sum += b
	}
	c.MeanBound, c.MedianBound = sum/max(1, float64(len(bounds))), median(bounds)
	return c, nil
}

// MedianError is the median of |label − residual| over rows that are not censored, for a prediction of the residual; 0 without rows.
// A nil one says 0: that is the error of the physics.
func MedianError(rows []Row, residual func(*Known) float64) float64 {
	var errs []float64
	for i := range rows {
		r := &rows[i]
		if r.Censored {
			continue
		}
		e := r.Label
		if residual != nil {
			e -= residual(&r.Known)
		}
		errs = append(errs, math.Abs(e))
	}
	return median(errs)
}

// median sorts.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
