package gate

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/record"
	"pgregory.net/rapid"
)

func expected() *Budget {
	sample := func(rate, goodput float64, p99 time.Duration) Point {
		return Point{Sample: Sample{Rate: rate, Requests: 500, Goodput: goodput, TTFT99: p99 / 10, E2E99: p99, Canary: 100}}
	}
	return &Budget{Version: Version, Settings: DefaultSettings(), Points: []Point{sample(6, 6, 2*time.Second), sample(16, 4, 10*time.Second)}}
}

func samples(b *Budget) []Sample {
	var out []Sample
	for i := range b.Points {
		out = append(out, b.Points[i].Sample)
	}
	return out
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s []Sample) []Sample
		want   Exit
		says   string // in the complaints
	}{
		"the same":                    {func(s []Sample) []Sample { return s }, Passed, ""},
		"goodput 9 % less":            {func(s []Sample) []Sample { s[0].Goodput *= 0.91; return s }, Passed, ""},
		"goodput 11 % less":           {func(s []Sample) []Sample { s[0].Goodput *= 0.89; return s }, Regression, ""},
		"goodput 11 % less, overload": {func(s []Sample) []Sample { s[1].Goodput *= 0.89; return s }, Regression, ""},
		"0.4 % more failures":         {func(s []Sample) []Sample { s[0].Failed += 0.004; return s }, Passed, ""},
		"0.6 % more failures":         {func(s []Sample) []Sample { s[0].Failed += 0.006; s[0].Goodput *= 0.994; return s }, Regression, ""},
		"everything failed": {func(s []Sample) []Sample {
			s[0] = Sample{Rate: 6, Requests: 500, Failed: 1, Canary: 100, Invalid: []string{"every request failed"}}
			return s
		}, Regression, ""},
		"almost everything, and late": {func(s []Sample) []Sample { s[0].Failed = 0.99; s[0].Invalid = []string{"late"}; return s }, Invalid, "late"},
		"broken":                      {func(s []Sample) []Sample { s[1] = Sample{Rate: 16, Canary: 100, Broken: "gone"}; return s }, Regression, ""},
		"broken, slow machine":        {func(s []Sample) []Sample { s[1] = Sample{Rate: 16, Canary: 50, Broken: "gone"}; return s }, Invalid, "canary"},
		"no goodput":                  {func(s []Sample) []Sample { s[1].Goodput = 0; return s }, Regression, ""},
		"E2E p99 14 % longer":         {func(s []Sample) []Sample { s[0].E2E99 = s[0].E2E99 * 114 / 100; return s }, Passed, ""},
		"E2E p99 16 % longer":         {func(s []Sample) []Sample { s[1].E2E99 = s[1].E2E99 * 116 / 100; return s }, Regression, ""},
		"TTFT p99 16 % longer":        {func(s []Sample) []Sample { s[0].TTFT99 = s[0].TTFT99 * 116 / 100; return s }, Regression, ""},
		"everything better": {func(s []Sample) []Sample {
			s[0].Goodput, s[0].E2E99, s[0].TTFT99 = 60, 1, 1
			s[1].Goodput = 99
			return s
		}, Passed, ""},
		"better here, worse there":     {func(s []Sample) []Sample { s[0].Goodput = 60; s[1].Goodput = 1; return s }, Regression, ""},
		"in another order":             {func(s []Sample) []Sample { return []Sample{s[1], s[0]} }, Passed, ""},
		"late generator":               {func(s []Sample) []Sample { s[1].Invalid = []string{"behind its schedule"}; return s }, Invalid, "behind its schedule"},
		"late generator, worse":        {func(s []Sample) []Sample { s[1].Invalid = []string{"late"}; s[1].Goodput = 0; return s }, Invalid, "late"},
		"canary 9 % slower":            {func(s []Sample) []Sample { s[0].Canary = 91; return s }, Passed, ""},
		"canary 11 % slower":           {func(s []Sample) []Sample { s[0].Canary = 89; return s }, Invalid, "canary"},
		"canary failed":                {func(s []Sample) []Sample { s[0].Canary = 0; return s }, Invalid, "canary"},
		"canary faster":                {func(s []Sample) []Sample { s[0].Canary = 200; return s }, Passed, ""},
		"too few requests":             {func(s []Sample) []Sample { s[0].Requests = 480; return s }, Invalid, "480 requests"},
		"no requests":                  {func(s []Sample) []Sample { s[0].Requests = 0; return s }, Invalid, "0 requests"},
		"a rate is missing":            {func(s []Sample) []Sample { return s[:1] }, Invalid, "16 requests/s"},
		"nothing at all":               {func([]Sample) []Sample { return nil }, Invalid, "6 requests/s"},
		"slow canary hides regression": {func(s []Sample) []Sample { s[0].Canary = 50; s[0].E2E99 *= 3; return s }, Invalid, "canary"},
	} {
		b := expected()
		v := Judge(b, c.change(samples(b)))
		if v.Exit != c.want || !strings.Contains(strings.Join(v.Invalid, "\n"), c.says) || (v.Exit == Invalid) != (len(v.Invalid) > 0) {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v := Judge(&Budget{}, samples(expected())); v.Exit != Invalid {
		t.Errorf("without a budget: %+v", v)
	}
}

// Whatever else happens, getting better never turns a verdict bad, and getting worse never turns it good.
func TestVerdictsAreMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := expected()
		got := samples(b)
		for i := range got {
			s := &got[i]
			factor := rapid.Float64Range(0.5, 1.5)
			s.Goodput *= factor.Draw(t, "goodput")
			s.E2E99 = time.Duration(float64(s.E2E99) * factor.Draw(t, "e2e"))
			s.TTFT99 = time.Duration(float64(s.TTFT99) * factor.Draw(t, "ttft"))
		}
		before := Judge(b, got).Exit
		s := &got[rapid.IntRange(0, 1).Draw(t, "which")]
		better := rapid.Float64Range(1, 3).Draw(t, "better")
		worse := *s
		s.Goodput, s.E2E99, s.TTFT99 = s.Goodput*better, time.Duration(float64(s.E2E99)/better), time.Duration(float64(s.TTFT99)/better)
		if after := Judge(b, got).Exit; before == Passed && after != Passed {
			t.Fatalf("better is worse: %+v", got)
		}
		worse.Goodput, worse.E2E99, worse.TTFT99 = worse.Goodput/better, time.Duration(float64(worse.E2E99)*better), time.Duration(float64(worse.TTFT99)*better)
		*s = worse
		if after := Judge(b, got).Exit; before == Regression && after != Regression {
			t.Fatalf("worse is better: %+v", got)
		}
	})
}

