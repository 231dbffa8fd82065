package trainer_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/trainer"
	"pgregory.net/rapid"
)

var day = time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC)

// synthetic draws rounds of runs whose rows have a residual that goes with what waits and with the prompt, bent, and noise that is wider
// where more waits. Each run has a shift of its own: its rows are not independent.
func synthetic(seed uint64, rounds, runs, rows int) []trainer.Row {
	rng := rand.New(rand.NewPCG(seed, 0x73796e))
	var all []trainer.Row
	for round := range rounds {
		for run := range runs {
			shift := 0.03 * rng.NormFloat64()
			for range rows {
				x := make([]float32, feature.Count)
				for f := range x {
					x[f] = rng.Float32()
				}
				x[feature.PromptTokens] = float32(1 + rng.IntN(1000))
				x[feature.Waiting] = 3 * rng.Float32()
				x[feature.PrefillTokens] = x[feature.PromptTokens] * rng.Float32()
				x[feature.CachedTokens] = x[feature.PromptTokens] - x[feature.PrefillTokens]
				wait := float64(x[feature.Waiting])
				all = append(all, trainer.Row{
					Known: trainer.Known{Features: x, Predicted: 0.5 + 2*wait, Class: uint16(rng.IntN(2)), Load: feature.Load(x), Weight: 1},
					Round: round, Run: round*runs + run, At: day.Add(time.Duration(len(all)) * time.Second),
					Label: 0.2*wait*wait + 0.3*math.Sqrt(float64(x[feature.PrefillTokens])/1000) + shift + (0.05+0.05*wait)*rng.NormFloat64(),
				})
			}
		}
	}
	return all
}

func split(t fataler, rows []trainer.Row, rotation int) trainer.Folds {
	f, err := trainer.Split(rows, rotation)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

type fataler interface{ Fatal(...any) }

// quick is a configuration that fits fast.
func quick(alpha float64) trainer.Config {
	c := trainer.DefaultConfig(alpha)
	c.Params.Rounds, c.Params.LearningRate = 60, 0.15
	return c
}

func fit(t fataler, f trainer.Folds, c trainer.Config) *trainer.Candidate {
	m, err := trainer.Fit(f.Fit, f.Calibrate, c, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// No round and no run is in two folds; every row is in one; over the rotations each round tests once and calibrates once.
func TestFoldsAreDisjointByRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.IntRange(-100, 100), 4, 9, rapid.ID[int]).Draw(t, "rounds")
		var rows []trainer.Row
		for i, round := range ids {
			for run := range rapid.IntRange(1, 3).Draw(t, "runs") {
				for range rapid.IntRange(1, 4).Draw(t, "rows") {
					rows = append(rows, trainer.Row{Round: round, Run: 10*i + run, Label: float64(len(rows))})
				}
			}
		}
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		tests, calibrates := map[int]int{}, map[int]int{}
		for rotation := range trainer.Rotations {
			f := split(t, rows, rotation)
			fold, seen, label := map[int]int{}, map[int]bool{}, map[float64]bool{}
			for i, part := range [][]trainer.Row{f.Fit, f.Calibrate, f.Test} {
				if len(part) == 0 {
					t.Fatalf("rotation %d: fold %d is empty", rotation, i)
				}
				for _, r := range part {
					if was, ok := fold[r.Round]; ok && was != i {
						t.Fatalf("rotation %d: round %d is in folds %d and %d", rotation, r.Round, was, i)
					}
					fold[r.Round] = i
					label[r.Label] = true
					if i > 0 && !seen[r.Round] {
						seen[r.Round] = true
						if i == 1 {
							calibrates[r.Round]++
						} else {
							tests[r.Round]++
						}
					}
				}
			}
			if len(label) != len(rows) || len(f.Fit)+len(f.Calibrate)+len(f.Test) != len(rows) {
				t.Fatalf("rotation %d: %d rows of %d", rotation, len(label), len(rows))
			}
		}
		for _, id := range ids {
			if tests[id] != 1 || calibrates[id] != 1 {
				t.Fatalf("round %d tests %d times, calibrates %d times", id, tests[id], calibrates[id])
			}
		}
	})
}

func TestSplitRefuses(t *testing.T) {
	rows := synthetic(1, 3, 1, 1)
	expect(t, trainer.ErrRounds, func() error { _, err := trainer.Split(rows, 0); return err })
	rows = synthetic(1, 4, 1, 1)
	for _, r := range []int{-1, trainer.Rotations} {
		expect(t, trainer.ErrConfig, func() error { _, err := trainer.Split(rows, r); return err })
	}
	rows[3].Run = rows[0].Run
	expect(t, trainer.ErrRow, func() error { _, err := trainer.Split(rows, 0); return err })
}

