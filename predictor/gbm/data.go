package gbm

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrShape is the error of data whose parts differ in length, have no rows or features, or more than fit.
	ErrShape = errors.New("gbm: shape of data")
	// ErrNotFinite is the error of a feature, label or loss that is NaN or infinite; the text names row and feature.
	ErrNotFinite = errors.New("gbm: not finite")
	// ErrWeight is the error of a weight that is not positive and finite.
	ErrWeight = errors.New("gbm: weight")
)

const (
	maxFeatures = 4096
	maxRows     = math.MaxInt32
)

// Data is rows to learn from or to check with. It is read, never kept and never changed.
type Data struct {
	// Columns holds the features, Columns[feature][row], each as long as Labels.
	Columns [][]float32
	// Labels holds what is to be predicted, in any unit.
	Labels []float64
	// Weights holds how often each row counts in loss and quantiles; nil is 1 for all. A row counts once towards
	// Params.MinRows whatever its weight.
	Weights []float64
}

// Rows returns the number of rows.
func (d Data) Rows() int { return len(d.Labels) }

// Check returns what is wrong with the data: ErrShape, ErrNotFinite, ErrWeight, or nil.
func (d Data) Check() error {
	rows := d.Rows()
	if rows == 0 || rows > maxRows {
		return fmt.Errorf("%w: %d rows", ErrShape, rows)
	}
	if len(d.Columns) == 0 || len(d.Columns) > maxFeatures {
		return fmt.Errorf("%w: %d features", ErrShape, len(d.Columns))
	}
	if d.Weights != nil && len(d.Weights) != rows {
		return fmt.Errorf("%w: %d weights for %d rows", ErrShape, len(d.Weights), rows)
	}
	for feature, column := range d.Columns {
		if len(column) != rows {
			return fmt.Errorf("%w: %d rows of feature %d, %d labels", ErrShape, len(column), feature, rows)
		}
		for row, v := range column {
			if !finite(float64(v)) {
				return fmt.Errorf("%w: row %d, feature %d is %v", ErrNotFinite, row, feature, v)
			}
		}
	}
	for row, v := range d.Labels {
		if !finite(v) {
			return fmt.Errorf("%w: row %d, label is %v", ErrNotFinite, row, v)
		}
	}
	for row, v := range d.Weights {
		if !(v > 0) || math.IsInf(v, 1) {
			return fmt.Errorf("%w: row %d has %v", ErrWeight, row, v)
		}
	}
	return nil
}

func finite(v float64) bool { return v-v == 0 }

// weight returns the weight of a row where nil is 1 for all.
func weight(weights []float64, row int) float64 {
	if weights == nil {
		return 1
	}
	return weights[row]
}
