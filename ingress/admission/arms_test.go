package admission_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

// arms returns every arm, with names as they are in reports.
func arms(t interface{ Fatal(...any) }) []admission.Arm {
	cfg, window := admission.DefaultConfig(), admission.DefaultShed()
	cfg.Price.MaxArrivals, window.Window.MaxArrivals = 200, 200 // quicker to make
	marginal, err := admission.NewMarginal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shed, err := admission.NewShed(window)
	if err != nil {
		t.Fatal(err)
	}
	wait, arrival, depth := admission.DefaultQueueWait(), admission.DefaultQueueWait(), admission.DefaultQueueDepth()
	arrival.AtArrival = true
	u80, u95, u99, online := admission.Frozen(0.80), admission.Frozen(0.95), admission.Frozen(0.99), admission.Online(0.80)
	constant := admission.ConstantQuantile{Bound: 3 * time.Second, Retry: admission.DefaultRetry()}
	rates := admission.Arithmetic(100)
	return []admission.Arm{admission.None{}, &wait, &arrival, &depth, shed, &constant, &rates, &u80, &u95, &u99, &online, marginal}
}

func TestNamesOfArmsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range arms(t) {
		if a.Name() == "" || seen[a.Name()] {
			t.Errorf("name %q", a.Name())
		}
		seen[a.Name()] = true
	}
	if !seen["frozen-u80"] || !seen["frozen-u99"] || !seen["online-u80"] {
		t.Errorf("names %v", seen)
	}
}

// Whatever an arm is told, its answer is one.
func TestArmsAnswerAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		all := arms(t)
		now := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			now += seconds(t, "gap", 0, 1)
			in := input(t, now)
			before := fmt.Sprint(*in)
			for _, a := range all {
				d := a.Decide(in, rng)
				asks := in.Request.Class == schema.Guaranteed && in.Request.E2E > 0
				switch {
				case fmt.Sprint(*in) != before:
					t.Fatalf("%s changed its input", a.Name())
				case d.Admit != (d.RetryAfter == 0), d.RetryAfter%time.Second != 0, d.RetryAfter < 0, d.RetryAfter > time.Minute:
					t.Fatalf("%s: %+v", a.Name(), d)
				case d.Reason == admission.NoReason || d.Reason.String() == "" || !d.Admit && d.Reason.Refusal() == "":
					t.Fatalf("%s: %+v", a.Name(), d)
				case !(d.Propensity >= 0 && d.Propensity <= 1) || d.Admit && d.Propensity == 0:
					t.Fatalf("%s: %+v", a.Name(), d)
				case d.Class == schema.Guaranteed && (!d.Admit || !asks || d.Reason != admission.ByBound):
					t.Fatalf("%s: %+v", a.Name(), d)
				}
			}
		}
	})
}

func TestGatesPromiseNothingWithoutABound(t *testing.T) {
	a := admission.Online(0.8)
	in := &admission.Input{Request: admission.Request{Class: schema.Guaranteed, E2E: time.Second}, Outlook: predictor.Outlook{Level: 0.8}}
	if d := a.Decide(in, nil); !d.Admit || d.Class != schema.BestEffort {
		t.Errorf("%+v", d)
	}
}

// At n times the capacity, 1/n is admitted.
func TestShedAdmitsWhatFits(t *testing.T) {
	cfg := admission.DefaultShed()
	cfg.Window.Utilisation = 0.5
	a, err := admission.NewShed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	in := &admission.Input{Outlook: predictor.Outlook{MeetIdle: 1, Share: time.Second}, Load: admission.Load{Workers: 2}}
	n, k := 0, 0
	for ; in.Now < 4000*time.Second; in.Now += 250 * time.Millisecond { // 4 s of work in a second, of which 1 s is to be done
		d := a.Decide(in, rng)
		if in.Now < 100*time.Second {
			continue
		}
		n++
		if d.Admit {
			k++
		}
	}
	p := 0.25
	if sd := math.Sqrt(float64(n) * p * (1 - p)); math.Abs(float64(k)-p*float64(n)) > 4*sd+0.01*float64(n) {
		t.Errorf("%d of %d admitted", k, n)
	}
}

