package online_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/online"
)

// When it is warm, the margin is that of the rows that were seen, not the one that it began with.
func TestMarginBeginsAtTheRowsSeen(t *testing.T) {
	for _, start := range []float64{0, 1, 8} {
		w := newWorld(t, 11)
		c := online.DefaultConfig(0.9)
		c.Start = start
		p := newPredictor(t, c)
		var seen []float64
		for range c.Warm {
			r := w.next(p, 1)
			if !math.IsInf(r.bound, 1) {
				t.Fatalf("a bound at exp(%.3f) before %d rows were seen", r.bound, c.Warm)
			}
			seen = append(seen, r.physics)
		}
		// Of forty rows the fourth largest is the quantile at 0.9.
		slices.Sort(seen)
		if r := w.next(p, 1); math.Abs(r.bound-seen[36]) > 1e-6 {
			t.Errorf("from %v: the first bound is at exp(%.3f), of the rows seen at exp(%.3f)", start, r.bound, seen[36])
		}
	}
}

// Each load is bounded at the level, and an idle engine by what came to one.
func TestMarginsOfLoads(t *testing.T) {
	w := newWorld(t, 12)
	w.busy = 15
	w.noise = func(w *world) float64 { return 0.03 + 0.1*float64(len(w.engine.Running)) }
	w.factor = func(w *world) float64 { return math.Exp(-0.05 * float64(len(w.engine.Running))) }
	c := online.DefaultConfig(0.9)
	p := newPredictor(t, c)
	w.serveAll(p, 3000)
	rows := w.serveAll(p, 4000)
	for name, pass := range map[string]func(*row) bool{
		"idle":   func(r *row) bool { return !r.busy },
		"light":  func(r *row) bool { return r.busy && r.x[5] < 0.25 },
		"heavy":  func(r *row) bool { return r.x[5] > 0.3 },
		"of all": nil,
	} {
		got, width := covered(rows, pass)
		t.Logf("%s: %.3f at exp(%.3f)", name, got, width)
		if math.Abs(got-0.9) > 0.03 {
			t.Errorf("%s: bounds hold in %.3f", name, got)
		}
	}
	held, n := 0, 0
	for range 2000 {
		r := w.next(p, 1)
		if r.f.BoundIdle <= 0 {
			t.Fatal("there is no bound on an idle engine")
		}
		if !r.busy {
			n++
			if r.took <= r.f.BoundIdle {
				held++
			}
		} else if len(w.engine.Running) > 8 && r.f.BoundIdle >= r.f.Bound {
			t.Fatalf("%v on an idle engine, %v on one with %d", r.f.BoundIdle, r.f.Bound, len(w.engine.Running))
		}
	}
	if got := float64(held) / float64(n); math.Abs(got-0.9) > 0.05 {
		t.Errorf("bounds on an idle engine hold in %.3f of %d", got, n)
	}
}

// What chance lets in beside the rule does not move the margin; where only chance lets anything in, it does.
func TestExplorationDoesNotDistort(t *testing.T) {
	w := newWorld(t, 13)
	p := newPredictor(t, online.DefaultConfig(0.9))
	w.serveAll(p, 500)
	odd := func() row {
		w.factor = func(*world) float64 { return 20 }
		r := w.next(p, 100)
		w.factor = func(*world) float64 { return 1 }
		return r
	}
	var rule []row
	for range 2000 {
		rule = append(rule, w.next(p, 1))
		if w.rng.IntN(10) == 0 {
			odd()
		}
	}
	if got, _ := covered(rule, nil); math.Abs(got-0.9) > 0.02 {
		t.Errorf("bounds of the rule's requests hold in %.3f", got)
	}
	before, _ := covered([]row{odd()}, nil)
	var alone []row
	for range 400 {
		alone = append(alone, odd())
	}
	if got, _ := covered(alone[200:], nil); before != 0 || math.Abs(got-0.9) > 0.06 {
		t.Errorf("where only chance lets requests in, bounds held in %.3f and then in %.3f", before, got)
	}
}