func TestReportsSayWhatIsWorse(t *testing.T) {
	b := expected()
	got := samples(b)
	got[1].E2E99 *= 2
	r := Report{Verdict: Judge(b, got), Budget: b, Samples: got}
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+100.0 %", "WORSE", "make refresh-gate", "11.5s", "0.50 %"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if n := strings.Count(text.String(), "WORSE"); n != 1 {
		t.Errorf("%d lines are worse", n)
	}
	if _, err := json.Marshal(&r); err != nil {
		t.Error(err)
	}
}

// passOf is a run at each of the default rates.
func passOf(goodput float64, p99 time.Duration) []Sample {
	rates := DefaultSettings().Rates
	one := Sample{Rate: rates[0], Requests: 100, Goodput: goodput, TTFT99: p99 / 2, E2E99: p99, Failed: 0.001, Canary: 90}
	two := one
	two.Rate = rates[1]
	return []Sample{one, two}
}

// A budget is the median of each figure, and tells how far the runs were apart.
func TestBudgets(t *testing.T) {
	s := DefaultSettings()
	b, err := budgetOf(&s, [][]Sample{passOf(4.95, 9800*time.Millisecond), passOf(5, 10*time.Second), passOf(5.05, 10200*time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	p := b.Points[1]
	if b.Runs != 3 || p.Rate != s.Rates[1] || p.Goodput != 5 || p.E2E99 != 10*time.Second || p.TTFT99 != 5*time.Second || p.Failed != 0.001 || p.Canary != 90 || p.Requests != 100 ||
		p.Noise["goodput"] != 0.02 || p.Noise["E2E p99"] != 0.04 || p.Noise["failed"] != 0 {
		t.Errorf("%+v", p)
	}
	if v := Judge(b, samples(b)); v.Exit != Passed {
		t.Errorf("%+v", v)
	}
	path := filepath.Join(t.TempDir(), "budget.json")
	if err := b.Write(path); err != nil {
		t.Fatal(err)
	}
	if got, err := Open(path); err != nil || !reflect.DeepEqual(got, b) {
		t.Errorf("%+v, %v", got, err)
	}
	even, err := budgetOf(&s, [][]Sample{passOf(5, 10*time.Second), passOf(5.1, 10*time.Second), passOf(5.2, 10*time.Second), passOf(5.1, 10*time.Second)})
	if err != nil || even.Points[0].Goodput != 5.1 {
		t.Errorf("%+v, %v", even, err)
	}
	if even, err = budgetOf(&s, [][]Sample{passOf(5, 10*time.Second), passOf(5, 10*time.Second), passOf(5.1, 10*time.Second), passOf(5.1, 10*time.Second)}); err != nil || even.Points[0].Goodput != 5.05 {
		t.Errorf("%+v, %v", even, err)
	}
	if one, err := b.At([]float64{s.Rates[1]}); err != nil || len(one.Points) != 1 || one.Points[0].Rate != s.Rates[1] || one.Settings.Rates[0] != s.Rates[1] || len(b.Points) != 2 {
		t.Errorf("%+v, %v", one, err)
	}
	if _, err := b.At([]float64{7}); !errors.Is(err, ErrBudget) {
		t.Error(err)
	}
	b.Runs = 2
	if err := b.Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrBudget) {
		t.Errorf("a budget of two runs: %v", err)
	}
}

// What is too little, disturbed or too far apart makes no budget.
func TestNoBudgets(t *testing.T) {
	s := DefaultSettings()
	good := passOf(5, 10*time.Second)
	changed := func(change func(*Sample)) []Sample {
		p := slices.Clone(good)
		change(&p[1])
		return p
	}
	for name, odd := range map[string][]Sample{
		"invalid":  changed(func(s *Sample) { s.Invalid = []string{"late"} }),
		"broken":   changed(func(s *Sample) { s.Broken = "gone" }),
		"short":    good[:1],
		"goodput":  changed(func(s *Sample) { s.Goodput *= 1.06 }),
		"TTFT p99": changed(func(s *Sample) { s.TTFT99 = s.TTFT99 * 108 / 100 }),
		"E2E p99":  changed(func(s *Sample) { s.E2E99 = s.E2E99 * 108 / 100 }),
		"failed":   changed(func(s *Sample) { s.Failed += 0.003 }),
	} {
		if _, err := budgetOf(&s, [][]Sample{good, good, odd}); !errors.Is(err, ErrBudget) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := budgetOf(&s, [][]Sample{good, good}); !errors.Is(err, ErrBudget) {
		t.Errorf("two passes: %v", err)
	}
	if _, err := Refresh(t.Context(), s, MinRuns-1, Options{}); !errors.Is(err, ErrBudget) {
		t.Error(err)
	}
	for _, change := range []func(*Settings){
		func(s *Settings) { s.Workload = "" }, func(s *Settings) { s.Rates = nil }, func(s *Settings) { s.Rates = []float64{0} }, func(s *Settings) { s.Warmup = s.Length },
		func(s *Settings) { s.Drain = 0 }, func(s *Settings) { s.SLO = record.SLO{} },
	} {
		wrong := DefaultSettings()
		change(&wrong)
		if err := wrong.Validate(); !errors.Is(err, ErrBudget) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	for _, text := range []string{"", "{", `{"version": 1}`, `{"version": 2, "more": 1}`, `{"version": 2}`} {
		path := filepath.Join(t.TempDir(), "budget.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, ErrBudget) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is committed can be judged by, and the Makefile's targets are there.
func TestCommittedBudget(t *testing.T) {
	b, err := Open("budget.json")
	if err != nil {
		t.Fatalf("%v; on a quiet machine: make refresh-gate", err)
	}
	if v := Judge(b, samples(b)); v.Exit != Passed {
		t.Errorf("%+v", v)
	}
	want := DefaultSettings()
	if want.Contents, err = want.contents(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(b.Settings, want) {
		t.Errorf("the budget is of %+v, a new one would be of %+v", b.Settings, want)
	}
}

// A run at a rate becomes a sample with what the budget bounds.
func TestSampleOf(t *testing.T) {
	run := &record.Run{Rate: 6, Length: 2 * time.Second, SLOs: map[string]record.SLO{"": {E2E: time.Second}}, LagMax: 3, Canary: &record.Canary{TokensRate: 97}, Invalid: []string{"x"}}
	rows := []record.Request{
		{Phase: record.Measure, Outcome: record.OK, TTFT: time.Millisecond, E2E: time.Second, OutputTokens: 2},
		{Phase: record.Measure, Outcome: record.OK, TTFT: time.Millisecond, E2E: 3 * time.Second, OutputTokens: 2},
		{Phase: record.Warmup, Outcome: record.OK, TTFT: time.Hour, E2E: time.Hour},
	}
	s := sampleOf(run, rows)
	if s.Rate != 6 || s.Requests != 2 || s.Goodput != 0.5 || s.TTFT99 != time.Millisecond || s.E2E99 < 2900*time.Millisecond || s.E2E99 > 3*time.Second || s.Failed != 0 || s.LagMax != 3 || len(s.Invalid) != 1 {
		t.Errorf("%+v", s)
	}
	if s.Canary != 0 {
		t.Error("a change to the pipeline can slow the canary")
	}
	rows = rows[:0]
	for _, o := range []record.Outcome{record.OK, record.Shed, record.Error, record.Timeout, record.Censored} {
		rows = append(rows, record.Request{Phase: record.Measure, Outcome: o})
	}
	if s := sampleOf(run, rows); s.Failed != 0.6 {
		t.Errorf("%+v", s)
	}
	own := []record.Request{{Phase: record.Measure, Outcome: record.Error, Reason: load.Generator}}
	if s := sampleOf(run, own); s.Failed != 0 || s.dead() {
		t.Errorf("the generator's own error is the pipeline's: %+v", s)
	}
	if s := sampleOf(run, nil); s.Failed != 0 || s.dead() {
		t.Errorf("%+v", s)
	}
}

// The Makefile has the targets that messages name, and the program's own status reaches what runs a change's checks: make's is
// 2 whatever failed.
func TestTargets(t *testing.T) {
	for file, lines := range map[string][]string{
		"../../Makefile": {"gate:", "prove-gate:", "refresh-gate:"},
		"../../.ci/run":  {"bin/cadence gate", "make prove-gate"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(text), "\n"+line) {
				t.Errorf("%s has no line %s", file, line)
			}
		}
	}
}
