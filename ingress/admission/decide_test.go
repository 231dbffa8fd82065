package admission_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

// probability draws one, and now and then something that is none.
func probability(t *rapid.T, label string) float64 {
	odd := rapid.SampledFrom([]float64{0, 0.01, 1, -1, 2, math.NaN(), math.Inf(1), math.Inf(-1)})
	return rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64Range(0, 1), odd).Draw(t, label)
}

// latency draws one, often at the edges.
func latency(t *rapid.T, label string) time.Duration {
	edge := rapid.SampledFrom([]time.Duration{0, time.Second, 4 * time.Second})
	some := rapid.Map(rapid.Int64Range(-1, int64(8*time.Second)), func(n int64) time.Duration { return time.Duration(n) })
	odd := rapid.SampledFrom([]time.Duration{math.MinInt64, math.MaxInt64})
	return rapid.OneOf(edge, some, odd).Draw(t, label)
}

func input(t *rapid.T, now time.Duration) *admission.Input {
	return &admission.Input{
		Now: now,
		Request: admission.Request{Class: rapid.SampledFrom([]schema.Class{"", schema.BestEffort, schema.Guaranteed}).Draw(t, "class"),
			Key: rapid.Uint64Range(0, 30).Draw(t, "key"), PromptTokens: rapid.Int32Range(-1, 500).Draw(t, "prompt"),
			CapTokens: rapid.Int32Range(-1, 500).Draw(t, "cap"), E2E: latency(t, "e2e"), TTFT: latency(t, "ttft")},
		Outlook: predictor.Outlook{Predicted: latency(t, "predicted"), First: latency(t, "first"),
			Meet: probability(t, "meet"), MeetIdle: probability(t, "meet idle"), Harm: probability(t, "harm"), Cost: latency(t, "cost"), Share: latency(t, "share"),
			Bound: latency(t, "bound"), BoundIdle: latency(t, "bound idle"), Level: 0.95,
			Breaks: rapid.IntRange(0, 5).Draw(t, "breaks") == 0, Drain: latency(t, "drain"), Idle: rapid.IntRange(0, 3).Draw(t, "idle") == 0},
		Cold: rapid.IntRange(0, 5).Draw(t, "cold") == 0,
		Load: admission.Load{Workers: rapid.IntRange(-1, 4).Draw(t, "workers"), Waiting: rapid.IntRange(0, 20).Draw(t, "waiting"),
			Wait: latency(t, "wait"), Tokens: rapid.Int64Range(0, 10000).Draw(t, "tokens")},
	}
}

func TestMarginalKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := admission.DefaultConfig()
		cfg.Hysteresis = rapid.SampledFrom([]float64{1, 0.9, 0.1}).Draw(t, "hysteresis")
		cfg.Price.Window, cfg.Price.MinArrivals, cfg.Price.MaxArrivals = 2*time.Second, 1, 30
		cfg.Explore = admission.Explore{Rate: rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "explore"), Tokens: 50, Burst: 1000}
		m, err := admission.NewMarginal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		now, explored, most := time.Duration(0), 0.0, cfg.Explore.Burst
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			gap := seconds(t, "gap", 0, 0.5)
			now += gap
			in := input(t, now)
			o, r := in.Outlook, in.Request
			d := m.Decide(in, rng)

			asks := r.Class == schema.Guaranteed && r.E2E > 0
			bounded := o.Bound > 0 && o.Bound <= r.E2E
			chance := d.Reason == admission.Exploration
			most += gap.Seconds() * cfg.Explore.Tokens * float64(max(0, in.Load.Workers))
			if d.Admit && chance {
				explored += float64(max(0, r.PromptTokens) + max(0, r.CapTokens))
			}
			hopeless := !in.Cold && (!(o.MeetIdle > cfg.MinMeet) || asks && o.BoundIdle > r.E2E)
			breaks := o.Breaks
			switch {
			case explored > most+1e-6:
				t.Fatalf("%v tokens explored, at most %v may be", explored, most)
			case breaks && (d.Admit || d.Propensity != 0):
				t.Fatalf("%+v although it breaks a promise", d)
			case o.Idle && !hopeless && !breaks && !d.Admit:
				t.Fatalf("%+v although the engine is idle", d)
			case hopeless && !breaks && d.Admit && !chance:
				t.Fatalf("%+v although it is hopeless", d)
			case d.Class == schema.Guaranteed && (!d.Admit || !asks || in.Cold || !bounded || d.Reason != admission.ByBound):
				t.Fatalf("%+v is guaranteed", d)
			case asks && !in.Cold && d.Admit && d.Class != schema.Guaranteed && !chance && d.Reason != admission.Idle:
				t.Fatalf("%+v is not guaranteed", d)
			case asks && bounded && !in.Cold && !breaks && !hopeless && cfg.Hysteresis == 1 && d.Class != schema.Guaranteed:
				t.Fatalf("%+v although the bound fits", d)
			case d.Class != schema.Guaranteed && d.Class != schema.BestEffort:
				t.Fatalf("class %q", d.Class)
			case !d.Admit && (d.RetryAfter < time.Second || d.RetryAfter > cfg.Retry.Max || d.RetryAfter%time.Second != 0):
				t.Fatalf("retry after %v", d.RetryAfter)
			case d.Admit && d.RetryAfter != 0:
				t.Fatalf("admitted, and retry after %v", d.RetryAfter)
			case !d.Admit && (d.Reason.Refusal() == "" || d.Reason.Message() == ""):
				t.Fatalf("refused for %v", d.Reason)
			case !(d.Lambda >= 0) || math.IsInf(d.Lambda, 0) || math.IsNaN(d.Gain) || math.IsInf(d.Gain, 0) || d.Gain > 1:
				t.Fatalf("λ is %v, gain is %v", d.Lambda, d.Gain)
			case d.Admit && !chance && d.Propensity != 1:
				t.Fatalf("admitted by %v with propensity %v", d.Reason, d.Propensity)
			case (!d.Admit || chance) && d.Propensity != 0 && d.Propensity != cfg.Explore.Rate:
				t.Fatalf("propensity %v", d.Propensity)
			case d.Admit && d.Propensity == 0:
				t.Fatal("admitted with propensity 0")
			case in.Cold != (d.Note != ""):
				t.Fatalf("note %q", d.Note)
			}
		}
	})
}