// Requests that were expected to be late, which an arm without admission lets in all the same, do not widen the bounds of others; what they
// took is learned.
func TestHopelessRequestsDoNotDistort(t *testing.T) {
	w := newWorld(t, 17)
	p := newPredictor(t, online.DefaultConfig(0.9))
	w.serveAll(p, 500)
	late := 0
	var fine []row
	for range 2000 {
		w.draw()
		if w.rng.IntN(2) == 0 {
			w.s.E2E = 100 * time.Millisecond
			w.factor = func(*world) float64 { return 5 }
			if r := w.serve(p, 1); r.f.Predicted > w.s.E2E {
				late++
			}
			w.factor = func(*world) float64 { return 1 }
			continue
		}
		fine = append(fine, w.serve(p, 1))
	}
	if late < 900 {
		t.Fatalf("%d were expected to be late", late)
	}
	if got, _ := covered(fine, nil); math.Abs(got-0.9) > 0.025 {
		t.Errorf("bounds of those in time hold in %.3f", got)
	}
	if w.draw(); w.serve(p, 1).f.Predicted < 300*time.Millisecond {
		t.Errorf("half of all take five times as long, %v is predicted", w.f.Predicted)
	}
}

// Where the first requests were so slow that the bound lets nobody in, and nobody comes by chance, it falls until somebody does.
func TestBoundsThatLetNobodyInFall(t *testing.T) {
	w := newWorld(t, 16)
	p := newPredictor(t, online.DefaultConfig(0.9))
	w.factor = func(*world) float64 { return 30 }
	w.serveAll(p, 45)
	w.factor = func(*world) float64 { return 1 }
	const budget = 2 * time.Second
	var f online.Foresight
	served, rows := 0, []row(nil)
	for range 4000 {
		w.draw()
		if err := p.Foresee(&w.engine, &w.s, &f); err != nil {
			t.Fatal(err)
		}
		if f.Bound <= budget {
			rows = append(rows, w.serve(p, 1))
			served++
		}
	}
	if served < 1000 {
		t.Fatalf("%d of 4000 were let in", served)
	}
	if got, _ := covered(rows[served/2:], nil); got < 0.87 {
		t.Errorf("bounds hold in %.3f", got)
	}
}

// What no bound would let in says nothing of bounds, nor does a burst of requests of which nothing can have come yet.
func TestBoundsStayWhereTheyLockNobodyOut(t *testing.T) {
	for _, burst := range []bool{false, true} {
		w := newWorld(t, 5)
		p := newPredictor(t, online.DefaultConfig(0.9))
		w.serveAll(p, 400)
		w.draw()
		first := foresee(t, p, w)
		if burst {
			p.Admit(1e6, &w.f, 1, w.now)
		} else {
			w.s.E2E = time.Millisecond
		}
		for range 1000 {
			foresee(t, p, w)
		}
		if last := foresee(t, p, w); last < first*9/10 {
			t.Errorf("burst %v: the bound was %v and has become %v", burst, first, last)
		}
		if burst { // until it has ended
			p.End(1e6, online.Ending{How: online.Left}, w.now)
			for range 1000 {
				foresee(t, p, w)
			}
			if last := foresee(t, p, w); last > first/2 {
				t.Errorf("the bound was %v and still is %v", first, last)
			}
		}
	}
}

func foresee(t *testing.T, p *online.Predictor, w *world) time.Duration {
	t.Helper()
	if err := p.Foresee(&w.engine, &w.s, &w.f); err != nil {
		t.Fatal(err)
	}
	return w.f.Bound
}

// Answers that were not waited for are known to be longer than what came of them.
func TestLengthsOfAnswersThatWereCutShort(t *testing.T) {
	_, e := open(t)
	rng := rand.New(rand.NewPCG(14, 1))
	for _, patience := range []int{1 << 20, 60, 30} {
		p := newPredictor(t, online.DefaultConfig(0.9))
		var f online.Foresight
		now := time.Duration(0)
		for id := range uint64(3000) {
			if err := p.Foresee(e, &predictor.Sequence{PromptTokens: 8, PrefillTokens: 8, CapTokens: 1000}, &f); err != nil {
				t.Fatal(err)
			}
			now += time.Minute
			p.Admit(id, &f, 1, now)
			tokens := 1 + rng.IntN(100)
			end := online.Ending{E2E: time.Second, Tokens: int32(tokens)}
			if tokens > patience {
				end = online.Ending{How: online.Left, E2E: time.Second, Tokens: int32(patience)}
				if id%2 == 0 {
					end.How = online.Dropped
				}
			}
			p.End(id, end, now+time.Second)
		}
		if got := p.Lengths().Quantile(0, 0, 1000, 0.25); math.Abs(got-25) > 4 {
			t.Errorf("with a patience of %d tokens a quarter is up to %.0f long, want 25", patience, got)
		}
		if got := p.Lengths().Quantile(0, 0, 1000, 0.5); patience < 50 && got < 40 || patience >= 50 && math.Abs(got-50) > 6 {
			t.Errorf("with a patience of %d tokens the median is %.0f, want 50", patience, got)
		}
	}
}