func TestFitConstant(t *testing.T) {
	var latencies []time.Duration
	for i := range 99 {
		latencies = append(latencies, time.Duration((i*50)%99+1)*time.Second) // 1 to 99 s, in some order
	}
	for level, want := range map[float64]int{0.5: 50, 0.8: 80, 0.95: 95, 0.99: 99} {
		a, err := admission.FitConstant(latencies, level)
		if err != nil || a.Bound != time.Duration(want)*time.Second || a.Validate() != nil {
			t.Errorf("%v: %v, %v, want %d s", level, a.Bound, err, want)
		}
	}
	if latencies[1] != 51*time.Second {
		t.Error("the latencies were reordered")
	}
	for _, level := range []float64{0.991, 0, 1, math.NaN()} {
		if _, err := admission.FitConstant(latencies, level); !errors.Is(err, admission.ErrFit) {
			t.Errorf("%v: %v", level, err)
		}
	}
	if _, err := admission.FitConstant(make([]time.Duration, 99), 0.5); !errors.Is(err, admission.ErrFit) {
		t.Errorf("of nothing: %v", err)
	}
}

// samples follow the arithmetic, with noise that multiplies.
func samples(n int, noise float64, seed uint64) []admission.Sample {
	rng := rand.New(rand.NewPCG(seed, 0))
	all := make([]admission.Sample, n)
	for i := range all {
		s := admission.Sample{PrefillTokens: float64(rng.IntN(500)), CapTokens: float64(rng.IntN(300)), QueuedTokens: float64(rng.IntN(5000))}
		y := 0.2 + 0.001*s.PrefillTokens + 0.02*s.CapTokens + 0.003*s.QueuedTokens
		s.E2E = time.Duration(y * (1 + noise*rng.Float64()) * float64(time.Second))
		all[i] = s
	}
	return all
}

func TestFitThroughputFindsTheRates(t *testing.T) {
	a, err := admission.FitThroughput(samples(4000, 0, 1), 0.95)
	if err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-5*want }
	if !near(a.Base.Seconds(), 0.2) || !near(a.Prefill, 0.001) || !near(a.Cap, 0.02) || !near(a.Queued, 0.003) || !near(a.Margin, 1) {
		t.Errorf("%+v", a)
	}
}

func TestFitThroughputCovers(t *testing.T) {
	const level = 0.9
	a, err := admission.FitThroughput(samples(4000, 1, 1), level)
	if err != nil {
		t.Fatal(err)
	}
	fresh, hit := samples(4000, 1, 2), 0
	for _, s := range fresh {
		in := &admission.Input{Request: admission.Request{PromptTokens: int32(s.PrefillTokens), CapTokens: int32(s.CapTokens), E2E: s.E2E},
			Load: admission.Load{Tokens: int64(s.QueuedTokens)}}
		// What took as long as its budget was within the bound if the gate would not have admitted it.
		if d := a.Decide(in, nil); !d.Admit {
			hit++
		}
	}
	if coverage := float64(hit) / float64(len(fresh)); math.Abs(coverage-level) > 0.03 {
		t.Errorf("coverage %v, want %v", coverage, level)
	}
}

