package online

import (
	"fmt"
	"math"

	"github.com/cadence-slo/cadence/predictor/conformal"
)

// Frozen returns a predictor that has learned what p has and learns nothing more, as one that was calibrated once and then shipped.
// Its margin is the split conformal quantile at the level, in (0, 1), of the scores that p holds: the latest, at most
// Config.Window or what p's own level needs. What p has open is none of its business, and among the scores counts as worse than
// any bound.
//
// It reads p's lengths and residuals, so that p must learn nothing more either; several may then be made of it, with an owner each.
// It returns ErrConfig for the level, conformal.ErrLevel if the scores are too few for it.
func (p *Predictor) Frozen(level float64) (*Predictor, error) {
	cfg := p.cfg
	cfg.Level, cfg.Warm = level, 0
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	kept := p.margin.Export().Rows
	rows := make([]conformal.Row, len(kept))
	for i, r := range kept {
		rows[i] = conformal.Row{ID: r.ID, Score: r.Score}
		if r.Never || r.Open {
			rows[i].Score = math.Inf(1)
		}
	}
	margin, err := conformal.NewRolling(1-level, max(1, len(rows)), rows)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if _, ok := margin.Quantile(); !ok {
		return nil, fmt.Errorf("online: %d scores at level %v: %w", len(rows), level, conformal.ErrLevel)
	}
	return &Predictor{cfg: cfg, lengths: p.lengths, residual: p.residual, margin: margin, queue: conformal.NewQueue(conformal.Ratio),
		open: map[uint64]*tracked{}, frozen: true}, nil
}
