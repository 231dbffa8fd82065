package online_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/gbm"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/online"
)

// byPrompt is an engine that takes up to 2.7 times as long as its profile says, and more the longer the prompt.
func byPrompt(t testing.TB, seed uint64) *world {
	w := newWorld(t, seed)
	w.busy = 12
	w.factor = func(w *world) float64 { return math.Exp(float64(w.s.PromptTokens) / 256) }
	return w
}

func label(r *row) float64 { return r.physics }

func long(r *row) bool  { return r.x[0] > 192 }
func short(r *row) bool { return r.x[0] < 80 }

// With a model of what its profile misses, bounds are tighter, hold as often, and as often for short prompts as for long ones; without it
// again they are what they were.
func TestSwap(t *testing.T) {
	w := byPrompt(t, 1)
	p := newPredictor(t, online.DefaultConfig(0.9))
	a := learn(t, w.serveAll(p, 4000), 0.1, label)
	before := w.serveAll(p, 2000)
	if err := p.Swap(a, w.now); err != nil {
		t.Fatal(err)
	}
	during := w.serveAll(p, 2000)
	if err := p.Swap(nil, w.now); err != nil {
		t.Fatal(err)
	}
	after := w.serveAll(p, 2000)
	wide := 0.0
	for _, x := range []struct {
		name string
		rows []row
		even bool
	}{{"before", before, false}, {"with the model", during, true}, {"after", after, false}} {
		all, width := covered(x.rows, nil)
		s, _ := covered(x.rows, short)
		l, _ := covered(x.rows, long)
		t.Logf("%s: coverage %.3f, of short prompts %.3f, of long ones %.3f; bounds at exp(%.3f)", x.name, all, s, l, width)
		if math.Abs(all-0.9) > 0.025 {
			t.Errorf("%s: coverage %.3f", x.name, all)
		}
		if even := math.Abs(s-0.9) < 0.075 && math.Abs(l-0.9) < 0.075; even != x.even {
			t.Errorf("%s: coverage of short prompts is %.3f, of long ones %.3f", x.name, s, l)
		}
		if x.name == "before" {
			wide = width
		} else if (width < wide-0.05) != x.even {
			t.Errorf("%s: bounds are at exp(%.3f), before at exp(%.3f)", x.name, width, wide)
		}
	}
}

// What is predicted, and the probability to be in time, go with the model.
func TestModelMovesThePrediction(t *testing.T) {
	w := byPrompt(t, 2)
	p := newPredictor(t, online.DefaultConfig(0.9))
	a := learn(t, w.serveAll(p, 4000), 0.1, label)
	gap := func() (long, short float64) {
		off, n := [2]float64{}, [2]float64{}
		for range 2000 {
			r := w.next(p, 1)
			k := 0
			if w.s.PromptTokens < 136 {
				k = 1
			}
			off[k] += math.Log(float64(r.took) / float64(r.f.Predicted))
			n[k]++
		}
		return off[0] / n[0], off[1] / n[1]
	}
	if l, s := gap(); l-s < 0.3 {
		t.Errorf("the physics are off by %.3f for long prompts and %.3f for short ones", l, s)
	}
	if err := p.Swap(a, w.now); err != nil {
		t.Fatal(err)
	}
	if l, s := gap(); math.Abs(l-s) > 0.15 {
		t.Errorf("the model is off by %.3f for long prompts and %.3f for short ones", l, s)
	}
	w.draw()
	meet := func(prompt int32) float64 {
		w.engine.Running = w.engine.Running[:0]
		w.s.PromptTokens, w.s.PrefillTokens, w.s.E2E = prompt, prompt, 800*time.Millisecond
		if err := p.Foresee(&w.engine, &w.s, &w.f); err != nil {
			t.Fatal(err)
		}
		return w.f.Meet
	}
	long, short := meet(250), meet(20)
	if err := p.Swap(nil, w.now); err != nil {
		t.Fatal(err)
	}
	if plainLong, plainShort := meet(250), meet(20); long > plainLong-0.03 || short < plainShort+0.03 {
		t.Errorf("with the model %.3f and %.3f of long and short prompts are in time, without %.3f and %.3f", long, short, plainLong, plainShort)
	}
}

