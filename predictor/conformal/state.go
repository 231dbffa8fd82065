package conformal

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrState says that a State is not one that Export gave.
var ErrState = errors.New("conformal: invalid state")

// Kinds of State.
const (
	KindRolling = "rolling"
	KindACI     = "aci"
	KindDtACI   = "dtaci"
	KindSFOGD   = "sfogd"
)

// State is an arm's state for an artifact. All its numbers are finite, so that it can be written as JSON.
type State struct {
	Kind  string    `json:"kind"`
	Alpha float64   `json:"alpha"`
	Size  int       `json:"size"` // of the window, rows
	Rows  []KeptRow `json:"rows"` // oldest first, at most Size

	Level    float64  `json:"level,omitempty"`    // aci, dtaci
	Gamma    float64  `json:"gamma,omitempty"`    // aci
	Sigma    float64  `json:"sigma,omitempty"`    // dtaci
	Experts  []Expert `json:"experts,omitempty"`  // dtaci
	Eta      float64  `json:"eta,omitempty"`      // dtaci, sfogd
	Quantile float64  `json:"quantile,omitempty"` // sfogd
	Energy   float64  `json:"energy,omitempty"`   // sfogd: the discounted Σg²
	Discount float64  `json:"discount,omitempty"` // sfogd
}

// KeptRow is a recent row in a State.
type KeptRow struct {
	ID     uint64  `json:"id"`
	Score  float64 `json:"score"`            // finite; 0 if Never
	Never  bool    `json:"never,omitempty"`  // it missed any bound: a score of +Inf
	Open   bool    `json:"open,omitempty"`   // Score is a lower bound so far
	Judged bool    `json:"judged,omitempty"` // it has moved the level already
}

// Import makes the arm that Export was called on. ErrState. An open row is settled by its ID after the import as before it.
func Import(s State) (Arm, error) {
	rows, err := importRows(s)
	if err != nil {
		return nil, err
	}
	if !isFinite(s.Level, s.Quantile, s.Energy) || s.Energy < 0 {
		return nil, fmt.Errorf("%w: level %v, quantile %v, energy %v", ErrState, s.Level, s.Quantile, s.Energy)
	}
	arm, err := s.arm(rows)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return arm, nil
}

func (s State) arm(rows window) (Arm, error) {
	switch s.Kind {
	case KindRolling:
		a, err := NewRolling(s.Alpha, s.Size, nil)
		if err != nil {
			return nil, err
		}
		a.rows = rows
		return a, nil
	case KindACI:
		a, err := NewACI(s.Alpha, s.Gamma, s.Size, nil)
		if err != nil {
			return nil, err
		}
		a.rows, a.level = rows, s.Level
		return a, nil
	case KindDtACI:
		c := DtACIConfig{Sigma: s.Sigma, Eta: s.Eta}
		for _, e := range s.Experts {
			if !isFinite(e.Level, e.Weight) || e.Weight < 0 {
				return nil, fmt.Errorf("%w: expert %+v", ErrValue, e)
			}
			c.Gammas = append(c.Gammas, e.Gamma)
		}
		a, err := NewDtACI(s.Alpha, c, s.Size, nil)
		if err != nil {
			return nil, err
		}
		a.rows, a.level, a.experts = rows, s.Level, slices.Clone(s.Experts)
		return a, nil
	case KindSFOGD:
		a, err := NewSFOGD(s.Alpha, s.Quantile, SFOGDConfig{Eta: s.Eta, Discount: s.Discount}, s.Size, nil)
		if err != nil {
			return nil, err
		}
		a.rows, a.energy = rows, s.Energy
		return a, nil
	}
	return nil, fmt.Errorf("%w: kind %q", ErrValue, s.Kind)
}

// maxWindow keeps a damaged artifact from asking for all memory.
const maxWindow = 1 << 20

func importRows(s State) (window, error) {
	if s.Size < 1 || s.Size > maxWindow || len(s.Rows) > s.Size {
		return window{}, fmt.Errorf("%w: %d rows in a window of %d", ErrState, len(s.Rows), s.Size)
	}
	w, err := newWindow(s.Size, nil)
	if err != nil {
		return window{}, err
	}
	for _, r := range s.Rows {
		if !isFinite(r.Score) {
			return window{}, fmt.Errorf("%w: row %+v", ErrState, r)
		}
		e := kept{id: r.ID, score: r.Score, open: r.Open, judged: r.Judged}
		if r.Never {
			e.score = math.Inf(1)
		}
		w.push(e)
	}
	return w, nil
}

func (w *window) export() []KeptRow {
	rows := make([]KeptRow, 0, w.n)
	w.each(func(i int) {
		e := w.ring[i]
		r := KeptRow{ID: e.id, Score: e.score, Open: e.open, Judged: e.judged}
		if math.IsInf(e.score, 1) {
			r.Score, r.Never = 0, true
		}
		rows = append(rows, r)
	})
	return rows
}

func isFinite(xs ...float64) bool {
	for _, x := range xs {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

func checkPositive(name string, x float64) error {
	if !(x > 0) || math.IsInf(x, 1) {
		return fmt.Errorf("%w: %s is %v", ErrValue, name, x)
	}
	return nil
}
