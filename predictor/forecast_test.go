package predictor_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/batch"
)

// fixed is a length for every class, in all.
type fixed struct{}

func (fixed) Quantile(class, done, limit int32, _ float64) float64 {
	return float64(max(1, min(class, limit)-done))
}

func (f fixed) Spread(class, done, limit int32, to []float64) {
	for i := range to {
		to[i] = f.Quantile(class, done, limit, 0)
	}
}

func (f fixed) Remaining(class, done, limit int32, d *length.Dist) {
	d.N, d.Tokens[0], d.Prob[0] = 1, f.Quantile(class, done, limit, 0), 1
}

// drawProfile is a profile in which more never takes less.
func drawProfile(t *rapid.T) *profile.Profile {
	ns := rapid.Float64Range(1e3, 1e6)
	p := &profile.Profile{Version: profile.Version, Name: "drawn", Limits: profile.Limits{KVTokens: 8192, PageTokens: 16, Sequences: 64, MaxBatch: 8,
		BatchTokens: 128, ChunkTokens: 64, ContextTokens: 2048}}
	p.Cost = profile.Cost{Base: 10 * ns.Draw(t, "base"), Prefill: ns.Draw(t, "prefill"), PrefillToken: ns.Draw(t, "token"),
		ContextToken: ns.Draw(t, "context") / 1e4, Decode: []profile.Point{{Batch: 1, Time: ns.Draw(t, "one")}}}
	p.Cost.Decode = append(p.Cost.Decode, profile.Point{Batch: 8, Time: p.Cost.Decode[0].Time + ns.Draw(t, "eight")})
	return p
}

// drawSequence has at most 1,400 tokens; its class is its length.
func drawSequence(t *rapid.T, running bool) predictor.Sequence {
	s := predictor.Sequence{PromptTokens: rapid.Int32Range(1, 1000).Draw(t, "prompt"), CapTokens: rapid.Int32Range(1, 400).Draw(t, "cap"),
		E2E: time.Duration(rapid.IntRange(0, 5000).Draw(t, "e2e")) * time.Millisecond, TTFT: time.Duration(rapid.IntRange(0, 2000).Draw(t, "ttft")) * time.Millisecond,
		Age: time.Duration(rapid.IntRange(0, 3000).Draw(t, "age")) * time.Millisecond, Guaranteed: rapid.Bool().Draw(t, "guaranteed")}
	s.Lengths = rapid.Int32Range(1, s.CapTokens).Draw(t, "length")
	s.PrefillTokens = rapid.Int32Range(1, s.PromptTokens).Draw(t, "prefill")
	if running && s.Lengths > 1 && rapid.Bool().Draw(t, "decodes") {
		s.PrefillTokens, s.OutputTokens = 0, rapid.Int32Range(1, s.Lengths-1).Draw(t, "output")
	}
	return s
}

// drawEngine is one that a planner could be in.
func drawEngine(t *rapid.T) *predictor.Engine {
	e := &predictor.Engine{Profile: drawProfile(t), Slow: rapid.SampledFrom([]float64{0, 0.5, 1, 2}).Draw(t, "slow"),
		Delay: time.Millisecond, Enter: 600 * time.Microsecond, Refill: time.Duration(rapid.IntRange(0, 2).Draw(t, "refill")) * time.Millisecond}
	e.Plan = e.Profile.Batch()
	e.Plan.Order = rapid.SampledFrom([]batch.Order{batch.DecodeFirst, batch.PrefillFirst}).Draw(t, "order")
	e.FreePages = e.Plan.KVPages
	for range rapid.IntRange(0, e.Plan.MaxBatch).Draw(t, "running") {
		s := drawSequence(t, true)
		e.FreePages -= e.Plan.Pages(int(s.PromptTokens + s.CapTokens))
		if e.FreePages < 0 {
			break
		}
		e.Running = append(e.Running, s)
	}
	if len(e.Running) > 0 {
		e.StepLeft = time.Duration(rapid.IntRange(1, 3000).Draw(t, "left")) * time.Microsecond
		for range rapid.IntRange(0, 12).Draw(t, "waiting") {
			e.Waiting = append(e.Waiting, drawSequence(t, false))
		}
	}
	return e
}

func simulate(t interface{ Fatal(...any) }, f *predictor.Forecast, e *predictor.Engine, s *predictor.Sequence, l predictor.Lengths) {
	if err := f.Simulate(e, s, l); err != nil {
		t.Fatal(err)
	}
}

