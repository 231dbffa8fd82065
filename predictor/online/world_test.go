package online_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/gbm"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/predictor/profile"
)

// world is an engine whose requests take what the physics say of their true length, times a factor, times noise.
type world struct {
	t       testing.TB
	rng     *rand.Rand
	profile *profile.Profile
	busy    int // at most so many run when a request comes
	factor  func(w *world) float64
	noise   func(w *world) float64 // standard deviation of the logarithm

	engine predictor.Engine
	s      predictor.Sequence
	truth  predictor.Forecast
	f      online.Foresight
	id     uint64
	now    time.Duration
}

func newWorld(t testing.TB, seed uint64) *world {
	p, _ := open(t)
	return &world{t: t, rng: rand.New(rand.NewPCG(seed, 77)), profile: p, factor: func(*world) float64 { return 1 },
		noise: func(*world) float64 { return 0.2 }}
}

// draw makes the state of an engine and a request that comes to it.
func (w *world) draw() {
	w.engine = predictor.Engine{Profile: w.profile, Plan: w.profile.Batch(), FreePages: 1000, Running: w.engine.Running[:0]}
	n := 0
	if w.busy > 0 {
		n = max(0, w.rng.IntN(w.busy*5/4+1)-w.busy/4) // a fifth comes to an idle engine
	}
	for range n {
		w.engine.StepLeft = time.Millisecond
		w.engine.Running = append(w.engine.Running, predictor.Sequence{PromptTokens: 64, OutputTokens: int32(w.rng.IntN(30)), CapTokens: 64})
	}
	prompt := int32(16 + w.rng.IntN(240))
	w.s = predictor.Sequence{PromptTokens: prompt, PrefillTokens: prompt, CapTokens: 64, E2E: time.Minute}
}

// row is what came of a request.
type row struct {
	f    *online.Foresight // lent until the next
	x    []float32
	took time.Duration
	// physics is log(latency / simulated latency at the median length), bound that of the bound; +Inf without one.
	physics, bound float64
	busy           bool
}

// next asks p about a request, and lets it end after the time that it takes. weight is as for Admit.
func (w *world) next(p *online.Predictor, weight float64) row {
	w.draw()
	return w.serve(p, weight)
}

func (w *world) serve(p *online.Predictor, weight float64) row {
	w.t.Helper()
	if err := p.Foresee(&w.engine, &w.s, &w.f); err != nil {
		w.t.Fatal(err)
	}
	if err := w.truth.Simulate(&w.engine, &w.s, p.Lengths()); err != nil {
		w.t.Fatal(err)
	}
	tokens := 1 + w.rng.IntN(40)
	took := time.Duration(w.truth.At(float64(tokens)) * w.factor(w) * math.Exp(w.noise(w)*w.rng.NormFloat64()))
	_, typical := w.truth.Median(&w.s, p.Lengths())
	r := row{f: &w.f, took: took, physics: math.Log(float64(took) / typical), bound: math.Inf(1), busy: len(w.engine.Running) > 0,
		x: feature.Append(nil, &w.engine, &w.s, p.Lengths(), &w.truth)}
	if w.f.Bound > 0 {
		r.bound = math.Log(float64(w.f.Bound) / typical)
	}
	w.id++
	w.now += time.Hour / 2
	p.Admit(w.id, &w.f, weight, w.now)
	p.End(w.id, online.Ending{E2E: took, Tokens: int32(tokens)}, w.now+took)
	return r
}

// serveAll is n requests.
func (w *world) serveAll(p *online.Predictor, n int) []row {
	w.t.Helper()
	rows := make([]row, n)
	for i := range rows {
		rows[i] = w.next(p, 1)
	}
	return rows
}

// covered is the share of rows whose bound held, width the mean of their bounds' logarithms by the simulated latency; of those that pass.
func covered(rows []row, pass func(*row) bool) (share, width float64) {
	hits, n := 0.0, 0.0
	for i := range rows {
		r := &rows[i]
		if pass != nil && !pass(r) {
			continue
		}
		n++
		width += r.bound
		if r.physics <= r.bound {
			hits++
		}
	}
	return hits / n, width / n
}

// learn is an artifact of rows, calibrated at alpha on the latter half of them. told is what it takes for the label.
func learn(t testing.TB, rows []row, alpha float64, told func(*row) float64) *artifact.Artifact {
	t.Helper()
	half := len(rows) / 2
	d := gbm.Data{Columns: make([][]float32, feature.Count)}
	for i := range rows[:half] {
		for k, v := range rows[i].x {
			d.Columns[k] = append(d.Columns[k], v)
		}
		d.Labels = append(d.Labels, told(&rows[i]))
	}
	params := gbm.DefaultParams(0.5)
	params.Rounds, params.Leaves, params.Monotone = 60, 8, feature.Signs()
	m, _, err := gbm.Train(d, gbm.Data{}, params, nil)
	if err != nil {
		t.Fatal(err)
	}
	var scores, physics []conformal.Row
	var loads []float64
	for i := range rows[half:] {
		r := &rows[half+i]
		scores = append(scores, conformal.Row{ID: uint64(i), Score: told(r) - m.Predict(r.x)})
		physics = append(physics, conformal.Row{ID: uint64(i), Score: told(r)})
		loads = append(loads, feature.Load(r.x))
	}
	arm := func(rows []conformal.Row) conformal.State {
		a, err := conformal.NewSFOGD(alpha, 1, conformal.DefaultSFOGD(alpha), 512, rows)
		if err != nil || !a.Anchor() {
			t.Fatal(err)
		}
		return a.Export()
	}
	deciles, err := conformal.NewDeciles(loads)
	if err != nil {
		t.Fatal(err)
	}
	l := length.New(1, 0)
	for range 500 {
		l.Observe(0, 20, false)
	}
	day := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	p, _ := open(t)
	a := &artifact.Artifact{Model: m, Lengths: l.State(), Header: artifact.Header{Created: day, Code: "v1", Backend: "mock", Profile: p, From: day, To: day,
		Features: feature.Table()}}
	a.Calibration = artifact.Calibration{MinSupport: 5, Deciles: deciles, Supported: conformal.GroupsState{All: arm(scores)}, Physics: arm(physics)}
	b, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if a, err = artifact.Decode(b); err != nil {
		t.Fatal(err)
	}
	return a
}
