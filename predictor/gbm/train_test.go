package gbm_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/predictor/gbm"
	"pgregory.net/rapid"
)

// randomData draws continuous rows whose label goes with the first features in random directions.
func randomData(rng *rand.Rand, rows, features int, weighted bool) gbm.Data {
	d := gbm.Data{Columns: make([][]float32, features)}
	slope := make([]float64, features)
	for f := range slope {
		slope[f] = rng.NormFloat64()
	}
	for range rows {
		label := rng.NormFloat64()
		for f := range d.Columns {
			v := float32(rng.NormFloat64())
			d.Columns[f] = append(d.Columns[f], v)
			label += slope[f] * math.Sin(2*float64(v))
		}
		d.Labels = append(d.Labels, label)
		if weighted {
			d.Weights = append(d.Weights, rng.ExpFloat64()+0.01)
		}
	}
	return d
}

func randomParams(t *rapid.T, features int) gbm.Params {
	p := gbm.DefaultParams(rapid.Float64Range(0.02, 0.98).Draw(t, "level"))
	p.Rounds = rapid.IntRange(1, 15).Draw(t, "rounds")
	p.Leaves = rapid.IntRange(2, 20).Draw(t, "leaves")
	p.MinRows = rapid.IntRange(1, 10).Draw(t, "min rows")
	p.Bins = rapid.IntRange(2, 255).Draw(t, "bins")
	p.L2 = rapid.SampledFrom([]float64{0, 0.5, 20}).Draw(t, "L2")
	p.LearningRate = rapid.Float64Range(0.01, 0.3).Draw(t, "rate")
	return p
}

// TestMonotone: along a constrained feature a prediction never goes the wrong way, anywhere, whatever the data says.
func TestMonotone(t *testing.T) {
	moved := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		features := rapid.IntRange(1, 5).Draw(t, "features")
		d := randomData(rng, rapid.IntRange(2, 300).Draw(t, "rows"), features, rapid.Bool().Draw(t, "weighted"))
		p := randomParams(t, features)
		p.LearningRate = rapid.Float64Range(0.01, 1).Draw(t, "rate")
		p.RowFraction = rapid.SampledFrom([]float64{1, 0.7}).Draw(t, "row fraction")
		p.FeatureFraction = rapid.SampledFrom([]float64{1, 0.6}).Draw(t, "feature fraction")
		p.Monotone = make([]int8, features)
		for f := range p.Monotone {
			p.Monotone[f] = int8(rng.IntN(3) - 1)
		}
		m, _, err := gbm.Train(d, gbm.Data{}, p, rng)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, features)
		for range 20 {
			for f := range x {
				x[f] = float32(rng.NormFloat64())
			}
			for f, sign := range p.Monotone {
				kept := x[f]
				x[f] = -5
				before := m.Predict(x)
				for x[f] < 5 {
					x[f] += 0.05
					after := m.Predict(x)
					if float64(sign)*(after-before) < 0 {
						t.Fatalf("feature %d with sign %d: %v falls to %v at %v", f, sign, before, after, x)
					}
					if sign != 0 && after != before {
						moved++
					}
					before = after
				}
				x[f] = kept
			}
		}
	})
	if moved == 0 {
		t.Error("no constrained feature was ever used")
	}
}

// TestLossNeverRises: leaf values minimise a convex loss, and a share of the way is never up.
func TestLossNeverRises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		features := rapid.IntRange(1, 5).Draw(t, "features")
		d := randomData(rng, rapid.IntRange(2, 300).Draw(t, "rows"), features, rapid.Bool().Draw(t, "weighted"))
		p := randomParams(t, features)
		m, history, err := gbm.Train(d, gbm.Data{}, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k := range history.Kept {
			if history.Train[k+1] > history.Train[k]*(1+1e-12) {
				t.Fatalf("round %d raises the loss from %v to %v", k+1, history.Train[k], history.Train[k+1])
			}
		}
		loss, err := m.Loss(d)
		if err != nil || math.Abs(loss-history.Train[history.Kept]) > 1e-9*(1+loss) {
			t.Fatalf("the model's loss is %v (%v), its history's %v", loss, err, history.Train)
		}
	})
}

