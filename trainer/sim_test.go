package trainer_test

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/sim/simtest"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/predictor/profile/profiletest"
	"github.com/cadence-slo/cadence/trainer"
)

var open = profiletest.Open

// drawn is a workload of prompts and outputs drawn per index, log-uniform over a factor of 16.
type drawn struct {
	seed   uint64
	capped bool // the cap does not tell the length
	odd    int  // which goes on to its cap
}

func (d drawn) Name() string                { return "drawn" }
func (d drawn) Describe() json.RawMessage   { return json.RawMessage(`{}`) }
func (d drawn) SLOs() map[string]record.SLO { return nil }

func (d drawn) Request(i int) workload.Request {
	rng := rand.New(rand.NewPCG(d.seed, uint64(i)))
	r := workload.Request{Index: i, Prompt: make([]int32, int(64*math.Exp2(4*rng.Float64()))), Output: int(8 * math.Exp2(4*rng.Float64())), Cap: 128}
	for k := range r.Prompt {
		r.Prompt[k] = int32(i*7919+k*31) & 0x7fffffff
	}
	if i == d.odd {
		r.Output = r.Cap
	}
	if !d.capped {
		r.Cap = r.Output
	}
	return r
}

// whole takes every answer for as long as its cap, which in these runs it is.
type whole struct{}

func (whole) Quantile(_, done, limit int32, _ float64) float64 { return float64(max(1, limit-done)) }

func (w whole) Spread(of, done, limit int32, to []float64) {
	for i := range to {
		to[i] = w.Quantile(of, done, limit, 0)
	}
}

func (w whole) Remaining(of, done, limit int32, d *length.Dist) {
	d.N = 1
	d.Tokens[0], d.Prob[0] = w.Quantile(of, done, limit, 0), 1
}

// block is one run: arrivals at a rate at an engine that is not quite what is believed of it.
type block struct {
	truth, belief *profile.Profile
	source        drawn
	lengths       predictor.Lengths
	rate          float64
	n, round, run int
}

// rows returns a row for each request, in the order of arrival.
func (b block) rows(t testing.TB) []trainer.Row {
	t.Helper()
	rows := make([]trainer.Row, b.n)
	var e predictor.Engine
	var f predictor.Forecast
	latency := sim.DefaultLatency()
	span := time.Duration(float64(b.n) / b.rate * 3 * float64(time.Second))
	c := sim.Config{Source: b.source, Arrivals: arrival.Poisson{}.Times(b.source.seed, b.rate, span), Capped: b.source.capped, Requests: b.n, Seed: 1,
		Profile: b.truth, Workers: 1, Batch: b.truth.Batch(), Latency: latency, Length: span, Drain: sim.Forever}
	c.Sink = func(r *record.Request) error {
		row := &rows[r.Index]
		row.Label = math.Log(r.E2E.Seconds() / row.Predicted)
		return nil
	}
	c.Admit = func(a *sim.Arrival) sim.Decision {
		for _, r := range simtest.See(&e, a, 0, b.belief, c.Batch, &latency) {
			e.Running = append(e.Running, predictor.Sequence{PromptTokens: int32(r.PromptTokens), PrefillTokens: int32(r.PrefillTokens),
				OutputTokens: int32(r.OutputTokens), CapTokens: int32(r.CapTokens), Age: a.Now - r.Arrived})
		}
		for _, q := range a.Pool.Queue {
			e.Waiting = append(e.Waiting, predictor.Sequence{PromptTokens: int32(q.PromptTokens), PrefillTokens: int32(q.PromptTokens),
				CapTokens: int32(q.CapTokens), Age: a.Now - q.Arrived})
		}
		s := predictor.Sequence{PromptTokens: int32(len(a.Prompt)), PrefillTokens: int32(len(a.Prompt)), CapTokens: int32(a.CapTokens)}
		if err := f.Simulate(&e, &s, b.lengths); err != nil {
			t.Fatal(err)
		}
		x := feature.Append(make([]float32, 0, feature.Count), &e, &s, b.lengths, &f)
		typical := f.At(b.lengths.Quantile(s.Lengths, 0, s.CapTokens, 0.5))
		rows[a.Index] = trainer.Row{Known: trainer.Known{Features: x, Predicted: typical / 1e9, Load: feature.Load(x), Weight: 1},
			Round: b.round, Run: b.run, At: day.Add(time.Duration(b.run)*time.Hour + a.Now)}
		return sim.Decision{}
	}
	if _, err := sim.Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	return rows
}

