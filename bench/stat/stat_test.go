package stat

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

func TestQuantiles(t *testing.T) {
	x := []float64{1, 2, 3, 4}
	for q, want := range map[float64]float64{0: 1, 0.25: 1.75, 0.5: 2.5, 0.99: 3.97, 1: 4} {
		if got := Quantile(x, q); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v-quantile %v, want %v", q, got, want)
		}
	}
	if !math.IsNaN(Quantile[float64](nil, 0.5)) {
		t.Error("a quantile of nothing")
	}
}

// What was given up after 5 ms may have taken any longer: quantiles below it are exact, those above are lower bounds.
func TestLowerBounds(t *testing.T) {
	d := summarize([]time.Duration{4 * ms, 1 * ms, 2 * ms, 3 * ms, 5 * ms}, []time.Duration{5 * ms, 9 * ms})
	if d.Count != 7 || d.Open != 2 || d.Min != ms || d.P50 != 4*ms || d.Max != 9*ms || d.Mean != 4142857 {
		t.Errorf("%+v", d)
	}
	for q, want := range map[float64]bool{0: true, 0.5: true, 4.0 / 6: true, 4.1 / 6: false, 0.99: false} {
		if d.Exact(q) != want {
			t.Errorf("the %v-quantile's exactness is %v", q, !want)
		}
	}
	none := summarize(nil, nil)
	if none.Count != 0 || !none.Exact(0.99) {
		t.Errorf("%+v", none)
	}
	only := summarize(nil, []time.Duration{ms})
	if only.Exact(0) || only.P99 != ms {
		t.Errorf("%+v", only)
	}
}

// Ten requests in ten measured seconds, by hand.
func TestSummarize(t *testing.T) {
	run := &record.Run{Length: 14 * time.Second, Warmup: time.Second, Tail: 3 * time.Second,
		SLOs: map[string]record.SLO{"gold": {E2E: 100 * ms}, "batch": {}}}
	answer := func(tenant string, e2e time.Duration) record.Request {
		return record.Request{Tenant: tenant, Class: tenant, Kind: "short", Intended: 2 * time.Second, Phase: record.Measure, Outcome: record.OK, PromptTokens: 100, CachedTokens: 40,
			OutputTokens: 3, Queued: -1, TTFT: e2e / 2, E2E: e2e, ITL: []time.Duration{e2e / 4, e2e / 4}}
	}
	ended := func(tenant string, o record.Outcome, reason string, ttft, e2e time.Duration) record.Request {
		return record.Request{Tenant: tenant, Class: tenant, Kind: "short", Phase: record.Measure, Outcome: o, Reason: reason, PromptTokens: 100, Queued: 7 * ms, TTFT: ttft, E2E: e2e}
	}
	outside := answer("gold", ms)
	outside.Phase, outside.Intended = record.Warmup, 0
	rows := []record.Request{
		outside,
		answer("gold", 80*ms), answer("gold", 100*ms), answer("gold", 120*ms), answer("batch", 400*ms),
		ended("gold", record.Shed, "capacity", -1, ms), ended("gold", record.Shed, "deadline", -1, ms), ended("batch", record.Shed, "capacity", -1, ms),
		ended("batch", record.Timeout, "", 300*ms, 1000*ms), ended("batch", record.Censored, "", -1, 900*ms), ended("batch", record.Error, "eof", -1, 5*ms),
	}
	s := Summarize(run, rows, nil)
	if s.Measured != 10*time.Second || s.Offered != 10 || s.Good != 3 || s.Late != 1 || s.Goodput != 0.3 || s.Throughput != 0.4 || s.TokensRate != 1.2 ||
		s.OfferedRate != 1 || s.Attainment != 0.3 || s.Kept != 3.0/7 || s.ShedRatio != 0.3 || s.HitRatio != 0.4 {
		t.Errorf("%+v", s.Group)
	}
	if !reflect.DeepEqual(s.Shed, map[string]int{"capacity": 2, "deadline": 1}) || !reflect.DeepEqual(s.Errors, map[string]int{"eof": 1}) ||
		!reflect.DeepEqual(s.Phases, map[record.Phase]int{record.Warmup: 1, record.Measure: 10}) ||
		!reflect.DeepEqual(s.Outcomes, map[record.Outcome]int{record.OK: 4, record.Shed: 3, record.Timeout: 1, record.Censored: 1, record.Error: 1}) {
		t.Errorf("%v %v %v %v", s.Shed, s.Errors, s.Phases, s.Outcomes)
	}
	if s.E2E.Count != 6 || s.E2E.Open != 2 || s.E2E.P50 != 260*ms || !s.E2E.Exact(0.5) || s.E2E.Exact(0.99) || s.TTFT.Count != 6 || s.TTFT.Open != 1 ||
		s.TTFT.Max != 900*ms || s.ITL.Count != 8 || s.ITL.Max != 100*ms || s.TPOT.Count != 4 || s.TPOT.Max != 100*ms || s.Queued.Count != 6 || s.Queued.P50 != 7*ms {
		t.Errorf("E2E %+v\nTTFT %+v\nITL %+v\nTPOT %+v\nqueued %+v", s.E2E, s.TTFT, s.ITL, s.TPOT, s.Queued)
	}
	if len(s.Tenants) != 2 || len(s.Classes) != 2 || len(s.Kinds) != 1 || s.Tenants[0].Name != "batch" || s.Tenants[0].Attainment != 0.2 || s.Tenants[1].Attainment != 0.4 {
		t.Fatalf("%+v", s.Tenants)
	}
	if want := 0.6 * 0.6 / (2 * (0.04 + 0.16)); math.Abs(s.Jain-want) > 1e-12 {
		t.Errorf("Jain's index %v, want %v", s.Jain, want)
	}
	// Other objectives.
	twice := Scale(run.SLOs, 2)
	if twice["gold"].E2E != 200*ms || twice["batch"] != (record.SLO{}) {
		t.Errorf("%+v", twice)
	}
	if got := Summarize(run, rows, twice); got.Good != 4 || got.Goodput != Goodput(run, rows, twice) {
		t.Errorf("%+v", got.Group)
	}
	// A run that was stopped in the fifth second of its measured phase.
	run.Partial, run.Wall = true, 6*time.Second
	if got := Summarize(run, rows, nil); got.Measured != 5*time.Second || got.Goodput != 0.6 {
		t.Errorf("%v, %v", got.Measured, got.Goodput)
	}
}

