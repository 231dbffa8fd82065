package predictor_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/worker/batch"
)

// setups are engines with a workload and loads that reach from idle to a queue that grows.
func setups(t testing.TB) []world {
	var all []world
	for _, x := range []struct {
		name           string
		prompt, output int
		rates          []float64
	}{
		{"seed-laptop", 256, 64, []float64{0.4, 1.2, 3}},
		{"mock", 256, 64, []float64{1, 5, 12}},
		{"elasticserve", 256, 64, []float64{2, 9, 20}},
		{"admitctl", 64, 64, []float64{1, 3, 6}},
	} {
		for _, rate := range x.rates {
			p := open(t, x.name)
			if x.name == "mock" {
				p.Cost.ContextToken = 1000 // so that a long context counts: 2 ms at 2,000 tokens
			}
			all = append(all, world{profile: p, plan: p.Batch(), rate: rate, n: 400,
				source: drawn{seed: 7, prompt: x.prompt, output: x.output, capTimes: 2}})
		}
	}
	return all
}

// With known lengths and nobody coming later, the forecast of a request, and of those that were before it, is what the real
// planner does with them. Each state is the one that the last of so many arrivals finds.
func TestForecastIsWhatThePlannerDoes(t *testing.T) {
	hop := sim.DefaultLatency()
	for _, v := range []struct {
		name    string
		latency sim.Latency
		set     func(*batch.Config)
		median  float64
	}{
		{"at_once", sim.Latency{}, func(*batch.Config) {}, 0.01},
		{"latency", hop, func(*batch.Config) {}, 0.02},
		{"capped", hop, func(*batch.Config) {}, 0.02},
		{"prefill_first", hop, func(c *batch.Config) { c.Order = batch.PrefillFirst }, 0.02},
		{"target", hop, func(c *batch.Config) { c.ITLTarget = 60 * time.Millisecond }, 0.05},
		{"overcommit", hop, func(c *batch.Config) { c.Overcommit = 4; c.KVPages = max(c.KVPages/8, 65) }, 0.05},
		{"static", sim.Latency{}, func(c *batch.Config) { c.Mode = batch.Static }, 0.05},
		{"fifo", hop, func(c *batch.Config) { c.Mode = batch.FIFO }, 0.01},
	} {
		t.Run(v.name, func(t *testing.T) {
			for _, w := range setups(t) {
				w.latency = v.latency
				w.source.capped = v.name == "capped"
				v.set(&w.plan)
				e := errorsOf(t, w)
				t.Logf("%12s at %4v/s: TTFT median %.4f, p95 %.4f; E2E median %.4f, p95 %.4f, max %.3f; others' E2E median %.4f, p95 %.4f", w.profile.Name,
					w.rate, quantile(e.first, 0.5), quantile(e.first, 0.95), quantile(e.whole, 0.5), quantile(e.whole, 0.95), quantile(e.whole, 1),
					quantile(e.others, 0.5), quantile(e.others, 0.95))
				if quantile(e.first, 0.5) > v.median || quantile(e.whole, 0.5) > v.median || quantile(e.others, 0.5) > v.median {
					t.Errorf("%s at %v/s: the median is off by more than %v", w.profile.Name, w.rate, v.median)
				}
			}
		})
	}
}

// misses are |predicted / measured - 1|.
type misses struct{ first, whole, others []float64 }

func errorsOf(t *testing.T, w world) (all misses) {
	var f predictor.Forecast
	lengths := oracle{w.source}
	w.class = func(i int) int32 { return int32(i) }
	for n := 3; n <= 120; n += 9 {
		w.n = n
		var seen []int32
		var e2e float64
		w.see = func(i int, e *predictor.Engine, s *predictor.Sequence) {
			if i < n-1 {
				return
			}
			// The run to the cap is to be the request's own.
			c := *s
			c.CapTokens = int32(lengths.Quantile(s.Lengths, 0, s.CapTokens, 0))
			if err := f.Simulate(e, &c, lengths); err != nil {
				t.Fatal(err)
			}
			e2e = f.At(float64(c.CapTokens))
			for _, s := range append(slices.Clone(e.Running), e.Waiting...) {
				seen = append(seen, s.Lengths)
			}
		}
		rows := w.run(t)
		last := &rows[n-1]
		all.first = append(all.first, math.Abs(f.First()/float64(last.TTFT)-1))
		all.whole = append(all.whole, math.Abs(e2e/float64(last.E2E)-1))
		for k, i := range seen {
			ends := rows[i].Intended + rows[i].E2E - last.Intended
			if ends <= 0 { // its last token is on its way
				continue
			}
			all.others = append(all.others, math.Abs((f.Others[k].FinishWith-float64(ends))/float64(rows[i].E2E)))
		}
	}
	if len(all.others) == 0 {
		all.others = []float64{0}
	}
	return all
}
