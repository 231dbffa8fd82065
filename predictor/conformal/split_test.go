package conformal

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRankIsExact(t *testing.T) {
	for _, c := range []struct {
		n     int
		alpha float64
		k     int
		ok    bool
	}{
		{99, 0.01, 99, true}, {98, 0.01, 99, false}, {100, 0.01, 100, true}, {199, 0.01, 198, true}, {200, 0.01, 199, true},
		{9, 0.1, 9, true}, {8, 0.1, 9, false}, {19, 0.05, 19, true}, {18, 0.05, 19, false}, {4, 0.2, 4, true}, {3, 0.2, 4, false},
		{999, 0.001, 999, true}, {998, 0.001, 999, false}, {0, 0.5, 1, false}, {1, 0.5, 1, true}, {1, 0.999, 1, true},
	} {
		if k, ok := Rank(c.n, c.alpha); k != c.k || ok != c.ok {
			t.Errorf("Rank(%d, %v) = %d, %v; want %d, %v", c.n, c.alpha, k, ok, c.k, c.ok)
		}
	}
	for _, alpha := range []float64{0, 1, -0.1, 1.1, math.NaN()} {
		if k, ok := Rank(1000, alpha); ok {
			t.Errorf("Rank(1000, %v) = %d", alpha, k)
		}
		if n := MinRows(alpha); n != 0 {
			t.Errorf("MinRows(%v) = %d", alpha, n)
		}
	}
}

// The rank in whole numbers, for levels in ten-thousandths: no rounding of floats may show.
func TestRankAgainstIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 100_000_000).Draw(t, "n")
		a := rapid.IntRange(1, 9999).Draw(t, "alpha")
		x := new(big.Int).Mul(big.NewInt(int64(n+1)), big.NewInt(int64(10_000-a)))
		want := int(x.Add(x, big.NewInt(9999)).Div(x, big.NewInt(10_000)).Int64())
		alpha := float64(a) / 10_000
		if k, ok := Rank(n, alpha); k != want || ok != (want <= n) {
			t.Fatalf("Rank(%d, %v) = %d, %v; want %d", n, alpha, k, ok, want)
		}
		least := (10_000+a-1)/a - 1
		if got := MinRows(alpha); got != least {
			t.Fatalf("MinRows(%v) = %d, want %d", alpha, got, least)
		}
	})
}

func TestSplitAtItsLimit(t *testing.T) {
	scores := make([]float64, 99)
	for i := range scores {
		scores[i] = float64((i * 37) % 99) // a permutation of 0 … 98
	}
	s, err := NewSplit(scores)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := s.Quantile(0.01); err != nil || q != 98 {
		t.Errorf("of 99 rows at 0.01: %v, %v; want the maximum, 98", q, err)
	}
	s, _ = NewSplit(scores[:98])
	if q, err := s.Quantile(0.01); !errors.Is(err, ErrLevel) {
		t.Errorf("of 98 rows at 0.01: %v, %v; want no bound", q, err)
	}
	if q, err := s.Quantile(0.02); err != nil || q < 90 {
		t.Errorf("of 98 rows at 0.02: %v, %v", q, err)
	}
	if _, err := s.Quantile(0); !errors.Is(err, ErrAlpha) {
		t.Errorf("at 0: %v", err)
	}
	scores[0] = math.Inf(1) // one row that would have missed any bound
	s, _ = NewSplit(scores)
	if q, err := s.Quantile(0.01); !errors.Is(err, ErrLevel) {
		t.Errorf("the maximum is infinite, and the bound is %v, %v", q, err)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
		if _, err := NewSplit([]float64{1, bad}); !errors.Is(err, ErrValue) {
			t.Errorf("a score of %v: %v", bad, err)
		}
	}
}

func TestSplitKeepsItsOwnCopy(t *testing.T) {
	in := []float64{3, 1, 2, 5, 4, 9, 8, 7, 6}
	s, _ := NewSplit(in)
	in[0] = 100
	out := s.Scores()
	out[8] = 100
	if q, err := s.Quantile(0.1); err != nil || q != 9 {
		t.Errorf("after the caller changed its slices: %v, %v", q, err)
	}
	again, err := NewSplit(s.Scores())
	if err != nil || !slices.Equal(again.Scores(), s.Scores()) {
		t.Errorf("scores %v come back as %v, %v", s.Scores(), again.Scores(), err)
	}
}

// The predictor knows nothing: it predicts one constant for latencies over two decades. Scores are continuous, so that coverage
// over calibration sets is exactly k/(n+1); the tolerance is 4 standard errors of a binomial (a false failure in 16,000 cells).
func TestMarginalCoverageOfAUselessPredictor(t *testing.T) {
	const sets = 2000
	rng := rand.New(rand.NewPCG(1, 2))
	latency := func() float64 { return math.Exp(1.5 * rng.NormFloat64()) }
	for _, score := range []Score{Ratio, Absolute, Scaled} {
		for _, alpha := range []float64{0.2, 0.1, 0.05, 0.01} {
			for _, n := range []int{MinRows(alpha), MinRows(alpha) + 50} {
				hits := 0
				scores := make([]float64, n)
				for range sets {
					for i := range scores {
						scores[i], _ = score.Of(latency(), 3, 2)
					}
					s, err := NewSplit(scores)
					if err != nil {
						t.Fatal(err)
					}
					q, err := s.Quantile(alpha)
					if err != nil {
						t.Fatal(err)
					}
					if u, _ := score.Bound(3, 2, q); latency() <= u {
						hits++
					}
				}
				k, _ := Rank(n, alpha)
				want := float64(k) / float64(n+1)
				got := float64(hits) / sets
				tol := 4 * math.Sqrt(want*(1-want)/sets)
				t.Logf("%-8v α %.2f n %3d: coverage %.4f, exact %.4f ± %.4f", score, alpha, n, got, want, tol)
				if math.Abs(got-want) > tol {
					t.Errorf("%v at α %v from %d rows: coverage %.4f, exactly %.4f ± %.4f", score, alpha, n, got, want, tol)
				}
				if want < 1-alpha-1e-12 {
					t.Errorf("the exact coverage %v is below 1−%v", want, alpha)
				}
			}
		}
	}
}

func TestSplitIsMonotoneInAlpha(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := NewSplit(rapid.SliceOfN(rapid.Float64Range(-5, 5), 0, 300).Draw(t, "scores"))
		if err != nil {
			t.Fatal(err)
		}
		a := rapid.Float64Range(0.001, 0.998).Draw(t, "a")
		b := rapid.Float64Range(a, 0.999).Draw(t, "b")
		qa, errA := s.Quantile(a)
		qb, errB := s.Quantile(b)
		if errB != nil && errA == nil {
			t.Fatalf("a bound at %v and none at %v", a, b)
		}
		if errA == nil && qa < qb {
			t.Fatalf("quantile %v at %v, %v at %v", qa, a, qb, b)
		}
	})
}
