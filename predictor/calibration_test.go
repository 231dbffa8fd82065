package predictor_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/length"
)

// calibrated is what became of the requests of a run whose lengths are not known at arrival.
type calibrated struct {
	meet []float64 // predicted
	met  []float64 // 1: it met its objectives
	off  []float64 // |log(measured / simulated TTFT)|
}

// calibrate takes the residual of t(k) from what has ended before the middle of a run, and judges the rest.
func calibrate(t *testing.T, w world, lengths predictor.Lengths) (c calibrated) {
	t.Helper()
	w.latency = sim.DefaultLatency()
	w.class = func(i int) int32 { return int32(i % 2) }
	var f predictor.Forecast
	whole, first, meet := make([]float64, w.n), make([]float64, w.n), make([]float64, w.n)
	var scores steps
	w.ended = func(r *record.Request) {
		if r.Outcome != record.OK {
			t.Fatalf("request %d: %v", r.Index, r.Outcome)
		}
		if meet[w.n/2] == 0 {
			scores = append(scores, math.Log(float64(r.E2E)/whole[r.Index]))
			return
		}
		if r.Index < w.n/2 {
			return
		}
		met := 0.0
		if r.E2E <= w.slo.E2E {
			met = 1
		}
		c.meet, c.met = append(c.meet, meet[r.Index]), append(c.met, met)
		c.off = append(c.off, math.Abs(math.Log(float64(r.TTFT)/first[r.Index])))
	}
	w.see = func(i int, e *predictor.Engine, s *predictor.Sequence) {
		simulate(t, &f, e, s, lengths)
		_, n, _ := w.source.sizes(i)
		whole[i], first[i] = f.At(float64(min(n, int(s.CapTokens)))), f.First()
		if i == w.n/2 {
			slices.Sort(scores)
		}
		if i >= w.n/2 {
			meet[i] = f.Outlook(e, s, lengths, predictor.Residuals{New: scores}, predictor.Margin{}).Meet
		}
	}
	w.run(t)
	return c
}

// bins returns the mean prediction, the frequency and the number in each fifth of the predictions from 0 to 1.
func (c *calibrated) bins() (predicted, met [5]float64, n [5]int) {
	for i, p := range c.meet {
		b := min(4, int(p*5))
		predicted[b] += p
		met[b] += c.met[i]
		n[b]++
	}
	for b, k := range n {
		predicted[b] /= max(1, float64(k))
		met[b] /= max(1, float64(k))
	}
	return predicted, met, n
}

// Where lengths are only distributions, requests that are expected to meet their objective with probability p do so in about p of
// the cases.
func TestMeetIsCalibrated(t *testing.T) {
	lengths := length.New(2, 0)
	d := drawn{seed: 99, prompt: 256, output: 128, capTimes: 2, kinds: true}
	for i := range 3000 {
		_, n, limit := d.sizes(i)
		lengths.Observe(int32(i%2), int32(min(n, limit)), n >= limit)
	}
	for _, x := range []struct {
		name string
		rate float64
		slo  time.Duration
	}{{"seed-laptop", 3.2, 5 * time.Second}, {"mock", 12, 3 * time.Second}, {"elasticserve", 11, 3 * time.Second}} {
		p := open(t, x.name)
		w := world{profile: p, plan: p.Batch(), rate: x.rate, n: 2000, slo: record.SLO{E2E: x.slo},
			source: drawn{seed: 11, prompt: 256, output: 128, capTimes: 2, capped: true, kinds: true}}
		c := calibrate(t, w, lengths)
		predicted, met, n := c.bins()
		gap, all := 0.0, 0
		for b := range n {
			t.Logf("%12s: %4d of %.2f met %.2f", x.name, n[b], predicted[b], met[b])
			gap += float64(n[b]) * math.Abs(predicted[b]-met[b])
			all += n[b]
		}
		gap /= float64(all)
		brier, base := 0.0, 0.0
		mean := sum(c.met) / float64(len(c.met))
		for i := range c.met {
			brier += (c.meet[i] - c.met[i]) * (c.meet[i] - c.met[i])
			base += (mean - c.met[i]) * (mean - c.met[i])
		}
		t.Logf("%12s: calibration error %.3f, Brier score %.3f of the base rate's; TTFT off by %.3f (median), %.3f (p95) in log", x.name, gap, brier/base,
			quantile(c.off, 0.5), quantile(c.off, 0.95))
		if gap > 0.1 {
			t.Errorf("%s: predictions are off by %.3f", x.name, gap)
		}
		if brier > 0.9*base {
			t.Errorf("%s: predictions tell nothing: %.3f, the base rate alone %.3f", x.name, brier, base)
		}
	}
}

func sum(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s
}
