package gbm_test

import (
	"math"
	"testing"

	"github.com/cadence-slo/cadence/predictor/gbm"
)

func TestSupport(t *testing.T) {
	// Feature 0 is 0 in nine rows of ten: the leaf of the others is small.
	d := gbm.Data{Columns: make([][]float32, 2)}
	for row := range 1000 {
		rare := float32(0)
		if row%10 == 0 {
			rare = 1
		}
		d.Columns[0] = append(d.Columns[0], rare)
		d.Columns[1] = append(d.Columns[1], 5)
		d.Labels = append(d.Labels, 10*float64(rare)+float64(row%7))
	}
	p := gbm.DefaultParams(0.5)
	p.Rounds, p.Leaves = 5, 2
	m, _, err := gbm.Train(d, gbm.Data{}, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if low, high := m.Range(0); low != 0 || high != 1 {
		t.Errorf("range [%v, %v]", low, high)
	}
	if share := m.Importance(); share[0] != 1 || share[1] != 0 {
		t.Errorf("importance %v", share)
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		x         []float32
		minRows   float64
		occupancy float64
		ok        bool
		outside   int
	}{
		{[]float32{0, 5}, 900, 900, true, -1},
		{[]float32{0, 5}, 901, 900, false, -1},
		{[]float32{1, 5}, 100, 100, true, -1},
		{[]float32{1, 5}, 101, 100, false, -1},
		{[]float32{1, 5}, 0, 100, true, -1},
		{[]float32{1.1, 5}, 0, 100, false, 0},
		{[]float32{0, 6}, 0, 900, true, -1}, // it was constant
		{[]float32{0, nan}, 0, 900, false, 1},
		{[]float32{nan, 5}, 0, 900, false, 0},
		{[]float32{0}, 0, 0, false, -1},
	} {
		ok, outside := m.Supported(c.x, c.minRows)
		if ok != c.ok || outside != c.outside {
			t.Errorf("%v with %v rows: %v, %d", c.x, c.minRows, ok, outside)
		}
		value, both := m.PredictSupported(c.x, c.minRows)
		if both != c.ok || both != (value == m.Predict(c.x)) {
			t.Errorf("%v with %v rows: %v, %v at once", c.x, c.minRows, value, both)
		}
		if got := m.Occupancy(c.x); math.Abs(got-c.occupancy) > 1e-9 {
			t.Errorf("%v: occupancy %v, want %v", c.x, got, c.occupancy)
		}
	}
	if got := m.Predict([]float32{0}); !math.IsNaN(got) {
		t.Errorf("a feature too few predicts %v", got)
	}
	if _, err := m.Loss(gbm.Data{Columns: d.Columns[:1], Labels: d.Labels}); err == nil {
		t.Error("a loss with a feature too few")
	}
}

func TestNoAllocation(t *testing.T) {
	d, _ := generate("friedman", 3, 10, 300)
	p := gbm.DefaultParams(0.5)
	p.Rounds = 11
	m, _, err := gbm.Train(d, gbm.Data{}, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := rowOf(d, 0)
	if n := testing.AllocsPerRun(100, func() { m.Predict(x); m.Supported(x, 5) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
