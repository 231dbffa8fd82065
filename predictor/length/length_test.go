package length

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestEdgesAscend(t *testing.T) {
	for b := range Bins {
		if edges[b] <= lower(b) {
			t.Fatalf("bin %d is (%d, %d]", b, lower(b), edges[b])
		}
		if bin(lower(b)+1) != b || bin(edges[b]) != b {
			t.Fatalf("bin %d does not hold its edges", b)
		}
	}
	if edges[Bins-1] != Longest || edges[Bins-2] < 32768 {
		t.Fatalf("the last bins end at %d and %d", edges[Bins-2], edges[Bins-1])
	}
}

// A class with nothing seen has the prior that the documentation states.
func TestPrior(t *testing.T) {
	var zero Table
	for _, table := range []*Table{&zero, New(2, 100)} {
		for _, class := range []int32{-1, 0, 7} {
			if q := table.Quantile(class, 0, 1<<16, 0.5); q < 22 || q > 26 {
				t.Errorf("median %v, want about 24", q)
			}
			if q := table.Quantile(class, 0, 1<<16, 0.9); q < 720 || q > 880 {
				t.Errorf("nine tenths %v, want about 800", q)
			}
			if q := table.Quantile(class, 0, 64, 0.9); q != 64 {
				t.Errorf("nine tenths %v of a cap of 64", q)
			}
		}
	}
}

func draw(t *rapid.T) *Table {
	table := New(3, rapid.SampledFrom([]float64{0, 1, 50}).Draw(t, "half-life"))
	n := rapid.IntRange(0, 60).Draw(t, "answers")
	tokens := rapid.OneOf(rapid.Int32Range(-1, 40), rapid.Int32Range(1, 5000), rapid.Int32())
	for range n {
		table.Observe(rapid.Int32Range(-1, 3).Draw(t, "class"), tokens.Draw(t, "tokens"), rapid.Bool().Draw(t, "cut"))
	}
	return table
}

// Whatever was seen, what is left is a distribution within the cap, and its parts agree.
func TestRemainingIsADistribution(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := draw(t)
		class := rapid.Int32Range(-1, 3).Draw(t, "class")
		limit := rapid.OneOf(rapid.Int32Range(1, 50), rapid.Int32Range(1, Longest)).Draw(t, "cap")
		done := rapid.Int32Range(0, limit-1).Draw(t, "done")
		var d Dist
		table.Remaining(class, done, limit, &d)
		sum, last := 0.0, 0.0
		for i := range d.N {
			if !(d.Prob[i] >= 0) || d.Tokens[i] < last || d.Tokens[i] < 1-1e-9 || d.Tokens[i] > float64(limit-done) {
				t.Fatalf("point %d of %d: %v tokens with %v, %v before, at most %d", i, d.N, d.Tokens[i], d.Prob[i], last, limit-done)
			}
			sum += d.Prob[i]
			last = d.Tokens[i]
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("probabilities sum to %v", sum)
		}
		if m := table.Mean(class, done, limit); m != d.Mean() {
			t.Fatalf("mean %v, of the points %v", m, d.Mean())
		}
		var q [9]float64
		table.Spread(class, done, limit, q[:])
		for i, x := range q {
			if one := table.Quantile(class, done, limit, (float64(i)+0.5)/9); one != x {
				t.Fatalf("quantile %d: %v alone, %v among others", i, one, x)
			}
			if x < 1 || x > float64(limit-done) || i > 0 && x < q[i-1] || x != math.Trunc(x) {
				t.Fatalf("quantiles %v, at most %d", q, limit-done)
			}
		}
	})
}

// Odd figures give a distribution, too.
func TestOddFigures(t *testing.T) {
	table := New(1, 10)
	table.Observe(0, math.MaxInt32, false)
	table.Observe(0, math.MinInt32, true)
	for _, x := range [][2]int32{{0, 0}, {5, 5}, {9, 3}, {-4, 10}, {math.MaxInt32, math.MaxInt32}, {math.MinInt32, math.MinInt32}} {
		var d Dist
		table.Remaining(0, x[0], x[1], &d)
		if d.N < 1 || !(d.Mean() >= 1) {
			t.Errorf("%v: %d points, mean %v", x, d.N, d.Mean())
		}
		if q := table.Quantile(0, x[0], x[1], math.NaN()); !(q >= 1) {
			t.Errorf("%v: quantile %v", x, q)
		}
	}
}