// A model that knows nothing right, with a calibration that lies, gives no bound that does not hold: from the first row on, bounds are
// calibrated on what it says of the latest rows.
func TestWrongModelCannotBreakBounds(t *testing.T) {
	for name, told := range map[string]func(*row) float64{
		"backwards":       func(r *row) float64 { return -2 * r.physics },
		"of another":      func(r *row) float64 { return r.physics - 3 },
		"beyond measure":  func(r *row) float64 { return 40 },
		"faster by 1,000": func(r *row) float64 { return -4.5 },
	} {
		for _, x := range []struct {
			own   int     // rows that it has seen
			alpha float64 // of the artifact
		}{{800, 0.1}, {100, 0.1}, {800, 0.2}, {60, 0.2}} {
			w := byPrompt(t, 3)
			a := learn(t, w.serveAll(newPredictor(t, online.DefaultConfig(0.9)), 1000), x.alpha, told)
			p := newPredictor(t, online.DefaultConfig(0.9))
			w.serveAll(p, x.own)
			if err := p.Swap(a, w.now); err != nil {
				t.Fatal(err)
			}
			rows := w.serveAll(p, 600)
			if rows[0].bound < 0 || math.IsInf(rows[0].bound, 1) {
				t.Errorf("%s, %+v: the first bound is at exp(%.2f)", name, x, rows[0].bound)
			}
			if got, _ := covered(rows, nil); math.Abs(got-0.9) > 0.05 {
				t.Errorf("%s, %+v: they hold in %.3f", name, x, got)
			}
		}
	}
}

// Without rows of its own a predictor claims what the artifact was calibrated to claim; one of another level nothing, until it has seen enough.
func TestSwapIntoAColdPredictor(t *testing.T) {
	w := byPrompt(t, 4)
	teacher := newPredictor(t, online.DefaultConfig(0.9))
	rows := w.serveAll(teacher, 4000)
	p := newPredictor(t, online.DefaultConfig(0.9))
	if err := p.Swap(learn(t, rows, 0.1, label), 0); err != nil {
		t.Fatal(err)
	}
	if p.Cold() {
		t.Fatal("it has the artifact's calibration")
	}
	if n := p.Lengths().Weight(0); n != 200 {
		t.Errorf("answers that are borrowed weigh %v", n)
	}
	if got, _ := covered(w.serveAll(p, 800), nil); math.Abs(got-0.9) > 0.05 {
		t.Errorf("bounds of the artifact hold in %.3f", got)
	}
	p = newPredictor(t, online.DefaultConfig(0.9))
	if err := p.Swap(learn(t, rows, 0.2, label), 0); err != nil {
		t.Fatal(err)
	}
	if !p.Cold() {
		t.Error("an artifact of another level makes it warm")
	}
	if rows := w.serveAll(p, 40); !math.IsInf(rows[39].bound, 1) {
		t.Errorf("with 39 rows a bound is claimed at 0.9, exp(%.3f)", rows[39].bound)
	}
	if got, _ := covered(w.serveAll(p, 1000), nil); math.Abs(got-0.9) > 0.04 {
		t.Errorf("later, bounds hold in %.3f", got)
	}
}

// What the model was not fitted on is bounded by the physics, at its level.
func TestUnsupportedRowsAreBoundedByThePhysics(t *testing.T) {
	w := byPrompt(t, 5)
	p := newPredictor(t, online.DefaultConfig(0.9))
	a := learn(t, w.serveAll(p, 3000), 0.1, label)
	if err := p.Swap(a, w.now); err != nil {
		t.Fatal(err)
	}
	var odd []row
	w.factor = func(*world) float64 { return 0.5 }
	for range 1500 {
		w.draw()
		w.s.PromptTokens += 400
		w.s.PrefillTokens = w.s.PromptTokens
		odd = append(odd, w.serve(p, 1))
	}
	for i := range odd {
		if math.IsInf(odd[i].bound, 1) {
			t.Fatalf("row %d has no bound", i)
		}
	}
	if got, _ := covered(odd[len(odd)/2:], nil); math.Abs(got-0.9) > 0.04 {
		t.Errorf("they hold in %.3f", got)
	}
}