// Ends that are never told cost no more than a place each for a while; one of a request that nobody knows is no clock.
func TestLostEnds(t *testing.T) {
	_, e := open(t)
	c := online.DefaultConfig(0.9)
	c.Open, c.Forget, c.Warm = 100, time.Hour, 0
	p := newPredictor(t, c)
	var f online.Foresight
	if err := p.Foresee(e, &predictor.Sequence{PromptTokens: 8, PrefillTokens: 8, CapTokens: 8}, &f); err != nil {
		t.Fatal(err)
	}
	for id := range uint64(150) {
		p.Admit(id, &f, 1, 0)
	}
	if c := p.Coverage(); c != (conformal.Coverage{Censored: 50}) {
		t.Errorf("of 150 that were admitted and 100 that are remembered: %+v", c)
	}
	p.End(1e9, online.Ending{How: online.Completed, E2E: 1, Tokens: 1}, 1000*time.Hour)
	if c := p.Coverage(); c.Misses != 0 {
		t.Errorf("the end of a request that nobody knows made others late: %+v", c)
	}
	p.End(149, online.Ending{How: online.Completed, E2E: 1, Tokens: 1}, 1)
	p.End(0, online.Ending{How: online.Completed, E2E: 1, Tokens: 1}, 1) // it was forgotten
	if c := p.Coverage(); c != (conformal.Coverage{Censored: 50, Hits: 1}) {
		t.Errorf("%+v", c)
	}
	p.Admit(1000, &f, 1, 2*time.Hour)
	if c := p.Coverage(); c.Misses != 99 { // when their bounds had passed
		t.Errorf("%+v", c)
	}
	p.Admit(1001, &f, 1, 2*time.Hour)
	p.End(3, online.Ending{How: online.Completed, E2E: 1, Tokens: 1}, 2*time.Hour)
	if got := p.Coverage(); got.Rows() != 150 {
		t.Errorf("what is too old is forgotten: %+v", got)
	}
}

// A latency that no clock can hold is bounded by what one can.
func TestBoundsDoNotOverflow(t *testing.T) {
	_, e := open(t)
	c := online.DefaultConfig(0.9)
	c.Start = 10
	p := newPredictor(t, c)
	e.Slow = 9e5
	var f online.Foresight
	s := predictor.Sequence{PromptTokens: 1 << 20, PrefillTokens: 1 << 20, CapTokens: 1 << 20}
	if err := p.Foresee(e, &s, &f); err != nil || f.Bound != 0 {
		t.Fatalf("%v, %v", f.Bound, err)
	}
	p.Admit(1, &f, 1, 0)
	p.Advance(1000 * time.Hour)
	p.End(1, online.Ending{How: online.Completed, E2E: time.Hour, Tokens: 1}, 1000*time.Hour)
	if c := p.Coverage(); c.Rows() != 0 {
		t.Errorf("a bound that was not claimed is counted: %+v", c)
	}
}

// In the steady state nothing is allocated, with a model or without.
func TestNoAllocation(t *testing.T) {
	w := byPrompt(t, 15)
	p := newPredictor(t, online.DefaultConfig(0.9))
	a := learn(t, w.serveAll(p, 2000), 0.1, label)
	for _, name := range []string{"physics", "model"} {
		w.serveAll(p, 1500)
		w.draw()
		n := testing.AllocsPerRun(100, func() {
			if err := p.Foresee(&w.engine, &w.s, &w.f); err != nil {
				t.Fatal(err)
			}
			w.id++
			w.now += time.Minute
			p.Admit(w.id, &w.f, 1, w.now)
			p.End(w.id, online.Ending{E2E: time.Second, Tokens: 9}, w.now+time.Second)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if err := p.Swap(a, w.now); err != nil {
			t.Fatal(err)
		}
	}
}