// rounds are four of four runs, from idle to busy, in another order each: no load is always the last.
func rounds(t testing.TB, truth, belief *profile.Profile) (rows []trainer.Row) {
	for round := range 4 {
		for i := range 4 {
			b := block{truth: truth, belief: belief, source: drawn{seed: uint64(100*round + i), odd: -1}, lengths: whole{}, n: 250}
			b.round, b.run, b.rate = round, 4*round+i, []float64{0.3, 0.9, 1.5, 2.1}[(i+round)%4]
			rows = append(rows, b.rows(t)...)
		}
	}
	return rows
}

// Where the profile misses what contexts cost, the model learns it from rows of other rounds: it is off by at most 0.6 of what the physics
// is off by, and by no more than a tenth above what physics with the true profile would be: the rest is requests that come later. Its bounds
// hold on runs that were held out, and are tighter than those of the physics.
func TestModelLearnsWhatTheProfileMisses(t *testing.T) {
	belief := open(t, "seed-laptop")
	truth := open(t, "seed-laptop")
	truth.Cost.ContextToken = 4000 // 32 ms at 8,000 tokens held, where the step takes 50
	rows, right := rounds(t, truth, belief), rounds(t, truth, truth)
	const alpha = 0.1
	var runs []conformal.Coverage
	var wide, plainWide float64
	for rotation := range trainer.Rotations {
		f := split(t, rows, rotation)
		m := fit(t, f, trainer.DefaultConfig(alpha))
		own := trainer.MedianError(f.Test, func(k *trainer.Known) float64 { r, _ := m.Residual(k); return r })
		physics, best := trainer.MedianError(f.Test, nil), trainer.MedianError(split(t, right, rotation).Test, nil)
		unsupported := 0
		tally := conformal.Tally{}
		plain, err := trainer.Physics(f.Calibrate)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Test {
			r := &f.Test[i]
			if _, ok := m.Residual(&r.Known); !ok {
				unsupported++
			}
			bound, ok := m.Bound(&r.Known, alpha)
			if !ok {
				t.Fatal("no bound")
			}
			v := conformal.Hit
			if r.Latency() > bound {
				v = conformal.Miss
			}
			tally.Add(r.Run, conformal.Resolution{Verdict: v})
			p, _ := plain.Bound(&r.Known, alpha)
			wide, plainWide = wide+math.Log(bound/r.Predicted), plainWide+math.Log(p/r.Predicted)
		}
		runs = append(runs, tally.Marginal()...)
		t.Logf("rotation %d: median |log error| %.4f, of the physics %.4f, with the true profile %.4f; %d trees, %d of %d rows unsupported", rotation, own,
			physics, best, m.Model.Trees(), unsupported, len(f.Test))
		if own > 0.6*physics || own > 1.1*best {
			t.Errorf("rotation %d: the model leaves %.4f of %.4f, the true profile %.4f", rotation, own, physics, best)
		}
		if 10*unsupported > 2*len(f.Test) {
			t.Errorf("rotation %d: %d of %d rows are not supported", rotation, unsupported, len(f.Test))
		}
	}
	low, high, err := conformal.Clustered(runs, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	total := conformal.Total(runs)
	n := float64(total.Rows())
	t.Logf("coverage %.4f in [%.4f, %.4f] of %d runs; log of bound by prediction %.3f, of the physics' %.3f", float64(total.Hits)/n, low, high, len(runs),
		wide/n, plainWide/n)
	if low > 1-alpha || high < 1-alpha {
		t.Errorf("coverage is in [%.4f, %.4f], want %v in it", low, high, 1-alpha)
	}
	if wide >= plainWide {
		t.Errorf("bounds are by exp(%.3f) above the prediction, those of the physics by exp(%.3f)", wide/n, plainWide/n)
	}
}

// How an answer turns out cannot change what was known of it when it was asked for: with another length of one answer, the features of that
// request and of all before it are the same, bit by bit, and its label is not.
func TestOutcomeCannotReachFeatures(t *testing.T) {
	const odd = 60
	p := open(t, "seed-laptop")
	lengths := length.New(1, 0)
	b := block{truth: p, belief: p, lengths: lengths, rate: 2.5, n: 250, source: drawn{seed: 7, capped: true, odd: -1}}
	as := b.rows(t)
	b.source.odd = odd
	other := b.rows(t)
	for i := range odd + 1 {
		if !slices.Equal(as[i].Features, other[i].Features) || as[i].Predicted != other[i].Predicted {
			t.Fatalf("the features of request %d go with the outcome of %d", i, odd)
		}
	}
	if as[odd].Label == other[odd].Label {
		t.Fatal("the outcome is no other")
	}
	after := 0
	for i := odd + 1; i < len(as); i++ {
		if !slices.Equal(as[i].Features, other[i].Features) {
			after++
		}
	}
	if after == 0 {
		t.Error("no later request has seen that it was long")
	}
}