// The objective of "" is that of every class without one of its own.
func TestClassesWithoutAnObjective(t *testing.T) {
	run := &record.Run{Length: time.Second, SLOs: map[string]record.SLO{"": {E2E: 1}, "gold": {E2E: 10}}}
	rows := []record.Request{{Class: "gold", Outcome: record.OK, E2E: 5, Phase: record.Measure}, {Class: "silver", Outcome: record.OK, E2E: 5, Phase: record.Measure}}
	if s := Summarize(run, rows, nil); s.Good != 1 || s.Late != 1 || Goodput(run, rows, run.SLOs) != 1 {
		t.Errorf("%+v", s)
	}
}

// What ends in the measured phase counts for throughput, not what came in it.
func TestThroughputIsOfWhatEnds(t *testing.T) {
	run := &record.Run{Length: 10 * time.Second, Warmup: 2 * time.Second, Tail: time.Second}
	row := func(at, e2e time.Duration) record.Request {
		return record.Request{Tenant: "a", Phase: run.PhaseAt(at), Intended: at, E2E: e2e, Outcome: record.OK, OutputTokens: 7}
	}
	rows := []record.Request{row(0, time.Second), row(time.Second, time.Second), row(3*time.Second, time.Second), row(3*time.Second, 6*time.Second), row(8*time.Second, 90*time.Second)}
	s := Summarize(run, rows, nil)
	for _, g := range []Group{s.Group, s.Tenants[0]} {
		if g.Offered != 3 || g.Outcomes[record.OK] != 3 || g.Throughput != 2.0/7 || g.TokensRate != 2 {
			t.Errorf("%+v", g)
		}
	}
}

// The gap that a request was given up in is a lower bound; TPOT says that it is of the others.
func TestGivenUpHalfWay(t *testing.T) {
	run := &record.Run{Length: 10 * time.Second}
	rows := []record.Request{
		{Phase: record.Measure, Outcome: record.OK, TTFT: ms, E2E: 3 * ms, OutputTokens: 3, ITL: []time.Duration{ms, ms}},
		{Phase: record.Measure, Outcome: record.Timeout, TTFT: ms, E2E: 500 * ms, OutputTokens: 2, ITL: []time.Duration{9 * ms}},
		{Phase: record.Measure, Outcome: record.Censored, TTFT: ms, E2E: 400 * ms, OutputTokens: 2},
	}
	s := Summarize(run, rows, nil)
	if s.ITL.Count != 4 || s.ITL.Open != 1 || s.ITL.Max != 490*ms || s.ITL.Exact(0.99) || !s.Survivors || s.TPOT.Count != 1 {
		t.Errorf("%+v\n%+v, %v", s.ITL, s.TPOT, s.Survivors)
	}
	if s := Summarize(run, rows[:1], nil); s.Survivors || s.ITL.Open != 0 {
		t.Errorf("%+v", s)
	}
}

