package conformal

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// runLength is the mean number of rows to the first alarm of a side, from a fresh start, at a share p of misses, and its standard error.
func runLength(t *testing.T, alpha, arl, p float64, which Side, runs int) (mean, se float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(20, uint64(which)))
	sum, square := 0.0, 0.0
	for range runs {
		c := must(NewCUSUM(alpha, 2, arl))
		n := 0
		for {
			n++
			if a, ok := c.Observe(rng.Float64() < p); ok && a.Side == which {
				if a.Rows < 1 || a.Rows > n || a.Misses > a.Rows {
					t.Fatalf("%+v after %d rows", a, n)
				}
				break
			}
		}
		sum += float64(n)
		square += float64(n) * float64(n)
	}
	mean = sum / float64(runs)
	return mean, math.Sqrt((square/float64(runs) - mean*mean) / float64(runs))
}

func TestRunLengthInControlIsTheOneStated(t *testing.T) {
	for _, c := range []struct{ alpha, arl float64 }{{0.2, 500}, {0.1, 1000}, {0.05, 1000}, {0.01, 2000}} {
		s := must(NewCUSUM(c.alpha, 2, c.arl))
		up, down := s.ARL()
		for which, stated := range map[Side]float64{TooManyMisses: up, TooFewMisses: down} {
			mean, se := runLength(t, c.alpha, c.arl, c.alpha, which, 300)
			shifted := c.alpha * 2
			if which == TooFewMisses {
				shifted = c.alpha / 2
			}
			found, _ := runLength(t, c.alpha, c.arl, shifted, which, 50)
			t.Logf("α %.2f %v: stated %.0f rows, simulated %.0f ± %.0f; after a change by 2 it takes %.0f", c.alpha, which, stated, mean, se, found)
			if stated < c.arl || stated > 2*c.arl {
				t.Errorf("α %v %v: %v rows where %v were asked for", c.alpha, which, stated, c.arl)
			}
			if math.Abs(mean-stated) > 4*se {
				t.Errorf("α %v %v: stated %.0f rows, simulated %.0f ± %.0f", c.alpha, which, stated, mean, se)
			}
			if found > stated/3 {
				t.Errorf("α %v %v: a change by a factor 2 is found after %.0f rows, false alarms come after %.0f", c.alpha, which, found, stated)
			}
		}
	}
}

// naiveARL solves the chain's equations by Gauss elimination.
func naiveARL(p float64, miss, hit, limit int) float64 {
	m := make([][]float64, limit)
	for j := range m {
		m[j] = make([]float64, limit+1)
		m[j][j]++
		m[j][limit] = 1
		for _, s := range []struct {
			step int
			p    float64
		}{{miss, p}, {hit, 1 - p}} {
			if to := max(0, j+s.step); to < limit {
				m[j][to] -= s.p
			}
		}
	}
	for i := range m {
		for j := i + 1; j < limit; j++ {
			f := m[j][i] / m[i][i]
			for k := i; k <= limit; k++ {
				m[j][k] -= f * m[i][k]
			}
		}
	}
	for i := limit - 1; i >= 0; i-- {
		for k := i + 1; k < limit; k++ {
			m[i][limit] -= m[i][k] * m[k][limit]
		}
		m[i][limit] /= m[i][i]
	}
	return m[0][limit]
}

func TestRunLengthAgainstElimination(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Float64Range(0.02, 0.5).Draw(t, "p")
		m := rapid.IntRange(1, 20).Draw(t, "m")
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		for name, pair := range map[string][2]float64{
			"up":   {upARL(p, m, limit), naiveARL(p, m, -1, limit)},
			"down": {downARL(p, m, limit), naiveARL(p, -m, 1, limit)},
		} {
			// Beyond, the elimination itself cancels, down to negative lengths.
			if pair[0] < 1e8 && math.Abs(pair[0]/pair[1]-1) > 1e-6 {
				t.Fatalf("%s, p %v, m %d, limit %d: %v, by elimination %v", name, p, m, limit, pair[0], pair[1])
			}
		}
	})
}

// Where the solution grows beyond what an elimination can tell, it does not fall or turn negative.
func TestRunLengthGrowsWithTheLimit(t *testing.T) {
	for limit, last := 1, [2]float64{}; limit < 2000; limit++ {
		next := [2]float64{upARL(0.1, 6, limit), downARL(0.1, 12, limit)}
		if !(next[0] >= last[0]) || !(next[1] >= last[1]) {
			t.Fatalf("limit %d: %v after %v", limit, next, last)
		}
		last = next
	}
}

func TestAlarmsSayWhere(t *testing.T) {
	c := must(NewCUSUM(0.1, 2, 5000))
	feed := func(n int, miss func(i int) bool) (alarms []Alarm) {
		for i := range n {
			if a, ok := c.Observe(miss(i)); ok {
				alarms = append(alarms, a)
			}
		}
		return alarms
	}
	if a := feed(5000, func(i int) bool { return i%10 == 9 }); len(a) != 0 {
		t.Errorf("misses evenly at the level: %+v", a)
	}
	a := feed(60, func(i int) bool { return i%2 == 0 })
	if len(a) == 0 || a[0].Side != TooManyMisses || a[0].Rows > 70 || a[0].Misses*3 < a[0].Rows {
		t.Errorf("every second a miss: %+v", a)
	}
	if a = feed(400, func(int) bool { return false }); len(a) == 0 || a[0].Side != TooFewMisses || a[0].Misses != 0 {
		t.Errorf("no misses: %+v", a)
	}
}

func TestCUSUMGoesOnAfterExport(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 23))
	a := must(NewCUSUM(0.1, 2, 200))
	b := a
	for i := range 3000 {
		if i%37 == 0 {
			b = must(ImportCUSUM(b.Export()))
		}
		miss := rng.Float64() < 0.15
		x, okx := a.Observe(miss)
		y, oky := b.Observe(miss)
		if x != y || okx != oky || a.Export() != b.Export() {
			if a == b {
				t.Fatal("not a copy")
			}
			t.Fatalf("row %d: %+v, %v; %+v, %v", i, x, okx, y, oky)
		}
	}
	for _, s := range []CUSUMState{
		{},
		{Alpha: 0.1, Factor: 2, ARL: 200, At: [2]int{-1, 0}},
		{Alpha: 0.1, Factor: 2, ARL: 200, At: [2]int{0, 1 << 30}},
		{Alpha: 0.1, Factor: 2, ARL: 200, Misses: [2]int{3, 0}},
	} {
		if _, err := ImportCUSUM(s); !errors.Is(err, ErrState) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, c := range [][3]float64{{0.1, 1, 100}, {0.5, 2, 100}, {0.1, 2, 0}, {0.1, 2, math.NaN()}, {0.0001, 2, 100}, {0.1, math.NaN(), 100}} {
		if _, err := NewCUSUM(c[0], c[1], c[2]); !errors.Is(err, ErrValue) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
