package conformal

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestCoverageIsARange(t *testing.T) {
	var c Coverage
	for v, n := range map[Verdict]int{Hit: 80, Miss: 10, Censored: 10, NoVerdict: 7} {
		for range n {
			c.Add(v)
		}
	}
	if low, high := c.Range(); low != 0.8 || high != 0.9 || c.Rows() != 100 {
		t.Errorf("80 hits, 10 misses, 10 censored: [%v, %v] of %d", low, high, c.Rows())
	}
	if low, high := (Coverage{}).Range(); low != 0 || high != 1 {
		t.Errorf("of no rows: [%v, %v]", low, high)
	}
	// Wilson's interval for 80 and for 90 of 100, to be found in any table: [0.711, 0.867] and [0.826, 0.945].
	low, high, err := c.Wilson(0.95)
	if err != nil || math.Abs(low-0.7112) > 5e-4 || math.Abs(high-0.9448) > 5e-4 {
		t.Errorf("Wilson: [%.4f, %.4f], %v", low, high, err)
	}
	low, high, err = Coverage{Hits: 50}.Wilson(0.95)
	if err != nil || math.Abs(low-0.9287) > 5e-4 || high != 1 {
		t.Errorf("Wilson for 50 of 50: [%.4f, %.4f], %v", low, high, err)
	}
	if low, high, err := (Coverage{}).Wilson(0.95); err != nil || low != 0 || high != 1 {
		t.Errorf("Wilson of nothing: [%v, %v], %v", low, high, err)
	}
	if _, _, err := c.Wilson(1); !errors.Is(err, ErrAlpha) {
		t.Errorf("certainty: %v", err)
	}
}

func TestStudentQuantile(t *testing.T) {
	for _, c := range []struct {
		confidence float64
		nu         int
		want       float64
	}{{0.95, 1, 12.7062}, {0.95, 2, 4.3027}, {0.95, 3, 3.1824}, {0.95, 4, 2.7764}, {0.95, 9, 2.2622}, {0.95, 29, 2.0452}, {0.99, 9, 3.2498},
		{0.9, 5, 2.0150}} {
		if got := studentQuantile(c.confidence, c.nu); math.Abs(got/c.want-1) > 0.002 {
			t.Errorf("t for %v and %d degrees: %.4f, want %.4f", c.confidence, c.nu, got, c.want)
		}
	}
}

// Runs differ in their coverage: the clustered interval holds its confidence, the one that takes rows for independent does not.
func TestClusteredIntervalHolds(t *testing.T) {
	const trials, runs, rows = 2000, 10, 200
	rng := rand.New(rand.NewPCG(18, 19))
	clustered, plain := 0, 0
	for range trials {
		cs := make([]Coverage, runs)
		for i := range cs {
			p := 0.9 + 0.06*(2*rng.Float64()-1)
			for range rows {
				if rng.Float64() < p {
					cs[i].Add(Hit)
				} else {
					cs[i].Add(Miss)
				}
			}
		}
		low, high, err := Clustered(cs, 0.95)
		if err != nil {
			t.Fatal(err)
		}
		if low <= 0.9 && 0.9 <= high {
			clustered++
		}
		if low, high, _ = Total(cs).Wilson(0.95); low <= 0.9 && 0.9 <= high {
			plain++
		}
	}
	c, p := float64(clustered)/trials, float64(plain)/trials
	t.Logf("intervals at 0.95 that hold: clustered %.3f, independent %.3f", c, p)
	if c < 0.93 || c > 0.99 {
		t.Errorf("clustered intervals at 0.95 hold in %.3f of trials", c)
	}
	if p > 0.9 {
		t.Errorf("intervals for independent rows hold in %.3f: the test has no clusters", p)
	}
}

func TestClusteredAtTheEdge(t *testing.T) {
	for _, runs := range [][]Coverage{nil, {{Hits: 5}}, {{Hits: 5}, {}}} {
		if _, _, err := Clustered(runs, 0.95); !errors.Is(err, ErrRuns) {
			t.Errorf("%v: %v", runs, err)
		}
	}
	if _, _, err := Clustered(make([]Coverage, 2), 0); !errors.Is(err, ErrAlpha) {
		t.Errorf("no confidence: %v", err)
	}
	low, high, err := Clustered([]Coverage{{Hits: 50}, {Hits: 50}, {Hits: 50}}, 0.95)
	if err != nil || high != 1 || low > 0.95 || low < 0.8 {
		t.Errorf("all hits: [%v, %v], %v", low, high, err)
	}
	a, b, _ := Clustered([]Coverage{{Hits: 90, Misses: 10}, {Hits: 88, Misses: 12}}, 0.95)
	c, d, _ := Clustered([]Coverage{{Hits: 90, Misses: 4, Censored: 6}, {Hits: 88, Misses: 5, Censored: 7}}, 0.95)
	if c != a || d <= b {
		t.Errorf("with censored rows [%v, %v], as misses [%v, %v]: only the upper end may move", c, d, a, b)
	}
}

func TestTally(t *testing.T) {
	g0, g1 := Group{0, 3}, Group{1, 0}
	tally := Tally{}
	for _, r := range []struct {
		run int
		g   Group
		v   Verdict
	}{{2, g0, Hit}, {2, g0, Miss}, {1, g0, Hit}, {1, g1, Censored}, {2, g1, Hit}, {2, g1, NoVerdict}, {3, g1, NoVerdict}} {
		tally.Add(r.run, Resolution{Group: r.g, Verdict: r.v})
	}
	if got, want := tally.Groups(), []Group{g0, g1}; !reflect.DeepEqual(got, want) {
		t.Errorf("groups %v", got)
	}
	if got, want := tally.Runs(g0), []Coverage{{Hits: 1}, {Hits: 1, Misses: 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("runs of %v: %v", g0, got)
	}
	if got, want := tally.Marginal(), []Coverage{{Hits: 1, Censored: 1}, {Hits: 2, Misses: 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("marginal: %v", got)
	}
	if got, want := Total(tally.Marginal()), (Coverage{Hits: 3, Misses: 1, Censored: 1}); got != want {
		t.Errorf("total: %v", got)
	}
}