func TestJain(t *testing.T) {
	for want, x := range map[float64][]float64{0: nil, 1: {0, 0}, 0.25: {3, 0, 0, 0}, 0.9: {1, 2}} {
		if got := Jain(x); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: %v, want %v", x, got, want)
		}
	}
}

func TestOver(t *testing.T) {
	if got := Over(2, math.NaN(), 6, 1); got != (Spread{Count: 3, Mean: 3, Min: 1, Max: 6}) {
		t.Errorf("%+v", got)
	}
	if got := Over(math.NaN()); got != (Spread{}) {
		t.Errorf("%+v", got)
	}
}

// Nothing that was offered is lost, whatever became of it.
func TestNoRequestIsLost(t *testing.T) {
	phases := []record.Phase{record.Warmup, record.Measure, record.Tail}
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) record.Request {
			r := record.Request{
				Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), Class: rapid.SampledFrom([]string{"", "x"}).Draw(t, "class"),
				Phase: rapid.SampledFrom(phases).Draw(t, "phase"), Outcome: rapid.SampledFrom(record.Outcomes).Draw(t, "outcome"), Reason: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "reason"),
				TTFT: -1, Queued: -1, E2E: time.Duration(rapid.IntRange(0, 2000).Draw(t, "e2e")) * ms,
			}
			if rapid.Bool().Draw(t, "token") {
				r.TTFT = r.E2E / 2
			}
			return r
		}), 0, 60).Draw(t, "rows")
		run := &record.Run{Length: 10 * time.Second, SLOs: map[string]record.SLO{"": {E2E: time.Second}, "x": {TTFT: 300 * ms}}}
		s := Summarize(run, rows, nil)
		offered := 0
		for _, n := range s.Phases {
			offered += n
		}
		if offered != len(rows) || s.Phases[record.Measure] != s.Offered {
			t.Fatalf("%v of %d", s.Phases, len(rows))
		}
		whole := func(g *Group) {
			sum, shed, failed := 0, 0, 0
			for _, n := range g.Outcomes {
				sum += n
			}
			for _, n := range g.Shed {
				shed += n
			}
			for _, n := range g.Errors {
				failed += n
			}
			o := g.Outcomes
			if sum != g.Offered || shed != o[record.Shed] || failed != o[record.Error] || g.Good+g.Late != o[record.OK] ||
				g.E2E.Count != o[record.OK]+o[record.Timeout]+o[record.Censored] || g.E2E.Open != o[record.Timeout]+o[record.Censored] {
				t.Fatalf("%+v", g)
			}
		}
		whole(&s.Group)
		for _, groups := range [][]Group{s.Classes, s.Tenants} {
			if len(groups) == 0 {
				continue
			}
			offered, good := 0, 0
			for i := range groups {
				whole(&groups[i])
				offered, good = offered+groups[i].Offered, good+groups[i].Good
			}
			if offered != s.Offered || good != s.Good {
				t.Fatalf("%d of %d, %d of %d good", offered, s.Offered, good, s.Good)
			}
		}
		if s.Offered > 0 && (s.Jain < 1/float64(len(s.Tenants))-1e-9 || s.Jain > 1+1e-9) {
			t.Fatalf("Jain's index %v of %d", s.Jain, len(s.Tenants))
		}
	})
}

func TestPairedBootstrap(t *testing.T) {
	// With three pairs the interval is the range of what was seen.
	p, err := PairedBootstrap([]float64{10, 20, 40}, []float64{11, 24, 42}, 0, 1)
	if err != nil || p.Pairs != 3 || p.Resamples != Resamples || p.Median != (Estimate{2, 1, 4}) || p.Mean.Low != 1 || p.Mean.High != 4 || math.Abs(p.Mean.Value-7.0/3) > 1e-12 {
		t.Errorf("%+v, %v", p, err)
	}
	if math.Abs(p.MedianRatio.Value-1.1) > 1e-12 || math.Abs(p.MedianRatio.Low-1.05) > 1e-12 || math.Abs(p.MedianRatio.High-1.2) > 1e-12 ||
		!p.MedianRatio.Excludes(1) || p.MedianRatio.Excludes(1.1) {
		t.Errorf("%+v", p.MedianRatio)
	}
	again, _ := PairedBootstrap([]float64{40, 10, 20}, []float64{42, 11, 24}, 0, 1)
	if again != p {
		t.Errorf("the same pairs in another order: %+v, want %+v", again, p)
	}
	// Zeros have no ratio, NaN is no value.
	p, err = PairedBootstrap([]float64{0, 2, math.NaN()}, []float64{1, 4, 5}, 100, 1)
	if err != nil || p.Pairs != 2 || p.RatioPairs != 1 || p.MeanRatio != (Estimate{2, 2, 2}) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := PairedBootstrap(nil, nil, 100, 1); err != nil || p.Pairs != 0 || p.Mean != (Estimate{}) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := PairedBootstrap([]float64{1}, nil, 100, 1); !errors.Is(err, ErrPairs) {
		t.Error(err)
	}
}

