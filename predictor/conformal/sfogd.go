package conformal

import (
	"fmt"
	"math"
)

// SFOGDConfig are the parameters of SFOGD.
type SFOGDConfig struct {
	// Eta > 0 is the size of a step, in units of the score.
	Eta float64
	// Discount in (0, 1] multiplies Σg² each row: it remembers about 1/(1−Discount) rows. 1 is the paper's, whose steps die out.
	Discount float64
}

// DefaultSFOGD suits log ratios whose spread is some tenths. In the steady state a miss moves the quantile by about 0.1. The memory is 50/α
// rows, fifty misses at any level: a row's own g² then weighs so little in its step that coverage is within 1 % of α; with ten misses it
// is 3 % of α too low.
func DefaultSFOGD(alpha float64) SFOGDConfig { return SFOGDConfig{Eta: 0.7, Discount: 1 - alpha/50} }

// SFOGD is scale-free online gradient descent on the pinball loss of the quantile itself (Bhatnagar, Wang, Xiong, Bai 2023, algorithm 2):
// q ← q − η g/√G, with g = α − 1{score > q} and G = Σg², here discounted: G ← ρG + g². It always has a quantile, and is not tied to
// the range of a window, but that rows without a finite score do not push it beyond the largest one; the window serves to carry it over to a new model.
type SFOGD struct {
	alpha    float64
	quantile float64
	energy   float64 // G
	eta      float64
	discount float64
	rows     window
}

// NewSFOGD starts at the quantile start, which must be finite: a calibrated one, or a margin that is known to be safe. With a discount
// it starts as if it had run at level α for long; without, from G = 0 as in the paper. rows, oldest first, of which it keeps the last
// size, are not judged. ErrAlpha, ErrValue.
func NewSFOGD(alpha, start float64, c SFOGDConfig, size int, rows []Row) (*SFOGD, error) {
	if err := checkAlpha(alpha); err != nil {
		return nil, err
	}
	if err := checkPositive("eta", c.Eta); err != nil {
		return nil, err
	}
	if math.IsNaN(start) || math.IsInf(start, 0) || !(c.Discount > 0 && c.Discount <= 1) {
		return nil, fmt.Errorf("%w: start %v, discount %v", ErrValue, start, c.Discount)
	}
	w, err := newWindow(size, rows)
	if err != nil {
		return nil, err
	}
	a := &SFOGD{alpha: alpha, quantile: start, eta: c.Eta, discount: c.Discount, rows: w}
	if c.Discount < 1 {
		a.energy = alpha * (1 - alpha) / (1 - c.Discount)
	}
	return a, nil
}

// Quantile is always ok. See Arm.
func (a *SFOGD) Quantile() (float64, bool) { return a.quantile, true }

// Observe judges a row and takes a step. See Arm.
func (a *SFOGD) Observe(r Row) error {
	judge, err := a.rows.take(r, a.quantile, true)
	if err != nil || !judge {
		return err
	}
	g := a.alpha
	if r.Score > a.quantile {
		g--
	}
	a.energy = a.discount*a.energy + g*g
	before := a.quantile
	a.quantile -= a.eta * g / math.Sqrt(a.energy)
	if math.IsInf(r.Score, 1) { // no bound covers such a row, so that a larger one is no answer to many of them
		a.quantile = min(a.quantile, max(before, a.rows.largest()+a.eta))
	}
	return nil
}

// Anchor moves the quantile to the split conformal one of the recent rows, of which an open one counts as worse than any, and reports
// whether they have one at this level. The size of steps is carried over.
func (a *SFOGD) Anchor() bool {
	q, ok := a.rows.split(a.alpha)
	if ok {
		a.quantile = q
	}
	return ok
}

// Relax lowers the quantile as a row does that it covers, without one: for who refuses whatever the quantile bounds, and so sees no row.
func (a *SFOGD) Relax() {
	a.energy = a.discount*a.energy + a.alpha*a.alpha
	a.quantile -= a.eta * a.alpha / math.Sqrt(a.energy)
}

// Len is the number of recent rows held.
func (a *SFOGD) Len() int { return a.rows.n }

// Rescore moves the quantile by as much as the recent rows' own 1−α quantile moves under the new model. See Arm.
func (a *SFOGD) Rescore(score func(Row) float64) error {
	before, ok := a.rows.finiteAt(a.alpha)
	if err := a.rows.rescore(score); err != nil || !ok {
		return err
	}
	after, _ := a.rows.finiteAt(a.alpha)
	a.quantile += after - before
	return nil
}

// Export is a copy of the state.
func (a *SFOGD) Export() State {
	return State{Kind: KindSFOGD, Alpha: a.alpha, Size: len(a.rows.ring), Rows: a.rows.export(),
		Quantile: a.quantile, Energy: a.energy, Eta: a.eta, Discount: a.discount}
}