// Answers of one length are known to end there, from wherever one looks.
func TestOneLength(t *testing.T) {
	table := New(1, 0)
	for range 500 {
		table.Observe(0, 64, false)
	}
	for _, done := range []int32{0, 10, 60, 63} {
		if q := table.Quantile(0, done, 256, 0.5); math.Abs(q-float64(64-done)) > 1 {
			t.Errorf("after %d: median %v, want %d", done, q, 64-done)
		}
		if m := table.Mean(0, done, 256); math.Abs(m-float64(64-done)) > 2 {
			t.Errorf("after %d: mean %v, want %d", done, m, 64-done)
		}
	}
	if q := table.Quantile(0, 0, 50, 0.5); q != 50 {
		t.Errorf("median %v under a cap of 50", q)
	}
}

// The table approaches the distribution that it learns from: against the answers themselves, at several points of them, and
// with three in ten cut by caps that have nothing to do with their lengths.
func TestLearnsADistribution(t *testing.T) {
	for _, cut := range []bool{false, true} {
		rng := rand.New(rand.NewPCG(1, 2))
		table := New(1, 0)
		var all []float64
		for range 20000 {
			n := math.Ceil(math.Exp(4.5 + 0.9*rng.NormFloat64()))
			limit := 1e6
			if cut {
				limit = math.Ceil(math.Exp(5.2 + 1.2*rng.NormFloat64()))
			}
			table.Observe(0, int32(min(n, limit)), n > limit)
			all = append(all, n)
		}
		for _, done := range []int32{0, 50, 200} {
			var of []float64
			for _, n := range all {
				if n > float64(done) {
					of = append(of, n)
				}
			}
			for _, k := range []int32{60, 100, 250, 500, 1000} {
				above := 0
				for _, n := range of {
					if n > float64(k) {
						above++
					}
				}
				want := float64(above) / float64(len(of))
				c := table.of(0)
				got := min(1, c.above(bin(k), float64(k))/c.above(bin(done+1), float64(done)))
				if math.Abs(got-want) > 0.03 {
					t.Errorf("cut %v, after %d: above %d with %.3f, want %.3f", cut, done, k, got, want)
				}
			}
			mean := 0.0
			for _, n := range of {
				mean += min(n, 2000) - float64(done)
			}
			mean /= float64(len(of))
			if got := table.Mean(0, done, 2000); math.Abs(got/mean-1) > 0.08 {
				t.Errorf("cut %v, after %d: mean %v, want %v", cut, done, got, mean)
			}
		}
	}
}

// Kaplan and Meier's estimate, written out over single lengths, agrees at the ends of bins that hold one length each; there the
// prior of one answer is all that differs.
func TestKaplanMeier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type answer struct {
			tokens int32
			cut    bool
		}
		var answers []answer
		table := New(1, 0)
		for range rapid.IntRange(200, 400).Draw(t, "answers") {
			a := answer{rapid.Int32Range(1, 7).Draw(t, "tokens"), rapid.IntRange(0, 3).Draw(t, "cut") == 0}
			answers = append(answers, a)
			table.Observe(0, a.tokens, a.cut)
		}
		alive := 1.0
		for k := int32(1); k <= 7; k++ {
			risk, ended := 0.0, 0.0
			for _, a := range answers {
				if a.tokens >= k {
					risk++
				}
				if a.tokens == k && !a.cut {
					ended++
				}
			}
			alive *= 1 - (ended+prior[k-1])/(risk+1)
			if got := table.of(0).above(bin(k), float64(k)); math.Abs(got-alive) > 1e-12 {
				t.Fatalf("above %d with %v, want %v", k, got, alive)
			}
		}
	})
}

// What is recent counts.
func TestForgets(t *testing.T) {
	table := New(2, 100)
	for range 2000 {
		table.Observe(0, 1000, false)
		table.Observe(1, 77, false)
	}
	for range 500 {
		table.Observe(0, 20, false)
	}
	if q := table.Quantile(0, 0, 4096, 0.9); math.Abs(q-20) > 1 {
		t.Errorf("nine tenths at %v, want 20", q)
	}
	if q := table.Quantile(1, 0, 4096, 0.5); math.Abs(q-77) > 1 {
		t.Errorf("the other class has a median of %v, want 77", q)
	}
}