// The mean's interval agrees with its closed form where there is one: the bootstrap's standard error of a mean of n is
// √((n−1)/n) s/√n, and for n = 100 its percentiles are close to normal.
func TestBootstrapAgreesWithTheNormalInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	a, b := make([]float64, 100), make([]float64, 100)
	sum, squares := 0.0, 0.0
	for i := range a {
		a[i], b[i] = 0, rng.NormFloat64()
		sum, squares = sum+b[i], squares+b[i]*b[i]
	}
	mean := sum / 100
	want := 1.959964 * math.Sqrt(squares/100-mean*mean) / 10
	p, err := PairedBootstrap(a, b, 0, 1)
	if err != nil || math.Abs(p.Mean.Low-(mean-want)) > 0.05*want || math.Abs(p.Mean.High-(mean+want)) > 0.05*want {
		t.Errorf("%+v, %v, want %v ± %v", p.Mean, err, mean, want)
	}
}

// Coverage: with 20 pairs the 95 % intervals hold the truth about as often as they say.
func TestBootstrapCovers(t *testing.T) {
	const trials, pairs = 600, 20
	rng := rand.New(rand.NewPCG(1, 2))
	mean, median := 0, 0
	for trial := range trials {
		a, b := make([]float64, pairs), make([]float64, pairs)
		for i := range a {
			a[i] = 10 * rng.Float64() // what the pair has in common
			b[i] = a[i] + 1 + rng.NormFloat64()
		}
		p, err := PairedBootstrap(a, b, 1000, uint64(trial))
		if err != nil {
			t.Fatal(err)
		}
		if !p.Mean.Excludes(1) {
			mean++
		}
		if !p.Median.Excludes(1) {
			median++
		}
	}
	for name, n := range map[string]int{"mean": mean, "median": median} {
		covered := float64(n) / trials
		t.Logf("the %s's interval covers in %.3f of %d trials", name, covered, trials)
		if covered < 0.90 || covered > 0.98 {
			t.Errorf("the %s's interval covers in %.3f", name, covered)
		}
	}
}

// Shifting or scaling b does the same to the differences.
func TestBootstrapIsEquivariant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Float64Range(-100, 100), 1, 12).Draw(t, "b")
		shift := rapid.Float64Range(-10, 10).Draw(t, "shift")
		a, moved := make([]float64, len(b)), slices.Clone(b)
		for i := range moved {
			moved[i] += shift
		}
		p, _ := PairedBootstrap(a, b, 200, 3)
		q, _ := PairedBootstrap(a, moved, 200, 3)
		for _, x := range [][2]Estimate{{p.Mean, q.Mean}, {p.Median, q.Median}} {
			if math.Abs(x[0].Value+shift-x[1].Value)+math.Abs(x[0].Low+shift-x[1].Low)+math.Abs(x[0].High+shift-x[1].High) > 1e-9 {
				t.Fatalf("%+v moved by %v is %+v", x[0], shift, x[1])
			}
		}
		if lo, hi := slices.Min(b), slices.Max(b); p.Median.Low < lo || p.Median.High > hi || p.Mean.Low < lo-1e-9 || p.Mean.High > hi+1e-9 {
			t.Fatalf("%+v leaves %v to %v", p, lo, hi)
		}
	})
}

// BenchmarkSummarize is what summing up 100,000 requests of 32 tokens takes: go test -bench . ./bench/stat.
func BenchmarkSummarize(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	rows := make([]record.Request, 100_000)
	for i := range rows {
		e2e := time.Duration(rng.ExpFloat64() * 1e9)
		rows[i] = record.Request{Phase: record.Measure, Tenant: []string{"a", "b"}[i%2], Outcome: record.OK, OutputTokens: 32, TTFT: e2e / 3, E2E: e2e}
		for range 31 {
			rows[i].ITL = append(rows[i].ITL, time.Duration(rng.ExpFloat64()*1e7))
		}
	}
	run := &record.Run{Length: time.Minute, SLOs: map[string]record.SLO{"": {E2E: time.Second}}}
	b.ReportAllocs()
	for b.Loop() {
		Summarize(run, rows, nil)
	}
}

// BenchmarkPairedBootstrap is a comparison of two arms over five seeds.
func BenchmarkPairedBootstrap(b *testing.B) {
	x, y := []float64{1, 2, 3, 4, 5}, []float64{2, 2, 4, 4, 6}
	for b.Loop() {
		if _, err := PairedBootstrap(x, y, 0, 1); err != nil {
			b.Fatal(err)
		}
	}
}
