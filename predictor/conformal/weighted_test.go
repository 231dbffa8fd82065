package conformal

import (
	"cmp"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naiveWeighted is the definition, in rationals: the lowest score such that rows up to it have 1−α of all mass, the test row's at +∞
// included, alpha in hundredths.
func naiveWeighted(rows []WeightedRow, hundredths int64, test float64) (float64, bool) {
	sum, square := new(big.Rat).SetFloat64(test), new(big.Rat).SetFloat64(test*test)
	for _, r := range rows {
		sum.Add(sum, new(big.Rat).SetFloat64(r.Weight))
		square.Add(square, new(big.Rat).SetFloat64(r.Weight*r.Weight))
	}
	// (Σw)²·α ≥ Σw²
	gate := new(big.Rat).Mul(sum, sum)
	if gate.Mul(gate, big.NewRat(hundredths, 100)).Cmp(square) < 0 {
		return 0, false
	}
	need := new(big.Rat).Mul(sum, big.NewRat(100-hundredths, 100))
	best, found := math.Inf(1), false
	for _, c := range rows {
		below := new(big.Rat)
		for _, r := range rows {
			if r.Score <= c.Score {
				below.Add(below, new(big.Rat).SetFloat64(r.Weight))
			}
		}
		if c.Weight > 0 && below.Cmp(need) >= 0 && c.Score < best {
			best, found = c.Score, true
		}
	}
	return best, found
}

func TestWeightedAgainstTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.Custom(func(t *rapid.T) WeightedRow {
			return WeightedRow{
				Score:  float64(rapid.IntRange(-20, 20).Draw(t, "score")),
				Weight: float64(rapid.SampledFrom([]int{0, 1, 1, 1, 2, 4, 8, 100}).Draw(t, "weight")), // squares are exact
			}
		})
		rows := rapid.SliceOfN(row, 0, 60).Draw(t, "rows")
		hundredths := rapid.Int64Range(1, 60).Draw(t, "alpha")
		test := float64(rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "test"))
		w, err := NewWeighted(rows)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.Quantile(float64(hundredths)/100, test)
		want, ok := naiveWeighted(rows, hundredths, test)
		if ok != (err == nil) || ok && got != want {
			t.Fatalf("%v, %v; by definition %v, %v", got, err, want, ok)
		}
		if err != nil && !errors.Is(err, ErrLevel) {
			t.Fatal(err)
		}
	})
}

func TestEqualWeightsAreSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Float64Range(-5, 5), 0, 300).Draw(t, "scores")
		weight := 1 / rapid.Float64Range(0.01, 1).Draw(t, "propensity")
		alpha := float64(rapid.IntRange(1, 99).Draw(t, "alpha")) / 100
		rows := make([]WeightedRow, len(scores))
		for i, s := range scores {
			rows[i] = WeightedRow{s, weight}
		}
		w, err := NewWeighted(rows)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := NewSplit(scores)
		q1, err1 := w.Quantile(alpha, weight)
		q2, err2 := s.Quantile(alpha)
		if q1 != q2 || (err1 == nil) != (err2 == nil) {
			t.Fatalf("weighted %v, %v; split %v, %v", q1, err1, q2, err2)
		}
	})
}

func TestWeightedIsMonotoneInAlphaAndTestWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.Custom(func(t *rapid.T) WeightedRow {
			return WeightedRow{rapid.Float64Range(-5, 5).Draw(t, "score"), rapid.Float64Range(0.1, 20).Draw(t, "weight")}
		})
		w, err := NewWeighted(rapid.SliceOfN(row, 0, 200).Draw(t, "rows"))
		if err != nil {
			t.Fatal(err)
		}
		a := rapid.Float64Range(0.001, 0.998).Draw(t, "a")
		b := rapid.Float64Range(a, 0.999).Draw(t, "b")
		qa, errA := w.Quantile(a, 1)
		qb, errB := w.Quantile(b, 1)
		if errB != nil && errA == nil || errA == nil && qa < qb {
			t.Fatalf("%v, %v at %v; %v, %v at %v", qa, errA, a, qb, errB, b)
		}
		heavy, err := w.Quantile(a, 5)
		if err == nil && errA == nil && heavy < qa {
			t.Fatalf("a test row of more mass is bounded by less: %v, %v", heavy, qa)
		}
	})
}

// Selection by a rule that depends on the row: unweighted calibration misses its level, weighted holds it.
func TestWeightsUndoSelection(t *testing.T) {
	const sets, alpha = 1000, 0.1
	rng := rand.New(rand.NewPCG(3, 4))
	plain, weighted, n := 0, 0, 0
	for range sets {
		var rows []WeightedRow
		var scores []float64
		for range 400 {
			slow := rng.Float64() < 0.5
			x, p := rng.NormFloat64(), 0.9
			if slow {
				x, p = x+3, 0.1 // the rule lets few of these in
			}
			if rng.Float64() < p {
				rows = append(rows, WeightedRow{x, 1 / p})
				scores = append(scores, x)
			}
		}
		w, err := NewWeighted(rows)
		if err != nil {
			t.Fatal(err)
		}
		x, p := rng.NormFloat64(), 0.9
		if rng.Float64() < 0.5 {
			x, p = x+3, 0.1
		}
		q, err := w.Quantile(alpha, 1/p)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := NewSplit(scores)
		q0, _ := s.Quantile(alpha)
		n++
		if x <= q {
			weighted++
		}
		if x <= q0 {
			plain++
		}
	}
	tol := 4 * math.Sqrt(alpha*(1-alpha)/sets)
	cw, cp := float64(weighted)/float64(n), float64(plain)/float64(n)
	t.Logf("coverage weighted %.3f, unweighted %.3f, nominal 0.9 ± %.3f", cw, cp, tol)
	if cw < 1-alpha-tol || cw > 1-alpha+2*tol {
		t.Errorf("weighted coverage %.3f", cw)
	}
	if cp > 0.7 {
		t.Errorf("unweighted coverage %.3f: the test does not select", cp)
	}
}

func TestWeightedRefusesBadRows(t *testing.T) {
	for _, r := range []WeightedRow{{math.NaN(), 1}, {math.Inf(-1), 1}, {0, -1}, {0, math.NaN()}, {0, math.Inf(1)}, {0, 1e200}} {
		if _, err := NewWeighted([]WeightedRow{r}); !errors.Is(err, ErrValue) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	w, err := NewWeighted(nil)
	if err != nil || w.EffectiveRows(0) != 0 || w.EffectiveRows(3) != 1 {
		t.Errorf("no rows: %v, %v, %v", err, w.EffectiveRows(0), w.EffectiveRows(3))
	}
	for _, test := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := w.Quantile(0.1, test); !errors.Is(err, ErrValue) {
			t.Errorf("test weight %v: %v", test, err)
		}
	}
}

func TestWeightedForgetsTheOrderOfRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	rows := make([]WeightedRow, 500)
	for i := range rows {
		rows[i] = WeightedRow{float64(rng.IntN(20)), 1 / (0.05 + rng.Float64())}
	}
	a, _ := NewWeighted(rows)
	slices.SortFunc(rows, func(a, b WeightedRow) int { return cmp.Compare(a.Weight, b.Weight) })
	b, _ := NewWeighted(rows)
	if a.EffectiveRows(1) != b.EffectiveRows(1) || !slices.Equal(a.cum, b.cum) {
		t.Error("the sums depend on the order of the rows")
	}
}