// While everything fits, λ is 0 and best effort is decided by gain alone.
func TestMarginalRefusesNothingForItsPriceWhileDemandFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := admission.DefaultConfig()
		cfg.Explore.Rate, cfg.Price.Utilisation, cfg.Price.MaxArrivals = 0, 1, 100
		m, err := admission.NewMarginal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += time.Second
			in := input(t, now)
			in.Cold, in.Outlook.Breaks, in.Request.Class, in.Load.Workers = false, false, "", 1
			in.Outlook.MeetIdle = 1
			in.Outlook.Meet, in.Outlook.Harm = rapid.Float64Range(0, 1).Draw(t, "p"), rapid.Float64Range(0, 1).Draw(t, "loss")
			in.Outlook.Share = time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "work"))
			d := m.Decide(in, nil)
			if want := in.Outlook.Meet > in.Outlook.Harm || in.Outlook.Idle; d.Lambda != 0 || d.Admit != want {
				t.Fatalf("%+v, want %v and λ = 0", d, want)
			}
		}
	})
}

// hopeful is a request that the rule refuses, on an engine that is not idle.
func hopeful(now time.Duration) *admission.Input {
	return &admission.Input{Now: now, Request: admission.Request{PromptTokens: 100, CapTokens: 100, E2E: 4 * time.Second},
		Outlook: predictor.Outlook{Meet: 0, MeetIdle: 0.9, Share: time.Second}, Load: admission.Load{Workers: 1}}
}

func TestExplorationRate(t *testing.T) {
	const n, rate = 100_000, 0.01
	cfg := admission.DefaultConfig()
	cfg.Explore = admission.Explore{Rate: rate, Burst: 1e12}
	m, err := admission.NewMarginal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	k := 0
	for i := range n {
		d := m.Decide(hopeful(time.Duration(i)*time.Millisecond), rng)
		if d.Admit {
			k++
		}
		if d.Propensity != rate {
			t.Fatalf("propensity %v", d.Propensity)
		}
	}
	if sd := math.Sqrt(n * rate * (1 - rate)); math.Abs(float64(k)-n*rate) > 4*sd {
		t.Errorf("%d of %d explored, want %v ± %.0f", k, n, n*rate, 4*sd)
	}
}

func TestExplorationIsCapped(t *testing.T) {
	const tokens, burst, span = 20, 1000, 1000
	cfg := admission.DefaultConfig()
	cfg.Explore = admission.Explore{Rate: 0.5, Tokens: tokens, Burst: burst}
	m, err := admission.NewMarginal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	spent, weight, shut := 0, 0.0, 0
	for i := range 100 * span {
		d := m.Decide(hopeful(time.Duration(i)*10*time.Millisecond), rng)
		if d.Admit {
			spent += 200
		}
		weight += d.Propensity
		if d.Propensity == 0 {
			shut++
		}
	}
	if most := burst + tokens*span; spent > most || spent < most-burst {
		t.Errorf("%d tokens explored, want %d or little less", spent, most)
	}
	// The propensities are those of what happened: their sum is the number expected.
	if k := float64(spent / 200); math.Abs(k-weight) > 4*math.Sqrt(weight) || shut == 0 {
		t.Errorf("%v explored, %.0f by their propensities, %d without a chance", k, weight, shut)
	}
}

