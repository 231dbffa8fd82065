package online

import (
	"fmt"
	"math"

	"github.com/cadence-slo/cadence/predictor/conformal"
)

// frozen is a margin that was calibrated once.
type frozen struct {
	upper, idle float64 // idle is NaN if too few came to an idle engine
}

// Frozen returns a predictor that has learned what p has and learns nothing more, as one that was calibrated once and then shipped.
// Its margin is one for all: the split conformal quantile at the level, in (0, 1), of the rows that p remembers, those that were expected
// to be late among them: the latest, at most Config.Window or what p's own level needs. All are scored by the lengths and the model that
// p has now. What p has open is none of its business, and among the scores counts as worse than any bound once its bound has passed.
//
// It reads p's lengths and residuals, so that p must learn nothing more either; several may then be made of it, with an owner each.
// It returns ErrConfig for the level, conformal.ErrLevel if the scores are too few for it.
func (p *Predictor) Frozen(level float64) (*Predictor, error) {
	cfg := p.cfg
	cfg.Level, cfg.Warm = level, 0
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var all, idle []float64
	p.each(func(t *tracked) {
		open := p.open[t.id] == t
		if !t.in && !t.hopeless || open && !t.overdue {
			return
		}
		score := math.Inf(1)
		if !open && !t.lower {
			score = t.latency - math.Log(t.median(p.lengths)/1e9)
		}
		all = append(all, score-t.location)
		if t.Idle {
			idle = append(idle, score)
		}
	})
	z := &Predictor{cfg: cfg, lengths: p.lengths, residual: p.residual, idleResidual: p.idleResidual, model: p.model, deciles: p.deciles,
		version: p.version, queue: conformal.NewQueue(conformal.Ratio), open: map[uint64]*tracked{}, frozen: &frozen{}}
	var err error
	if z.frozen.upper, err = split(all, level); err != nil {
		return nil, fmt.Errorf("online: %d scores at level %v: %w", len(all), level, err)
	}
	if z.frozen.idle, err = split(idle, level); err != nil {
		z.frozen.idle = math.NaN()
	}
	return z, nil
}

func split(scores []float64, level float64) (float64, error) {
	s, err := conformal.NewSplit(scores)
	if err != nil {
		return 0, err
	}
	return s.Quantile(1 - level)
}