// On an idle engine the forecast is the sum of the steps: chunks of prefill, then a step for every further token.
func TestIdleEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &predictor.Engine{Profile: drawProfile(t), Delay: 3 * time.Millisecond, Enter: 2 * time.Millisecond}
		e.Plan = e.Profile.Batch()
		e.FreePages = e.Plan.KVPages
		s := drawSequence(t, false)
		s.Age, s.OutputTokens = 0, 0
		var f predictor.Forecast
		simulate(t, &f, e, &s, fixed{})
		at, held := e.Delay, int(s.PromptTokens-s.PrefillTokens)
		for left := int(s.PrefillTokens); left > 0; {
			n := min(left, e.Plan.ChunkTokens)
			left, held = left-n, held+n
			at += e.Profile.Step(n, 0, held)
		}
		near := func(what string, got float64, want time.Duration) {
			if math.Abs(got-float64(want)) > 2e3+1e-6*float64(want) {
				t.Fatalf("%s at %v, want %v", what, time.Duration(got), want)
			}
		}
		near("first token", f.First(), at)
		for k := 2; k <= int(s.CapTokens); k++ {
			at += e.Profile.Step(0, 1, int(s.PromptTokens)+k-1)
		}
		near("last token", f.At(float64(s.CapTokens)), at)
		near("all work", f.Cost(float64(s.CapTokens)), at-e.Delay)
		o := f.Outlook(e, &s, fixed{}, predictor.Residuals{New: normal{0, 0.1}}, predictor.Margin{Upper: 0.2, UpperIdle: 0.2, UpperOthers: 0.2, Level: 0.9})
		if !o.Idle || math.Abs(o.Meet-o.MeetIdle) > 0.05 || math.Abs(float64(o.Bound-o.BoundIdle)) > 0.02*float64(o.Bound) || o.Harm != 0 || o.Breaks {
			t.Fatalf("idle: %+v %+v", o, s)
		}
	})
}

// More that waits, a longer prompt or a slower engine never makes any token of the new request earlier.
//
// A longer prompt can leave a step one token more of the others' budget, and so end a prefill of the others a step before: the
// request itself is later all the same, but for a step. Where prefill goes first, more of it holds up those that decode, and so can
// make the steps until a first token shorter.
func TestMoreIsNeverEarlier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, s := drawEngine(t), drawSequence(t, false)
		e.Plan.Order = batch.DecodeFirst
		s.OutputTokens, s.Age = 0, 0
		s.PrefillTokens = s.PromptTokens
		var f, g predictor.Forecast
		simulate(t, &f, e, &s, fixed{})
		later := func(what string, e *predictor.Engine, s *predictor.Sequence) {
			simulate(t, &g, e, s, fixed{})
			step := float64(e.Profile.Step(e.Plan.BatchTokens, e.Plan.MaxBatch, 8192)) * 2
			for k := 1.0; k <= float64(s.CapTokens); k = math.Ceil(k * 1.5) {
				if a, b := f.At(k), g.At(k); b < a-step-1e-6*a {
					t.Fatalf("%s: token %v after %v, was %v", what, k, time.Duration(b), time.Duration(a))
				}
			}
		}
		more := *e
		more.Waiting = append(slices.Clone(e.Waiting), drawSequence(t, false))
		later("more waits", &more, &s)
		long := s
		long.PromptTokens += rapid.Int32Range(1, 500).Draw(t, "longer")
		long.PrefillTokens = long.PromptTokens
		later("longer prompt", e, &long)
		slow := *e
		slow.Slow = 3
		later("slower", &slow, &s)
	})
}

// Nobody gains by a new request, but for the rounding of a step's time (a thousandth), and what it costs is the work that the engine has more: within 3 % and a step.
// That is so where prefill does not go first: there it holds up those that decode, and the steps of other prefills are shorter for it.
func TestOthersNeverGain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, s := drawEngine(t), drawSequence(t, false)
		e.Plan.Order = batch.DecodeFirst
		s.OutputTokens, s.Age = 0, 0
		var f predictor.Forecast
		simulate(t, &f, e, &s, fixed{})
		step := 2 * float64(e.Profile.Step(e.Plan.BatchTokens, e.Plan.MaxBatch, 8192))
		if e.Slow > 1 {
			step *= e.Slow
		}
		if len(f.Others) != len(e.Running)+len(e.Waiting) {
			t.Fatalf("%d fates", len(f.Others))
		}
		for i, o := range f.Others {
			if o.FinishWith < 0.999*o.Finish || o.FirstWith < 0.999*o.First || o.Finish < o.First || !(o.Finish > 0) {
				t.Fatalf("%d: %+v", i, o)
			}
			if own := f.Cost(math.Inf(1)); o.FinishWith-o.Finish > own*1.03+step {
				t.Fatalf("%d is later by %v, all that the request costs is %v", i, time.Duration(o.FinishWith-o.Finish), time.Duration(own))
			}
		}
		cost, more := f.Cost(float64(s.CapTokens)), f.BusyWith-f.Busy
		if !(cost > 0) || math.Abs(cost-more) > 0.03*math.Abs(more)+step {
			t.Fatalf("costs %v, the engine works %v more", time.Duration(cost), time.Duration(more))
		}
		at, paid := -1.0, 0.0
		for i, k := range f.Curve {
			if k.At < at || k.Cost < paid || i > 0 && k.Tokens <= f.Curve[i-1].Tokens {
				t.Fatalf("knot %d of %+v", i, f.Curve)
			}
			at, paid = k.At, k.Cost
		}
		if f.Curve[0].Tokens != 1 || math.Abs(f.Curve[len(f.Curve)-1].Tokens-float64(s.CapTokens)) > 1e-6 {
			t.Fatalf("the curve reaches from %v to %v, cap %d", f.Curve[0].Tokens, f.Curve[len(f.Curve)-1].Tokens, s.CapTokens)
		}
	})
}

