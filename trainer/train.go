package trainer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/length"
)

// Plan is how a candidate is made and judged.
type Plan struct {
	Fit  Config
	Rule Rule
	// Seed of what the trees draw; equal rows, plan and seed make equal candidates.
	Seed uint64
}

// DefaultPlan is for bounds at a level, in (0, 1).
func DefaultPlan(level float64) Plan {
	return Plan{Fit: DefaultConfig(1 - level), Rule: DefaultRule(1 - level), Seed: 1}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (p *Plan) Validate() error {
	if err := p.Fit.Validate(); err != nil {
		return err
	}
	if err := p.Rule.Validate(); err != nil {
		return err
	}
	if p.Fit.Alpha != p.Rule.Alpha {
		return fmt.Errorf("%w: alpha is %v of the fit and %v of the rule, allowed: one", ErrConfig, p.Fit.Alpha, p.Rule.Alpha)
	}
	return nil
}

// Training is a candidate, and what came of its comparison with the running model.
type Training struct {
	// Artifact is the candidate's.
	Artifact *artifact.Artifact
	Outcome  Outcome
	// Rounds in all rows; Fit, Calibrate, Test are rows of the folds, and Compared those of Test that the running model has not learned
	// from either.
	Rounds, Fit, Calibrate, Test, Compared int
	// Error and Physics are the median |log(latency) − log(prediction)| on Test, of the candidate and of the physics alone.
	Error, Physics float64
	Trees          int
}

// Count is how many different rounds rows are of.
func Count(rows []Row) int {
	seen := map[int]bool{}
	for i := range rows {
		seen[rows[i].Round] = true
	}
	return len(seen)
}

// newest is the rotation in which the last of so many rounds tests: later models are compared on what comes after it.
func newest(rounds int) int { return (Rotations - rounds%Rotations) % Rotations }

// Train fits and calibrates a candidate, and compares it as an ingress would begin with it with the running model, nil for none. Its groups
// are of load alone, under class 0: an ingress numbers its classes itself. They are judged by class and load all the same. Of the
// header it fills in From, To, Features and Coverage. Errors are those of Split (too few rounds), Fit, Compare and Artifact.
func Train(rows []Row, champion *artifact.Artifact, h artifact.Header, lengths length.State, p *Plan) (*Training, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	t := &Training{Rounds: Count(rows)}
	rotation := newest(t.Rounds)
	folds, err := Split(rows, rotation)
	if err != nil {
		return nil, err
	}
	t.Fit, t.Calibrate, t.Test = len(folds.Fit), len(folds.Calibrate), len(folds.Test)
	candidate, err := Fit(folds.Fit, classless(folds.Calibrate), p.Fit, rand.New(rand.NewPCG(p.Seed, 0x74726169)))
	if err != nil {
		return nil, err
	}
	h.From, h.To = span(folds.Fit, folds.Calibrate)
	if t.Artifact, err = candidate.Artifact(h, lengths); err != nil {
		return nil, err
	}
	challenger, err := Deploy(t.Artifact)
	if err != nil {
		return nil, err
	}
	report, err := Evaluate(folds.Test, challenger, candidate.Deciles, p.Rule.Alpha)
	if err != nil {
		return nil, err
	}
	t.Artifact.Header.Coverage = report.Cells(rotation)
	t.Error = MedianError(folds.Test, func(k *Known) float64 { r, _ := challenger.Residual(k); return r })
	t.Physics, t.Trees = MedianError(folds.Test, nil), candidate.Model.Trees()

	unseen, running := folds.Test, Bounder(nil)
	if champion != nil {
		d, err := Deploy(champion)
		if err != nil {
			return nil, err
		}
		running, unseen = d, after(folds.Test, champion.Header.To)
	}
	t.Compared = len(unseen)
	if t.Outcome, err = Compare(unseen, running, challenger, candidate.Deciles, p.Rule); err != nil {
		return nil, err
	}
	return t, nil
}

// classless are the rows as if all were of one class.
func classless(rows []Row) []Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Class = 0
	}
	return rows
}

// span bounds the arrivals of rows, in UTC.
func span(folds ...[]Row) (from, to time.Time) {
	first := true
	for _, rows := range folds {
		for i := range rows {
			at := rows[i].At.UTC()
			if first || at.Before(from) {
				from = at
			}
			if first || at.After(to) {
				to = at
			}
			first = false
		}
	}
	return from, to
}

// after are the rows that arrived later.
func after(rows []Row, t time.Time) []Row {
	var later []Row
	for i := range rows {
		if rows[i].At.After(t) {
			later = append(later, rows[i])
		}
	}
	return later
}
