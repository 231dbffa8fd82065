package trainer

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/gbm"
)

// Config is how a model is fitted and calibrated.
type Config struct {
	// Features are those of the rows. Their signs constrain the model; without signs it is free.
	Features []feature.Info
	// Params are those of the trees; Monotone is set from Features. Their level need not be that of a bound: calibration makes up for it.
	Params gbm.Params
	// HoldOut is the share of the rows to fit, the last to arrive, that are held out to end the training, in [0, 0.5]; 0: none.
	HoldOut float64
	// MinSupport is as in artifact.Calibration, ≥ 0.
	MinSupport float64
	// Alpha of the bounds that an artifact carries, in (0, 1), and how many rows its arms begin with, [1, 4096].
	Alpha  float64
	Window int
}

// DefaultConfig fits the median of the residual by all features, for bounds at alpha.
func DefaultConfig(alpha float64) Config {
	c := Config{Features: feature.Table(), Params: gbm.DefaultParams(0.5), HoldOut: 0.2, Alpha: alpha, Window: conformal.DefaultWindow}
	c.Params.Rounds, c.Params.Leaves, c.Params.Patience, c.Params.LearningRate = 400, 15, 20, 0.05
	c.MinSupport = float64(2 * c.Params.MinRows)
	return c
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	bad := func(key string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, key, value, allowed)
	}
	switch {
	case len(c.Features) == 0:
		return bad("features", "empty", "one and more")
	case !(c.HoldOut >= 0 && c.HoldOut <= 0.5):
		return bad("hold_out", c.HoldOut, "0 to 0.5")
	case !(c.MinSupport >= 0 && c.MinSupport <= 1e9):
		return bad("min_support", c.MinSupport, "0 to 1e9")
	case !(c.Alpha > 0 && c.Alpha < 1):
		return bad("alpha", c.Alpha, "between 0 and 1")
	case c.Window < 1 || c.Window > 4096:
		return bad("window", c.Window, "1 to 4096")
	}
	if err := c.params().Check(len(c.Features)); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func (c *Config) params() gbm.Params {
	p := c.Params
	p.Monotone = make([]int8, len(c.Features))
	for i, f := range c.Features {
		p.Monotone[i] = f.Sign
	}
	return p
}

// Candidate is a model that was fitted, and its calibration. It does not change, and is safe for concurrent use.
type Candidate struct {
	// Model is of the residual. History is how the training went.
	Model   *gbm.Model
	History gbm.History
	// Deciles of load, of the rows that were fitted.
	Deciles conformal.Deciles

	config   Config
	groups   map[conformal.Group]*conformal.Weighted
	marginal *conformal.Weighted // rows that the model supports
	outside  *conformal.Weighted // others, by their residuals
	physics  *conformal.Weighted // all, by their residuals
	rows     []scored            // of the calibration, in the order of arrival
}

// scored is a row of the calibration.
type scored struct {
	group     conformal.Group
	score     float64
	supported bool
}

// Fit fits a model to rows and calibrates it on others, which must be of other rounds; see Split. rng is as in gbm.Train, and nil is
// allowed where that allows it. ErrConfig, ErrRow; ErrFit if no row to fit, or none to calibrate, is left.
func Fit(fit, calibrate []Row, c Config, rng *rand.Rand) (*Candidate, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	for _, rows := range [][]Row{fit, calibrate} {
		if err := check(rows, len(c.Features)); err != nil {
			return nil, err
		}
	}
	// Of a client that left nothing is known but a lower bound.
	fit = slices.DeleteFunc(slices.Clone(fit), func(r Row) bool { return r.Censored })
	slices.SortStableFunc(fit, func(a, b Row) int { return a.At.Compare(b.At) })
	if len(fit) == 0 || len(calibrate) == 0 {
		return nil, fmt.Errorf("%w: %d rows to fit, %d to calibrate", ErrFit, len(fit), len(calibrate))
	}
	loads := make([]float64, len(fit))
	for i := range fit {
		loads[i] = fit[i].Load
	}
	f := &Candidate{config: c, groups: map[conformal.Group]*conformal.Weighted{}}
	var err error
	if f.Deciles, err = conformal.NewDeciles(loads); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	held := int(c.HoldOut * float64(len(fit)))
	f.Model, f.History, err = gbm.Train(data(fit[:len(fit)-held]), data(fit[len(fit)-held:]), c.params(), rng)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	if err := f.calibrate(calibrate); err != nil {
		return nil, err
	}
	return f, nil
}