// A rare regime survives any number of rows of a common one, of which a uniform sample is kept; together the weights stand for all.
func TestReservoirKeepsRareStrata(t *testing.T) {
	const per, common = 50, 20_000
	r, err := trainer.NewReservoir(per, rand.New(rand.NewPCG(3, 3)))
	if err != nil {
		t.Fatal(err)
	}
	add := func(i int, waiting, free, cached float32) {
		x := make([]float32, feature.Count)
		x[feature.PromptTokens], x[feature.Waiting], x[feature.Free], x[feature.CachedTokens] = 100, waiting, free, cached
		row := trainer.Row{Known: trainer.Known{Features: x, Predicted: 1, Weight: 2}, Run: i, At: day}
		if err := r.Add(row); err != nil {
			t.Fatal(err)
		}
		x[feature.Waiting] = -1 // the reservoir has its own
	}
	for i := range common {
		if i < 7 {
			add(-1-i, 5, 0.1, 90) // never again
		}
		if i%100 == 0 {
			add(i, 0.3, 0.4, 10)
		}
		add(i, 0, 1, 0)
	}
	kept, weight, middle, last := map[trainer.Stratum]int{}, map[trainer.Stratum]float64{}, 0.0, math.MinInt
	for _, row := range r.Rows() {
		s := trainer.StratumOf(row.Features)
		kept[s]++
		weight[s] += row.Weight
		if s == (trainer.Stratum{}) {
			middle += float64(row.Run) / per
			if row.Run < last {
				t.Fatal("not in the order in which they came")
			}
			last = row.Run
		}
	}
	want := map[trainer.Stratum][2]int{{}: {per, common}, {Queue: 3, KV: 2, Prefix: 2}: {7, 7}, {Queue: 1, KV: 1, Prefix: 1}: {per, common / 100}}
	if len(kept) != len(want) {
		t.Fatalf("%d strata", len(kept))
	}
	for s, n := range want {
		if kept[s] != n[0] || math.Abs(weight[s]-2*float64(n[1])) > 1e-6*weight[s] {
			t.Errorf("%v: %d kept, of weight %v, want %d and %d", s, kept[s], weight[s], n[0], 2*n[1])
		}
	}
	// The mean of 50 of 20,000 has a deviation of 816.
	if math.Abs(middle-common/2) > 3*816 {
		t.Errorf("the common rows are not a uniform sample: their mean is %v", middle)
	}
	counts := map[[2]int64]bool{}
	for _, s := range r.Strata() {
		counts[[2]int64{s.Kept, s.Seen}] = true
	}
	for _, n := range want {
		if !counts[[2]int64{int64(n[0]), int64(n[1])}] {
			t.Errorf("strata are %+v", r.Strata())
		}
	}
	expect(t, trainer.ErrRow, func() error { return r.Add(trainer.Row{}) })
	expect(t, trainer.ErrConfig, func() error { _, err := trainer.NewReservoir(0, rand.New(rand.NewPCG(0, 0))); return err })
}

// Raising a feature along its sign alone never makes a latency shorter, for any request.
func TestFittedModelIsMonotone(t *testing.T) {
	rows := synthetic(5, 4, 2, 300)
	// Against the sign: what the constraint is for.
	for i := range rows {
		rows[i].Label -= 0.4 * float64(rows[i].Features[feature.CapTokens])
	}
	c := quick(0.1)
	m := fit(t, split(t, rows, 0), c)
	moved := 0
	rapid.Check(t, func(t *rapid.T) {
		x := slices.Clone(rows[rapid.IntRange(0, len(rows)-1).Draw(t, "row")].Features)
		f := rapid.IntRange(0, feature.Count-1).Draw(t, "feature")
		before := m.Model.Predict(x)
		x[f] += rapid.Float32Range(0, 2).Draw(t, "more") * max(1, x[f])
		after := m.Model.Predict(x)
		if sign := float64(c.Features[f].Sign); sign*(after-before) < 0 {
			t.Fatalf("%s: from %v to %v", c.Features[f].Name, before, after)
		}
		if after != before {
			moved++
		}
	})
	if moved == 0 {
		t.Error("no prediction has moved")
	}
	free := c
	for i := range free.Features {
		free.Features[i].Sign = 0
	}
	x := slices.Clone(rows[0].Features)
	x[feature.CapTokens] = 0.05
	y := slices.Clone(x)
	y[feature.CapTokens] = 0.95
	if f := fit(t, split(t, rows, 0), free); f.Model.Predict(y) >= f.Model.Predict(x) {
		t.Error("without signs the model does not follow the rows")
	}
}