func TestSeedDecides(t *testing.T) {
	d, held := generate("friedman", 5, 10, 600)
	p := gbm.DefaultParams(0.8)
	p.Rounds, p.RowFraction, p.FeatureFraction, p.Patience = 30, 0.5, 0.5, 10
	fit := func(seed uint64) []byte {
		m, _, err := gbm.Train(d, held, p, rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		return m.Encode(nil)
	}
	first := fit(1)
	if !bytes.Equal(first, fit(1)) {
		t.Error("the same seed gives another model")
	}
	if bytes.Equal(first, fit(2)) {
		t.Error("another seed gives the same model")
	}
}

// TestEarlyStopping fits noise: the best round comes soon, and the model is the one of that round.
func TestEarlyStopping(t *testing.T) {
	d, held := generate("spread", 6, 2, 500)
	p := gbm.DefaultParams(0.9)
	p.Rounds, p.MinRows, p.Patience = 300, 5, 7
	m, history, err := gbm.Train(d, held, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if history.Kept == 0 || len(history.Validation) != history.Kept+p.Patience+1 || m.Trees() != history.Kept {
		t.Fatalf("%d losses, %d rounds kept, %d trees", len(history.Validation), history.Kept, m.Trees())
	}
	for k, loss := range history.Validation {
		if loss < history.Validation[history.Kept] {
			t.Errorf("round %d is better than the kept round %d", k, history.Kept)
		}
	}
	if loss, err := m.Loss(held); err != nil || math.Abs(loss-history.Validation[history.Kept]) > 1e-12 {
		t.Errorf("loss %v (%v), recorded %v", loss, err, history.Validation[history.Kept])
	}
	p.Patience, p.Rounds = 0, history.Kept
	short, _, err := gbm.Train(d, gbm.Data{}, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.Encode(nil), short.Encode(nil)) {
		t.Error("stopping early is not the same as running that many rounds")
	}
}

// TestCoverage: about the level's share of rows never seen lies at or below the prediction. Three fits are pooled, as the
// coverage of one varies with its training rows.
func TestCoverage(t *testing.T) {
	for _, level := range []float64{0.1, 0.5, 0.9, 0.95} {
		p := gbm.DefaultParams(level)
		p.Leaves, p.MinRows, p.Patience = 8, 100, 10
		covered, rows := 0.0, 0.0
		for seed := range uint64(3) {
			train, validation := generate("spread", 100+seed, 2, 3000)
			held, _ := generate("spread", 200+seed, 2, 3000)
			m, _, err := gbm.Train(train, validation, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			for row, label := range held.Labels {
				rows++
				if label <= m.Predict(rowOf(held, row)) {
					covered++
				}
			}
		}
		if got := covered / rows; math.Abs(got-level) > 0.02 {
			t.Errorf("level %v covers %.4f", level, got)
		}
	}
}

// TestSampling: fractions draw the stated numbers of rows and features, anew for each tree.
func TestSampling(t *testing.T) {
	d, _ := generate("friedman", 9, 10, 400)
	p := gbm.DefaultParams(0.5)
	p.Rounds, p.Leaves, p.MinRows, p.RowFraction, p.FeatureFraction = 40, 2, 1, 0.25, 0.1
	m, _, err := gbm.Train(d, gbm.Data{}, p, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	// Two leaves share 100 rows: their harmonic mean is at most 50 where both are visited, and no leaf has more than 99.
	if got := m.Occupancy(rowOf(d, 0)); got > 99 || got < 1 {
		t.Errorf("occupancy %v with 100 rows per tree", got)
	}
	used := 0
	for _, share := range m.Importance() {
		if share > 0 {
			used++
		}
	}
	// One feature a tree: without drawing anew, it would be the same for all.
	if used < 8 {
		t.Errorf("%d of 10 features used by 40 trees of one random feature each", used)
	}
}

func TestNothingToLearn(t *testing.T) {
	d := gbm.Data{Columns: [][]float32{{1, 1, 1}, {1, 2, 3}}, Labels: []float64{4, 4, 4}}
	p := gbm.DefaultParams(0.5)
	p.MinRows = 1
	m, history, err := gbm.Train(d, gbm.Data{}, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Trees() != 0 || history.Kept != 0 || m.Predict([]float32{9, 9}) != 4 {
		t.Errorf("%d trees, %v", m.Trees(), m.Predict([]float32{9, 9}))
	}
	if ok, outside := m.Supported([]float32{1, 2}, 100); !ok || outside != -1 {
		t.Errorf("a constant supports everything in range, got %v, %d", ok, outside)
	}
}

func TestRefusals(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := gbm.Data{Columns: [][]float32{{1, 2}, {3, 4}}, Labels: []float64{1, 2}}
	for name, c := range map[string]struct {
		data, validation gbm.Data
		change           func(*gbm.Params)
		want             error
		text             string
	}{
		"no rows":      {data: gbm.Data{Columns: [][]float32{{}}}, want: gbm.ErrShape},
		"no features":  {data: gbm.Data{Labels: []float64{1}}, want: gbm.ErrShape},
		"ragged":       {data: gbm.Data{Columns: [][]float32{{1, 2}, {1}}, Labels: []float64{1, 2}}, want: gbm.ErrShape, text: "feature 1"},
		"few weights":  {data: gbm.Data{Columns: good.Columns, Labels: good.Labels, Weights: []float64{1}}, want: gbm.ErrShape},
		"no weight":    {data: gbm.Data{Columns: good.Columns, Labels: good.Labels, Weights: []float64{1, 0}}, want: gbm.ErrWeight, text: "row 1"},
		"NaN weight":   {data: gbm.Data{Columns: good.Columns, Labels: good.Labels, Weights: []float64{math.NaN(), 1}}, want: gbm.ErrWeight},
		"NaN":          {data: gbm.Data{Columns: [][]float32{{1, 2}, {3, nan}}, Labels: good.Labels}, want: gbm.ErrNotFinite, text: "row 1, feature 1"},
		"infinite":     {data: gbm.Data{Columns: [][]float32{{inf, 2}, {3, 4}}, Labels: good.Labels}, want: gbm.ErrNotFinite, text: "row 0, feature 0"},
		"NaN label":    {data: gbm.Data{Columns: good.Columns, Labels: []float64{math.NaN(), 1}}, want: gbm.ErrNotFinite, text: "row 0, label"},
		"far apart":    {data: gbm.Data{Columns: good.Columns, Labels: []float64{-1.7e308, 1.7e308}}, want: gbm.ErrNotFinite, text: "loss"},
		"validation":   {validation: gbm.Data{Columns: [][]float32{{nan}, {1}}, Labels: []float64{1}}, want: gbm.ErrNotFinite, text: "validation: "},
		"fewer there":  {validation: gbm.Data{Columns: [][]float32{{1}}, Labels: []float64{1}}, want: gbm.ErrShape},
		"level 0":      {change: func(p *gbm.Params) { p.Level = 0 }, want: gbm.ErrParams},
		"level NaN":    {change: func(p *gbm.Params) { p.Level = math.NaN() }, want: gbm.ErrParams},
		"rounds":       {change: func(p *gbm.Params) { p.Rounds = 0 }, want: gbm.ErrParams},
		"leaves":       {change: func(p *gbm.Params) { p.Leaves = 1025 }, want: gbm.ErrParams},
		"min rows":     {change: func(p *gbm.Params) { p.MinRows = 0 }, want: gbm.ErrParams},
		"bins":         {change: func(p *gbm.Params) { p.Bins = 256 }, want: gbm.ErrParams},
		"L2":           {change: func(p *gbm.Params) { p.L2 = -1 }, want: gbm.ErrParams},
		"rate":         {change: func(p *gbm.Params) { p.LearningRate = 1.1 }, want: gbm.ErrParams},
		"row share":    {change: func(p *gbm.Params) { p.RowFraction = 0 }, want: gbm.ErrParams},
		"column share": {change: func(p *gbm.Params) { p.FeatureFraction = 2 }, want: gbm.ErrParams},
		"no generator": {change: func(p *gbm.Params) { p.RowFraction = 0.5 }, want: gbm.ErrParams},
		"constraints":  {change: func(p *gbm.Params) { p.Monotone = []int8{1} }, want: gbm.ErrParams},
		"constraint":   {change: func(p *gbm.Params) { p.Monotone = []int8{1, 2} }, want: gbm.ErrParams, text: "feature 1"},
		"patience":     {change: func(p *gbm.Params) { p.Patience = -1 }, want: gbm.ErrParams},
	} {
		data, p := c.data, gbm.DefaultParams(0.5)
		if c.change != nil {
			c.change(&p)
		}
		if c.change != nil || c.validation.Labels != nil {
			data = good
		}
		m, _, err := gbm.Train(data, c.validation, p, nil)
		if m != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