// Where pages run out, what a request costs is still all that the engine works more: what it computes twice, and what others compute again
// because of it. That is so in 97 of 100 states, where one in five would be off if the latter were left out.
func TestCostOfPreemptions(t *testing.T) {
	p := open(t, "mock")
	const states = 1000
	off := 0
	var f predictor.Forecast
	for seed := range uint64(states) {
		rng := rand.New(rand.NewPCG(seed, 1))
		e := &predictor.Engine{Profile: p, Plan: p.Batch(), StepLeft: time.Millisecond, FreePages: 64}
		c := &e.Plan
		c.Order, c.Overcommit, c.PageTokens, c.KVPages, c.ContextTokens, c.MaxPreemptions = batch.DecodeFirst, 16, 16, 64, 1024, 1+rng.IntN(3)
		c.ChunkTokens, c.BatchTokens = 64, 128
		deadline := func() time.Duration { return time.Duration(1+rng.IntN(100)) * time.Second }
		for range 1 + rng.IntN(3) {
			o := predictor.Sequence{PromptTokens: int32(50 + rng.IntN(300)), OutputTokens: 1, CapTokens: 301, Lengths: int32(2 + rng.IntN(299)),
				Guaranteed: rng.IntN(2) == 0, E2E: deadline()}
			if pages := int(o.PromptTokens)/16 + 1; pages < e.FreePages {
				e.FreePages -= pages
				e.Running = append(e.Running, o)
			}
		}
		s := predictor.Sequence{PromptTokens: int32(50 + rng.IntN(400)), CapTokens: 300, Lengths: 300, E2E: deadline()}
		s.PrefillTokens = s.PromptTokens
		simulate(t, &f, e, &s, fixed{})
		step := 2 * float64(p.Step(128, 2, 1024))
		if cost, more := f.Cost(300), f.BusyWith-f.Busy; math.Abs(cost-more) > 0.03*more+step {
			off++
		}
	}
	if off > 3*states/100 {
		t.Errorf("%d of %d are off", off, states)
	}
}