// Requests that are under way when the model changes are scored by the new one, and those that were foreseen before it too.
func TestSwapWithRequestsUnderWay(t *testing.T) {
	w := byPrompt(t, 6)
	p := newPredictor(t, online.DefaultConfig(0.9))
	rows := w.serveAll(p, 2000)
	a, lie := learn(t, rows, 0.1, label), learn(t, rows, 0.1, func(*row) float64 { return 2 })
	for i := range 100 {
		w.draw()
		if err := p.Foresee(&w.engine, &w.s, &w.f); err != nil {
			t.Fatal(err)
		}
		early := i%2 == 0
		id := uint64(1e6 + i)
		if early {
			p.Admit(id, &w.f, 1, w.now)
		}
		for _, m := range []*artifact.Artifact{lie, nil, a} {
			if err := p.Swap(m, w.now); err != nil {
				t.Fatal(err)
			}
		}
		if !early {
			p.Admit(id, &w.f, 1, w.now)
		}
		if err := w.truth.Simulate(&w.engine, &w.s, p.Lengths()); err != nil {
			t.Fatal(err)
		}
		tokens := 1 + w.rng.IntN(40)
		took := time.Duration(w.truth.At(float64(tokens)) * w.factor(w) * math.Exp(0.2*w.rng.NormFloat64()))
		w.now += took
		p.End(id, online.Ending{E2E: took, Tokens: int32(tokens)}, w.now)
	}
	if got, _ := covered(w.serveAll(p, 600), nil); math.Abs(got-0.9) > 0.05 {
		t.Errorf("bounds hold in %.3f", got)
	}
}

func TestSwapRefuses(t *testing.T) {
	w := byPrompt(t, 7)
	p := newPredictor(t, online.DefaultConfig(0.9))
	a := learn(t, w.serveAll(p, 400), 0.1, label)
	small, _, err := gbm.Train(gbm.Data{Columns: [][]float32{{1, 2}}, Labels: []float64{1, 2}}, gbm.Data{}, gbm.DefaultParams(0.5), nil)
	if err != nil {
		t.Fatal(err)
	}
	lengths := a.Lengths
	lengths.Classes = []length.Counts{{}}
	lengths.Classes[0].Ended[0] = -1
	kind := a.Calibration
	kind.Supported.All.Kind = "none"
	for name, x := range map[string]*artifact.Artifact{
		"no model":       {Lengths: a.Lengths, Calibration: a.Calibration},
		"other features": {Model: small, Lengths: a.Lengths, Calibration: a.Calibration},
		"lengths":        {Model: a.Model, Lengths: lengths, Calibration: a.Calibration},
	} {
		before := w.next(p, 1)
		if err := p.Swap(x, w.now); !errors.Is(err, online.ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
		if after := w.next(p, 1); math.IsInf(before.bound, 1) || math.IsInf(after.bound, 1) {
			t.Errorf("%s: bounds %v, then %v", name, before.bound, after.bound)
		}
	}
	cold := newPredictor(t, online.DefaultConfig(0.9))
	if err := cold.Swap(&artifact.Artifact{Model: a.Model, Lengths: a.Lengths, Calibration: kind}, 0); !errors.Is(err, online.ErrModel) {
		t.Errorf("calibration of no kind: %v", err)
	}
	if w.next(cold, 1); !cold.Cold() {
		t.Error("it claims bounds with a calibration that it refused")
	}
	z, err := p.Frozen(0.9)
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Swap(a, w.now); !errors.Is(err, online.ErrModel) {
		t.Errorf("a frozen one learns: %v", err)
	}
}