// data is rows by column.
func data(rows []Row) gbm.Data {
	if len(rows) == 0 {
		return gbm.Data{}
	}
	d := gbm.Data{Columns: make([][]float32, len(rows[0].Features)), Labels: make([]float64, len(rows)), Weights: make([]float64, len(rows))}
	for f := range d.Columns {
		d.Columns[f] = make([]float32, len(rows))
		for i := range rows {
			d.Columns[f][i] = rows[i].Features[f]
		}
	}
	for i := range rows {
		d.Labels[i], d.Weights[i] = rows[i].Label, rows[i].Weight
	}
	return d
}

// calibrate scores rows.
func (f *Candidate) calibrate(rows []Row) error {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int { return a.At.Compare(b.At) })
	byGroup := map[conformal.Group][]conformal.WeightedRow{}
	var marginal, outside, physics []conformal.WeightedRow
	for i := range rows {
		r := &rows[i]
		residual, supported := f.Residual(&r.Known)
		s := conformal.WeightedRow{Score: r.Label - residual, Weight: r.Weight}
		g := f.Group(&r.Known)
		f.rows = append(f.rows, scored{g, s.Score, supported})
		if physics = append(physics, conformal.WeightedRow{Score: r.Label, Weight: r.Weight}); !supported {
			outside = append(outside, s)
			continue
		}
		marginal = append(marginal, s)
		byGroup[g] = append(byGroup[g], s)
	}
	var err error
	weigh := func(rows []conformal.WeightedRow) (w *conformal.Weighted) {
		if err == nil {
			w, err = conformal.NewWeighted(rows)
		}
		return w
	}
	f.marginal, f.outside, f.physics = weigh(marginal), weigh(outside), weigh(physics)
	for g, rows := range byGroup {
		f.groups[g] = weigh(rows)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFit, err)
	}
	return nil
}

// Group is the one that a row is calibrated in.
func (f *Candidate) Group(k *Known) conformal.Group {
	return conformal.Group{Class: k.Class, Decile: f.Deciles.Of(k.Load)}
}

// Residual is what the model says log(latency / Predicted) is; 0 where the rows that it was fitted to do not support it.
func (f *Candidate) Residual(k *Known) (residual float64, supported bool) {
	if ok, _ := f.Model.Supported(k.Features, f.config.MinSupport); !ok {
		return 0, false
	}
	return f.Model.Predict(k.Features), true
}

// Bound is what the latency stays below with probability 1−alpha, in seconds, marginally and in each group that has the rows for it. A
// row that the model does not support has the margin of such rows, or where they are too few that of the physics on all. ok is false if
// there are too few rows for this level.
func (f *Candidate) Bound(k *Known, alpha float64) (seconds float64, ok bool) {
	residual, supported := f.Residual(k)
	q, ok := quantile(alpha, k.Weight, f.outside, f.physics)
	if supported {
		q, ok = quantile(alpha, k.Weight, f.groups[f.Group(k)], f.marginal)
	}
	return scale(k.Predicted, residual+q, ok)
}

// quantile is the first one's that has one.
func quantile(alpha, weight float64, of ...*conformal.Weighted) (q float64, ok bool) {
	for _, w := range of {
		if w == nil {
			continue
		}
		if q, err := w.Quantile(alpha, weight); err == nil {
			return q, true
		}
	}
	return 0, false
}

// byClass orders groups.
func byClass(a, b conformal.Group) int {
	return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Decile, b.Decile))
}