func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := draw(t)
		b, err := json.Marshal(table.State())
		if err != nil {
			t.Fatal(err)
		}
		var s State
		if err := json.Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		got, err := Restore(s)
		if err != nil {
			t.Fatal(err)
		}
		table.Observe(1, 30, false)
		got.Observe(1, 30, false)
		for class := range int32(3) {
			for _, p := range []float64{0.1, 0.5, 0.9} {
				if a, b := table.Quantile(class, 3, 900, p), got.Quantile(class, 3, 900, p); a != b {
					t.Fatalf("class %d: %v, restored %v", class, a, b)
				}
			}
		}
	})
}

func TestRestoreRefuses(t *testing.T) {
	good := New(1, 10)
	good.Observe(0, 100, false)
	for name, change := range map[string]func(*State){
		"half-life": func(s *State) { s.HalfLife = math.NaN() },
		"risk":      func(s *State) { s.Classes[0].Risk[3] = -1 },
		"ended":     func(s *State) { s.Classes[0].Ended[2] = 5 },
		"tokens":    func(s *State) { s.Classes[0].Tokens[bin(100)] = 3 },
		"squares":   func(s *State) { s.Classes[0].Squares[bin(100)] = math.Inf(1) },
	} {
		s := good.State()
		change(&s)
		if _, err := Restore(s); !errors.Is(err, ErrTable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	table := New(1, 100)
	table.Observe(0, 100, false)
	var d Dist
	var q [8]float64
	if n := testing.AllocsPerRun(100, func() {
		table.Remaining(0, 5, 512, &d)
		table.Spread(0, 5, 512, q[:])
		table.Observe(0, 90, false)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// BenchmarkSpread is eight quantiles of what is left: go test -bench . ./predictor/length.
func BenchmarkSpread(b *testing.B) {
	table := New(1, 1000)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		table.Observe(0, int32(math.Exp(4+rng.NormFloat64()))+1, false)
	}
	var q [8]float64
	b.ReportAllocs()
	i := int32(0)
	for b.Loop() {
		i++
		table.Spread(0, i&127, 512, q[:])
	}
}

// BenchmarkObserve is one answer learned.
func BenchmarkObserve(b *testing.B) {
	table := New(1, 1000)
	b.ReportAllocs()
	i := int32(0)
	for b.Loop() {
		i++
		table.Observe(0, 1+i&255, false)
	}
}

// What a table borrows stands beside what it has seen, with a weight that its own answers outgrow, and only where it has seen little.
func TestBorrow(t *testing.T) {
	theirs := New(2, 0)
	for range 1000 {
		theirs.Observe(0, 100, false)
		theirs.Observe(1, 10, false)
	}
	own := New(3, 0)
	for range 60 {
		own.Observe(0, 5, false)
	}
	own.Observe(1, 500, false)
	before := own.State()
	if added, err := own.Borrow(theirs.State(), 50, 200); err != nil || !added {
		t.Fatal(added, err)
	}
	after := own.State()
	if after.Classes[0] != before.Classes[0] || after.Classes[2] != before.Classes[2] {
		t.Error("a class that has seen enough, or that the other does not have, has changed")
	}
	if w := own.Weight(1); w != 201 || own.Weight(0) != 60 || own.Weight(9) != 0 {
		t.Errorf("answers weigh %v, %v and %v", w, own.Weight(0), own.Weight(9))
	}
	if q := own.Quantile(1, 0, 1000, 0.5); q < 8 || q > 12 {
		t.Errorf("the median is %v", q)
	}
	if added, err := own.Borrow(theirs.State(), 50, 200); err != nil || added {
		t.Errorf("borrowed twice: %v, %v", added, err)
	}
	// One class is of all.
	all := New(1, 0)
	all.Observe(0, 7, false)
	fresh := New(3, 0)
	if _, err := fresh.Borrow(all.State(), 50, 200); err != nil || fresh.Weight(2) != 1 {
		t.Errorf("%v: the last class weighs %v", err, fresh.Weight(2))
	}
	bad := theirs.State()
	bad.Classes[1].Ended[3] = -1
	if _, err := fresh.Borrow(bad, 50, 200); !errors.Is(err, ErrTable) {
		t.Errorf("%v", err)
	}
}