// Without a source of chance nothing is left to it.
func TestWithoutRandomness(t *testing.T) {
	cfg := admission.DefaultConfig()
	cfg.Explore = admission.Explore{Rate: 1, Burst: 1e9}
	m, err := admission.NewMarginal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if d := m.Decide(hopeful(0), nil); d.Admit || d.Propensity != 0 || d.RetryAfter != time.Second {
		t.Errorf("%+v", d)
	}
}

func TestRetryAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := admission.Retry{Spread: rapid.Float64Range(0, 10).Draw(t, "spread")}
		r.Max = time.Duration(rapid.IntRange(1, 600).Draw(t, "max")) * time.Second
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		drain := latency(t, "drain")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		got := r.After(drain, rng)
		latest := max(1, drain.Seconds()+1) * (1 + r.Spread)
		switch {
		case got < time.Second || got > r.Max || got%time.Second != 0:
			t.Fatalf("%v with a most of %v", got, r.Max)
		case got < drain && got.Seconds() < math.Floor((r.Max.Seconds()-1)/(1+r.Spread)):
			t.Fatalf("%v, before %v", got, drain)
		case got.Seconds() > latest+1:
			t.Fatalf("%v, after %v", got, drain)
		}
	})
}

// Refused together, clients do not come back together.
func TestRetryAfterIsSpread(t *testing.T) {
	r := admission.DefaultRetry()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		drain  time.Duration
		values int
	}{{0, 2}, {10 * time.Second, 7}, {time.Hour, 21}} {
		seen := map[time.Duration]int{}
		for range 10_000 {
			seen[r.After(c.drain, rng)]++
		}
		if len(seen) != c.values {
			t.Errorf("%v: %d values, want %d: %v", c.drain, len(seen), c.values, seen)
		}
		for v, n := range seen {
			if want := 10_000 / c.values; n < want/2 || n > 2*want {
				t.Errorf("%v: %v comes %d times of 10000, want about %d", c.drain, v, n, want)
			}
		}
	}
}

// steady returns a rule in overload with a full window, and its requests.
func steady(tb testing.TB) func() {
	cfg := admission.DefaultConfig()
	m, err := admission.NewMarginal(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	in := &admission.Input{Request: admission.Request{PromptTokens: 100, CapTokens: 100, E2E: 4 * time.Second}, Load: admission.Load{Workers: 4}}
	decide := func() {
		in.Now += 5 * time.Millisecond
		in.Request.Key = uint64(in.Now)
		in.Request.Class = schema.BestEffort
		if rng.IntN(4) == 0 {
			in.Request.Class = schema.Guaranteed
		}
		p := rng.Float64()
		in.Outlook = predictor.Outlook{Meet: p, MeetIdle: 0.5 + p/2, Harm: rng.Float64() / 4, Share: time.Duration(1 + rng.IntN(int(time.Second))),
			Bound: time.Duration(rng.IntN(int(8 * time.Second))), BoundIdle: time.Second, Level: 0.95, Drain: time.Second}
		m.Decide(in, rng)
	}
	for range 3 * cfg.Price.MaxArrivals {
		decide()
	}
	return decide
}

func TestDecideDoesNotAllocate(t *testing.T) {
	decide := steady(t)
	if n := testing.AllocsPerRun(20_000, decide); n != 0 {
		t.Errorf("%v allocations per decision", n)
	}
}

// A decision in overload with a full window of 200 arrivals a second, the drawing of its random outlook included.
//
//	go test ./ingress/admission -run - -bench BenchmarkDecide -benchmem
func BenchmarkDecide(b *testing.B) {
	decide := steady(b)
	b.ReportAllocs()
	for b.Loop() {
		decide()
	}
}

// Each of several ingresses sells its part of the workers' time, and explores its part of their tokens.
func TestIngressesShareTheWorkers(t *testing.T) {
	one, four := lambda(t, 1, 1), lambda(t, 4, 4)
	if one == 0 || one != four {
		t.Errorf("λ is %v alone at one worker, %v as one of four at four", one, four)
	}
	if alone := lambda(t, 4, 1); alone >= one {
		t.Errorf("λ is %v alone at four workers, %v at one", alone, one)
	}
}

// lambda is the price in the same demand.
func lambda(t *testing.T, workers, ingresses int) float64 {
	t.Helper()
	cfg := admission.DefaultConfig()
	m, err := admission.NewMarginal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	in := hopeful(0)
	in.Load.Workers, in.Load.Ingresses = workers, ingresses
	last := 0.0
	for i := range 300 {
		in.Now = time.Duration(i) * 500 * time.Millisecond
		in.Outlook.Share = time.Duration(1+i%7) * 100 * time.Millisecond
		last = m.Decide(in, nil).Lambda
	}
	return last
}
