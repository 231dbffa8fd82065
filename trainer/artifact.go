package trainer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/length"
)

// Artifact is the candidate with its calibration as arms that go on online: one for all rows, one for each group that has a bound of its own
// at the configured alpha, and one for rows that the model does not support, each with the latest rows of the calibration. The header is
// the caller's but for Features. conformal.ErrLevel (wrapped in ErrFit) if there is no bound at alpha.
func (f *Candidate) Artifact(h artifact.Header, lengths length.State) (*artifact.Artifact, error) {
	h.Features = slices.Clone(f.config.Features)
	a := &artifact.Artifact{Header: h, Model: f.Model, Lengths: lengths}
	a.Calibration.MinSupport, a.Calibration.Deciles = f.config.MinSupport, f.Deciles
	var err error
	a.Calibration.Supported.All, err = f.arm(func(s *scored) bool { return s.supported }, f.marginal)
	if err != nil {
		return nil, err
	}
	a.Calibration.Physics, err = f.arm(func(s *scored) bool { return !s.supported }, f.outside, f.physics)
	if err != nil {
		return nil, err
	}
	for _, g := range slices.SortedFunc(maps.Keys(f.groups), byClass) {
		if _, ok := quantile(f.config.Alpha, 1, f.groups[g]); !ok {
			continue
		}
		s, err := f.arm(func(s *scored) bool { return s.supported && s.group == g }, f.groups[g])
		if err != nil {
			return nil, err
		}
		a.Calibration.Supported.Groups = append(a.Calibration.Supported.Groups, conformal.GroupState{Group: g, Arm: s})
	}
	return a, nil
}

// arm begins at the first quantile that there is, with the rows that belong to it.
func (f *Candidate) arm(belongs func(*scored) bool, of ...*conformal.Weighted) (conformal.State, error) {
	alpha := f.config.Alpha
	q, ok := quantile(alpha, 1, of...)
	if !ok {
		return conformal.State{}, fmt.Errorf("%w: %w: alpha is %v", ErrFit, conformal.ErrLevel, alpha)
	}
	var rows []conformal.Row
	for i := range f.rows {
		if s := &f.rows[i]; belongs(s) {
			rows = append(rows, conformal.Row{ID: uint64(i), Score: s.score})
		}
	}
	size := max(f.config.Window, conformal.MinRows(alpha))
	arm, err := conformal.NewSFOGD(alpha, q, conformal.DefaultSFOGD(alpha), size, rows)
	if err != nil {
		return conformal.State{}, fmt.Errorf("%w: %w", ErrFit, err)
	}
	return arm.Export(), nil
}
