package trainer

import (
	"errors"
	"fmt"
	"math"
	"time"
)

var (
	// ErrRow is the error of a row that cannot be; the text says which and why.
	ErrRow = errors.New("trainer: row")
	// ErrRounds is the error of rows from fewer rounds than there are folds.
	ErrRounds = errors.New("trainer: too few rounds")
	// ErrConfig is the error of a configuration that cannot work; the text names the key and the allowed values.
	ErrConfig = errors.New("trainer: invalid configuration")
	// ErrFit is the error of rows that nothing can be fitted to.
	ErrFit = errors.New("trainer: fit")
)

// Known is what was known of a request when it arrived.
type Known struct {
	// Features are those that feature.Append made then, finite.
	Features []float32
	// Predicted is the simulated latency, in seconds, > 0. Whichever of the simulation's figures it is, all rows have the same.
	Predicted float64
	// Class of the tenant, numbered by the caller.
	Class uint16
	// Load is feature.Load.
	Load float64
	// Weight is 1/propensity: how many arrivals like it there were for each that was admitted, finite, ≥ 1.
	Weight float64
}

// Row is a request that has ended.
type Row struct {
	Known
	// Round is what folds are made of: a time in which the engine saw every load. Run is what rows are correlated in; it is in one round.
	Round, Run int
	// At is when the request arrived.
	At time.Time
	// Label is log(latency / Predicted), finite.
	Label float64
	// Censored tells that the client left: Label is a lower bound.
	Censored bool
}

// Latency is in seconds.
func (r *Row) Latency() float64 { return r.Predicted * math.Exp(r.Label) }

// check returns ErrRow for the i-th row, which has so many features; below 0 is any number.
func (r *Row) check(i, features int) error {
	switch {
	case features >= 0 && len(r.Features) != features:
		return fmt.Errorf("%w: %d has %d features, want %d", ErrRow, i, len(r.Features), features)
	case !(r.Predicted > 0) || math.IsInf(r.Predicted, 0):
		return fmt.Errorf("%w: %d is predicted to take %v s", ErrRow, i, r.Predicted)
	case math.IsNaN(r.Label) || math.Abs(r.Label) > 100:
		return fmt.Errorf("%w: %d has label %v", ErrRow, i, r.Label)
	case !(r.Weight >= 1) || math.IsInf(r.Weight, 0):
		return fmt.Errorf("%w: %d has weight %v", ErrRow, i, r.Weight)
	case math.IsNaN(r.Load) || math.IsInf(r.Load, 0):
		return fmt.Errorf("%w: %d has load %v", ErrRow, i, r.Load)
	}
	for f, v := range r.Features {
		if v-v != 0 {
			return fmt.Errorf("%w: %d has %v for feature %d", ErrRow, i, v, f)
		}
	}
	return nil
}

func check(rows []Row, features int) error {
	for i := range rows {
		if err := rows[i].check(i, features); err != nil {
			return err
		}
	}
	return nil
}