func TestFitThroughputRefusesWhatTellsNothing(t *testing.T) {
	alike := make([]admission.Sample, 100)
	for i := range alike {
		alike[i] = admission.Sample{PrefillTokens: 10, CapTokens: 10, QueuedTokens: 0, E2E: time.Second}
	}
	for name, s := range map[string][]admission.Sample{"none": nil, "few": samples(8, 0, 1), "alike": alike} {
		if a, err := admission.FitThroughput(s, 0.9); !errors.Is(err, admission.ErrFit) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func TestReasonsHaveDistinctNames(t *testing.T) {
	seen := map[string]bool{}
	for r := admission.NoReason; r.String() != "unknown"; r++ {
		if seen[r.String()] || (r == admission.NoReason) != (r.String() == "") {
			t.Errorf("reason %d is named %q", r, r)
		}
		if (r.Refusal() == "") != (r.Message() == "") {
			t.Errorf("%v: %q, %q", r, r.Refusal(), r.Message())
		}
		seen[r.String()] = true
	}
	for _, name := range []string{"best_effort_price", "bound", "infeasible", "capacity", "protects_guaranteed", "exploration", "idle"} {
		if !seen[name] {
			t.Errorf("no reason is named %s", name)
		}
	}
}

func TestConstantsAreValidated(t *testing.T) {
	marginal := func(key string, change func(*admission.Config)) {
		c := admission.DefaultConfig()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		_, err := admission.NewMarginal(c)
		expect(t, key, err)
	}
	nan := math.NaN()
	marginal("min_meet", func(c *admission.Config) { c.MinMeet = 1 })
	marginal("hysteresis", func(c *admission.Config) { c.Hysteresis = 0 })
	marginal("hysteresis", func(c *admission.Config) { c.Hysteresis = 1.1 })
	marginal("cold_margin", func(c *admission.Config) { c.ColdMargin = nan })
	marginal("price.window", func(c *admission.Config) { c.Price.Window = 0 })
	marginal("price.max_window", func(c *admission.Config) { c.Price.MaxWindow = c.Price.Window - 1 })
	marginal("price.max_arrivals", func(c *admission.Config) { c.Price.MaxArrivals = 1<<20 + 1 })
	marginal("price.min_arrivals", func(c *admission.Config) { c.Price.MinArrivals = c.Price.MaxArrivals + 1 })
	marginal("price.utilisation", func(c *admission.Config) { c.Price.Utilisation = 0 })
	marginal("price.weight", func(c *admission.Config) { c.Price.Weight = 1.01 })
	marginal("price.every", func(c *admission.Config) { c.Price.Every = -1 })
	marginal("price.damping", func(c *admission.Config) { c.Price.Damping = -1 })
	marginal("explore.rate", func(c *admission.Config) { c.Explore.Rate = nan })
	marginal("explore.tokens", func(c *admission.Config) { c.Explore.Tokens = -1 })
	marginal("explore.burst", func(c *admission.Config) { c.Explore.Burst = math.Inf(1) })
	marginal("retry.spread", func(c *admission.Config) { c.Retry.Spread = -0.1 })
	marginal("retry.max", func(c *admission.Config) { c.Retry.Max = 1500 * time.Millisecond })

	wait := admission.DefaultQueueWait()
	wait.Limit = 0
	expect(t, "queue_wait.limit", wait.Validate())
	depth := admission.DefaultQueueDepth()
	depth.PerWorker = -1
	expect(t, "queue_depth.per_worker", depth.Validate())
	depth = admission.DefaultQueueDepth()
	depth.Resume = nan
	expect(t, "queue_depth.resume", depth.Validate())
	shed := admission.DefaultShed()
	shed.Window.Utilisation = 0
	_, err := admission.NewShed(shed)
	expect(t, "price.utilisation", err)
	gate := admission.Frozen(1)
	expect(t, "bound.level", gate.Validate())
	gate = admission.Frozen(0.9)
	gate.Safety = 0
	expect(t, "bound.safety", gate.Validate())
	gate = admission.Frozen(0.9)
	gate.Hysteresis = 2
	expect(t, "bound.hysteresis", gate.Validate())
	gate = admission.Frozen(0.9)
	gate.Label = ""
	expect(t, "bound.label", gate.Validate())
	constant := admission.ConstantQuantile{Retry: admission.DefaultRetry()}
	expect(t, "constant.bound", constant.Validate())
	rates := admission.Arithmetic(0)
	expect(t, "throughput.prefill", rates.Validate())
	rates = admission.Arithmetic(1)
	rates.Margin = 0
	expect(t, "throughput.margin", rates.Validate())
}

func expect(t *testing.T, key string, err error) {
	t.Helper()
	if !errors.Is(err, admission.ErrConfig) || !strings.Contains(err.Error(), ": "+key+" is ") {
		t.Errorf("%s: %v", key, err)
	}
}
