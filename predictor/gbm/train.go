package gbm

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// History is how the losses went. Entry k is the weighted mean pinball loss after k rounds, entry 0 that of the constant.
type History struct {
	// Train and Validation are the losses, in the label's unit; Validation is nil without validation data.
	Train, Validation []float64
	// Kept is the number of rounds whose trees the model holds.
	Kept int
}

// Train fits a model. Validation data, if it has rows, is never fitted: its loss is recorded, and ends the training early
// if Params.Patience says so. Which rows are held out (in time order, say) is the caller's to choose.
//
// rng is used only if Params.RowFraction or FeatureFraction is below 1, and may be nil otherwise. Fewer rounds than asked
// are run if no leaf can be split any more. Errors: ErrShape, ErrNotFinite, ErrWeight, ErrParams.
func Train(data, validation Data, p Params, rng *rand.Rand) (*Model, History, error) {
	var history History
	if err := data.Check(); err != nil {
		return nil, history, err
	}
	if err := p.Check(len(data.Columns)); err != nil {
		return nil, history, err
	}
	if p.sampled() && rng == nil {
		return nil, history, fmt.Errorf("%w: sampling without a random generator", ErrParams)
	}
	held := validation.Rows() > 0
	if held {
		if err := validation.Check(); err != nil {
			return nil, history, fmt.Errorf("validation: %w", err)
		}
		if len(validation.Columns) != len(data.Columns) {
			return nil, history, fmt.Errorf("%w: %d features, %d in validation", ErrShape, len(data.Columns), len(validation.Columns))
		}
	}
	g := newGrower(&p, data)
	m := newModel(&p, data)
	m.base = constant(data, p.Level)
	for row, label := range data.Labels {
		g.residual[row] = label - m.base
	}
	heldResidual := make([]float64, validation.Rows())
	for row, label := range validation.Labels {
		heldResidual[row] = label - m.base
	}
	record := func() error {
		loss := meanLoss(p.Level, g.residual, data.Weights)
		history.Train = append(history.Train, loss)
		if held {
			lossHeld := meanLoss(p.Level, heldResidual, validation.Weights)
			history.Validation = append(history.Validation, lossHeld)
			loss += lossHeld
		}
		if !finite(loss) {
			return fmt.Errorf("%w: loss after %d rounds", ErrNotFinite, len(history.Train)-1)
		}
		return nil
	}
	if err := record(); err != nil {
		return nil, history, err
	}
	best, bestTrees, bestGain := 0, 0, make([]float64, len(m.gain))
	for round := 1; round <= p.Rounds; round++ {
		g.draw(rng)
		if g.grow(m) {
			root := m.roots[len(m.roots)-1]
			for _, row := range g.rest {
				g.residual[row] -= m.values[m.leafOf(root, data.Columns, int(row))]
			}
			for row := range heldResidual {
				heldResidual[row] -= m.values[m.leafOf(root, validation.Columns, row)]
			}
		} else if !p.sampled() {
			break
		}
		history.Kept = round
		if err := record(); err != nil {
			return nil, history, err
		}
		if !held || p.Patience == 0 {
			continue
		}
		if history.Validation[round] < history.Validation[best] {
			best, bestTrees = round, len(m.roots)
			copy(bestGain, m.gain)
		} else if round-best >= p.Patience {
			break
		}
	}
	if held && p.Patience > 0 {
		history.Kept = best
		m.keep(bestTrees)
		m.gain = bestGain
	}
	m.clip()
	return m, history, nil
}

// constant returns the quantile of the labels.
func constant(d Data, level float64) float64 {
	points := make([]weighted, d.Rows())
	for row, label := range d.Labels {
		points[row] = weighted{label, weight(d.Weights, row)}
	}
	return quantile(points, level)
}

// meanLoss returns the weighted mean pinball loss of residuals (label − prediction).
func meanLoss(level float64, residual, weights []float64) float64 {
	var loss, total float64
	for row, r := range residual {
		w := weight(weights, row)
		loss += w * Pinball(level, r, 0)
		total += w
	}
	return loss / total
}

// newModel returns a model without trees that knows the range of each feature.
func newModel(p *Params, d Data) *Model {
	features := len(d.Columns)
	m := &Model{level: p.Level, low: make([]float32, features), high: make([]float32, features), gain: make([]float64, features),
		signs: make([]int8, features)}
	for f, column := range d.Columns {
		m.signs[f] = p.sign(f)
		m.low[f], m.high[f] = slices.Min(column), slices.Max(column)
	}
	return m
}