// The same state gives the same forecast, whatever was computed with it before.
func TestDeterministic(t *testing.T) {
	l := learned(rand.New(rand.NewPCG(1, 1)), 4)
	rapid.Check(t, func(t *rapid.T) {
		e, s := drawEngine(t), drawSequence(t, false)
		var f, g predictor.Forecast
		simulate(t, &f, drawEngine(t), &s, l)
		simulate(t, &f, e, &s, l)
		simulate(t, &g, e, &s, l)
		if !slices.Equal(f.Curve, g.Curve) || !slices.Equal(f.Others, g.Others) || f.Busy != g.Busy || f.BusyWith != g.BusyWith {
			t.Fatal("two forecasts of one state differ")
		}
		m := predictor.Margin{Upper: 0.4, UpperIdle: 0.3, UpperOthers: 0.5, Level: 0.9}
		if a, b := f.Outlook(e, &s, l, predictor.Residuals{New: normal{0, 0.2}}, m), g.Outlook(e, &s, l, predictor.Residuals{New: normal{0, 0.2}}, m); a != b {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
}

func TestNoProfile(t *testing.T) {
	var f predictor.Forecast
	if err := f.Simulate(&predictor.Engine{}, &predictor.Sequence{}, fixed{}); !errors.Is(err, predictor.ErrEngine) {
		t.Fatal(err)
	}
}

// odd checks that a forecast and its outlook hold together, whatever they were made of.
func odd(t interface{ Fatalf(string, ...any) }, e *predictor.Engine, s *predictor.Sequence, l predictor.Lengths, m predictor.Margin) {
	var f predictor.Forecast
	if err := f.Simulate(e, s, l); err != nil {
		t.Fatalf("%v", err)
	}
	bad := func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) || x < 0 }
	for _, k := range f.Curve {
		if bad(k.At) || bad(k.Cost) || k.Tokens < 1 {
			t.Fatalf("knot %+v", k)
		}
	}
	for i, o := range f.Others {
		if bad(o.First) || bad(o.FirstWith) || bad(o.Finish) || bad(o.FinishWith) {
			t.Fatalf("%d: %+v", i, o)
		}
	}
	o := f.Outlook(e, s, l, predictor.Residuals{New: normal{0, 0.2}}, m)
	if bad(o.Meet) || o.Meet > 1 || bad(o.MeetIdle) || o.MeetIdle > 1 || bad(o.Harm) || o.Harm > float64(len(f.Others)) || o.Cost <= 0 || o.Share <= 0 ||
		o.Bound < 0 || o.BoundIdle < 0 || o.Predicted < 0 || o.First < 0 || o.Drain < 0 || o.Level < 0 || o.Level >= 1 {
		t.Fatalf("%+v", o)
	}
}

// Figures that no engine has give something finite.
func TestOddStates(t *testing.T) {
	l := learned(rand.New(rand.NewPCG(1, 1)), 3)
	rapid.Check(t, func(t *rapid.T) {
		e := drawEngine(t)
		s := drawSequence(t, false)
		any32 := rapid.OneOf(rapid.Int32(), rapid.Int32Range(-2, 40), rapid.SampledFrom([]int32{math.MinInt32, math.MaxInt32}))
		some := rapid.OneOf(rapid.IntRange(-2, 40), rapid.SampledFrom([]int{math.MinInt32, 1 << 20, math.MaxInt32}))
		when := rapid.SampledFrom([]time.Duration{math.MinInt64, -1, 0, 1, time.Second, math.MaxInt64})
		spoil := func(s *predictor.Sequence) {
			for _, x := range []*int32{&s.PromptTokens, &s.PrefillTokens, &s.OutputTokens, &s.CapTokens, &s.Lengths} {
				if rapid.IntRange(0, 3).Draw(t, "spoil") == 0 {
					*x = any32.Draw(t, "tokens")
				}
			}
			for _, x := range []*time.Duration{&s.Age, &s.E2E, &s.TTFT} {
				if rapid.IntRange(0, 3).Draw(t, "spoil") == 0 {
					*x = when.Draw(t, "time")
				}
			}
		}
		for i := range e.Running {
			spoil(&e.Running[i])
		}
		for i := range e.Waiting {
			spoil(&e.Waiting[i])
		}
		spoil(&s)
		c := &e.Plan
		for _, x := range []*int{&c.PageTokens, &c.KVPages, &c.Sequences, &c.MaxBatch, &c.BatchTokens, &c.ChunkTokens, &c.ContextTokens, &c.MaxPreemptions,
			&e.FreePages} {
			if rapid.IntRange(0, 3).Draw(t, "spoil") == 0 {
				*x = some.Draw(t, "limit")
			}
		}
		c.Mode = rapid.SampledFrom([]batch.Mode{batch.Continuous, batch.Static, batch.FIFO, "odd"}).Draw(t, "mode")
		c.Overcommit = rapid.SampledFrom([]float64{0, 1, 1.5, 16, -1, math.NaN(), math.Inf(1)}).Draw(t, "overcommit")
		for _, x := range []*time.Duration{&c.StaticWait, &c.ITLTarget, &e.StepLeft, &e.Delay, &e.Enter, &e.Refill} {
			if rapid.IntRange(0, 3).Draw(t, "spoil") == 0 {
				*x = when.Draw(t, "time")
			}
		}
		e.Slow = rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1), 1e-9}).Draw(t, "slow")
		if rapid.IntRange(0, 3).Draw(t, "free") == 0 {
			e.Profile = &profile.Profile{}
		}
		m := predictor.Margin{Upper: rapid.SampledFrom([]float64{0, 1, math.NaN(), math.Inf(1), math.Inf(-1), 1e9}).Draw(t, "upper"),
			UpperIdle: rapid.Float64().Draw(t, "idle"), Level: rapid.SampledFrom([]float64{0, 0.5, 1, math.NaN()}).Draw(t, "level")}
		odd(t, e, &s, l, m)
	})
}

// Nothing is allocated once a Forecast has seen an engine as large.
func TestForecastDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	l := learned(rng, 4)
	var f predictor.Forecast
	var residual predictor.Residual = normal{0, 0.2}
	e, s := busy(rng, "mock", t, 24, 40)
	decide := func() {
		simulate(t, &f, e, s, l)
		f.Outlook(e, s, l, predictor.Residuals{New: residual}, predictor.Margin{Upper: 0.5, UpperIdle: 0.3, UpperOthers: 0.5, Level: 0.9})
	}
	decide()
	if n := testing.AllocsPerRun(50, decide); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
