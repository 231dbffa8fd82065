package conformal

import (
	"fmt"
	"math"
	"slices"
)

// DtACIConfig are the parameters of Gibbs and Candès 2024 (algorithm 2).
type DtACIConfig struct {
	// Gammas are the experts' steps, each > 0.
	Gammas []float64
	// Sigma in [0, 1] is the share of weight that is spread over all experts each row.
	Sigma float64
	// Eta > 0 is the learning rate of the weights.
	Eta float64
}

// DefaultDtACI is the paper's choice for regret over spells of interval rows (§4: 500): steps doubling from 0.001 to 0.128,
// σ = 1/(2I), η = √(3/I · (log(2kI)+1) / ((1−α)²α³ + α²(1−α)³)).
func DefaultDtACI(alpha float64, interval int) DtACIConfig {
	c := DtACIConfig{}
	for g := 0.001; g < 0.2; g *= 2 {
		c.Gammas = append(c.Gammas, g)
	}
	i, a, b := float64(interval), alpha, 1-alpha
	c.Sigma = 1 / (2 * i)
	c.Eta = math.Sqrt(3 / i * (math.Log(2*float64(len(c.Gammas))*i) + 1) / (b*b*a*a*a + a*a*b*b*b))
	return c
}

// Expert is one ACI of a DtACI.
type Expert struct {
	Gamma  float64 `json:"gamma"`
	Level  float64 `json:"level"`  // around α; may leave [0, 1]
	Weight float64 `json:"weight"` // ≥ 0; the weights sum to 1
}

// DtACI is dynamically tuned adaptive conformal inference (Gibbs and Candès 2024, algorithm 2) on a window of recent rows: several ACIs
// with different steps, weighted by the pinball loss of their levels. The working level is the weighted mean, without randomisation.
// An overdue row enters the window at once, and is judged when it ends: a lower bound does not say which experts it missed.
type DtACI struct {
	alpha, level float64
	sigma, eta   float64
	experts      []Expert
	rows         window
}

// NewDtACI starts all experts at alpha with equal weights, from rows, oldest first, of which it keeps the last size. ErrAlpha, ErrValue.
func NewDtACI(alpha float64, c DtACIConfig, size int, rows []Row) (*DtACI, error) {
	if err := checkAlpha(alpha); err != nil {
		return nil, err
	}
	if err := checkPositive("eta", c.Eta); err != nil {
		return nil, err
	}
	if len(c.Gammas) == 0 || !(c.Sigma >= 0 && c.Sigma <= 1) {
		return nil, fmt.Errorf("%w: %d experts, sigma %v", ErrValue, len(c.Gammas), c.Sigma)
	}
	w, err := newWindow(size, rows)
	if err != nil {
		return nil, err
	}
	a := &DtACI{alpha: alpha, level: alpha, sigma: c.Sigma, eta: c.Eta, rows: w}
	for _, g := range c.Gammas {
		if err := checkPositive("gamma", g); err != nil {
			return nil, err
		}
		a.experts = append(a.experts, Expert{Gamma: g, Level: alpha, Weight: 1 / float64(len(c.Gammas))})
	}
	return a, nil
}

// Level is the working level, around α; it may leave [0, 1].
func (a *DtACI) Level() float64 { return a.level }

// Quantile is the window's at the working level. See Arm.
func (a *DtACI) Quantile() (float64, bool) { return a.rows.at(a.level) }

// Observe judges a row that has ended, moves levels and weights, and adds the row to the window. See Arm.
func (a *DtACI) Observe(r Row) error {
	if err := checkScore(r.Score); err != nil {
		return fmt.Errorf("%w: score of row %d is %v", err, r.ID, r.Score)
	}
	if r.Stage == Done || r.Stage == Settled {
		a.learn(a.rows.pvalue(r))
	}
	_, err := a.rows.take(r, 0, false)
	return err
}

func (a *DtACI) learn(beta float64) {
	total := 0.0
	for i := range a.experts {
		e := &a.experts[i]
		e.Weight *= math.Exp(-a.eta * pinball(beta, e.Level, a.alpha))
		total += e.Weight
	}
	if total == 0 { // all losses are beyond what a float can hold: nothing tells the experts apart
		for i := range a.experts {
			a.experts[i].Weight = 1
		}
		total = float64(len(a.experts))
	}
	k := float64(len(a.experts))
	a.level = 0
	for i := range a.experts {
		e := &a.experts[i]
		e.Weight = (1-a.sigma)*e.Weight/total + a.sigma/k
		e.Level += a.gammaStep(e, beta)
		a.level += e.Weight * e.Level
	}
}

func (a *DtACI) gammaStep(e *Expert, beta float64) float64 {
	if e.Level >= beta {
		return e.Gamma * (a.alpha - 1)
	}
	return e.Gamma * a.alpha
}

// pinball is ℓ(β, θ) = α(β−θ) − min(0, β−θ).
func pinball(beta, theta, alpha float64) float64 {
	u := beta - theta
	return alpha*u - min(0, u)
}

// Experts is a copy.
func (a *DtACI) Experts() []Expert { return slices.Clone(a.experts) }

// Len is the number of rows in the window.
func (a *DtACI) Len() int { return a.rows.n }

// Rescore replaces the scores in the window and keeps levels and weights. See Arm.
func (a *DtACI) Rescore(score func(Row) float64) error { return a.rows.rescore(score) }

// Export is a copy of the state.
func (a *DtACI) Export() State {
	return State{Kind: KindDtACI, Alpha: a.alpha, Size: len(a.rows.ring), Rows: a.rows.export(),
		Level: a.level, Sigma: a.sigma, Eta: a.eta, Experts: a.Experts()}
}
