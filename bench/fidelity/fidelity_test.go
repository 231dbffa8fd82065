package fidelity

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/ladder"
	"github.com/cadence-slo/cadence/bench/record"
)

// rows are n answers, the i-th of which takes (i+1) × unit.
func rows(n int, unit time.Duration) []record.Request {
	out := make([]record.Request, n)
	for i := range out {
		e2e := time.Duration(i+1) * unit
		out[i] = record.Request{Index: i, Phase: record.Measure, PromptTokens: 9, CapTokens: 5, OutputTokens: 5, Intended: time.Duration(i) * time.Second, Queued: -1, TTFT: e2e / 2, E2E: e2e, Outcome: record.OK}
	}
	return out
}

func TestCompare(t *testing.T) {
	slos := map[string]record.SLO{"": {E2E: 50 * time.Millisecond}}
	of := func(on string, load float64, unit time.Duration) Outcome {
		return outcome(&record.Run{On: on, Load: load, Length: 100 * time.Second, SLOs: slos}, rows(100, unit))
	}
	runs := []Outcome{
		of(ladder.Llama, 0.8, 1000*time.Microsecond), of(ladder.Sim, 0.8, 900*time.Microsecond), of(ladder.Mock, 0.8, 1150*time.Microsecond),
		of(ladder.Mock, 0.2, 100*time.Microsecond), of(ladder.Sim, 0.2, 100*time.Microsecond),
	}
	if r := &runs[0]; r.Answered != 100 || r.E2EP50 != 50500*time.Microsecond || r.E2EP99 != 99010*time.Microsecond || r.Goodput != 0.5 {
		t.Fatalf("%+v", r)
	}
	got := compare(runs, DefaultTargets())
	if len(got) != 4*3 || got[0].Load != 0.2 || got[3].Load != 0.8 {
		t.Fatalf("%+v", got)
	}
	type key struct {
		load                float64
		left, right, metric string
	}
	by := map[key]Difference{}
	for _, d := range got {
		by[key{d.Load, d.Left, d.Right, d.Metric}] = d
	}
	for k, want := range map[key]struct {
		err    float64
		passed bool
	}{
		{0.2, "sim", "mock", MetricP99}:      {0, true},
		{0.8, "sim", "llama", MetricP50}:     {-0.1, true},
		{0.8, "sim", "llama", MetricP99}:     {-0.1, true},
		{0.8, "sim", "llama", MetricGoodput}: {0.1, true}, // 55 within 50 ms, not 50
		{0.8, "mock", "llama", MetricP50}:    {0.15, false},
		{0.8, "mock", "llama", MetricP99}:    {0.15, true},
		{0.8, "sim", "mock", MetricP99}:      {-0.2174, false},
	} {
		d, ok := by[k]
		if !ok || math.Abs(d.Error-want.err) > 1e-3 || d.Passed != want.passed {
			t.Errorf("%+v: %+v, want %+v", k, d, want)
		}
	}
	none := compare([]Outcome{{On: ladder.Sim, Goodput: 1}, {On: ladder.Llama}}, DefaultTargets())
	if none[0].Error != 0 || !none[0].Passed || none[2].Passed {
		t.Errorf("%+v", none)
	}
}

func TestSame(t *testing.T) {
	if err := same(rows(20, time.Millisecond), rows(20, time.Second)); err != nil {
		t.Error(err)
	}
	backwards := rows(20, time.Millisecond)
	backwards[0], backwards[19] = backwards[19], backwards[0]
	if err := same(rows(20, time.Millisecond), backwards); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(r *record.Request){
		"time": func(r *record.Request) { r.Intended++ }, "prompt": func(r *record.Request) { r.PromptTokens++ },
		"answer": func(r *record.Request) { r.OutputTokens-- }, "max_tokens": func(r *record.Request) { r.CapTokens++ },
	} {
		other := rows(20, time.Millisecond)
		change(&other[7])
		if err := same(rows(20, time.Millisecond), other); err == nil || !strings.Contains(err.Error(), "request 7 ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := same(rows(20, 1), rows(19, 1)); err == nil {
		t.Error("one has more")
	}
}

func TestServed(t *testing.T) {
	if got := served(rows(100, time.Second)); math.Abs(got-0.5) > 1e-9 { // one second each, after as many seconds
		t.Error(got)
	}
	if got := served(nil); got != 0 {
		t.Error(got)
	}
}

func TestValidate(t *testing.T) {
	good := DefaultOptions()
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(o *Options){
		"on":             func(o *Options) { o.On = []string{"sim", "gpu"} },
		"loads":          func(o *Options) { o.Loads = []float64{0.5, math.NaN()} },
		"requests":       func(o *Options) { o.Requests = 1 },
		"warmup":         func(o *Options) { o.Warmup = -1 },
		"workload":       func(o *Options) { o.Workload = "" },
		"slo-e2e":        func(o *Options) { o.SLO = -1 },
		"drain":          func(o *Options) { o.Drain = 0 },
		"target-p50":     func(o *Options) { o.P50 = 0 },
		"target-p99":     func(o *Options) { o.P99 = 1 },
		"target-goodput": func(o *Options) { o.Goodput = math.NaN() },
		"rounds":         func(o *Options) { o.Rounds = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	bare := DefaultOptions()
	bare.On = []string{"sim", "mock"}
	if _, err := Run(t.Context(), bare); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "profile") {
		t.Error(err)
	}
	one := DefaultOptions()
	one.On = []string{"sim", "sim"}
	if err := one.Validate(); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}
