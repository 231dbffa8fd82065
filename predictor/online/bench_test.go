package online_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/gbm"
	"github.com/cadence-slo/cadence/predictor/online"
)

// BenchmarkForesee24x40 is all that is said of a request that comes to 24 that run and 40 that wait: simulation, features, the model where
// there is one, and the outlook. The model has 200 trees of 15 leaves. Requests and loads change from op to op.
//
//	go test -run ^$ -bench 'Foresee24x40' -benchmem ./predictor/online
func BenchmarkForesee24x40(b *testing.B) {
	for _, name := range []string{"physics", "model"} {
		b.Run(name, func(b *testing.B) {
			w := byPrompt(b, 31)
			p := newPredictor(b, online.DefaultConfig(0.9))
			rows := w.serveAll(p, 2000)
			if name == "model" {
				a := learn(b, rows, 0.1, label)
				a.Model = large(b, rows)
				a.Calibration.MinSupport = 1
				if err := p.Swap(a, w.now); err != nil {
					b.Fatal(err)
				}
				w.serveAll(p, 500)
			}
			var states [64]struct {
				e predictor.Engine
				s predictor.Sequence
			}
			for i := range states {
				x := &states[i]
				w.draw()
				x.e, x.s = w.engine, w.s
				x.e.StepLeft, x.e.Running = time.Millisecond, nil
				for k := range 64 {
					s := predictor.Sequence{PromptTokens: int32(32 + w.rng.IntN(200)), CapTokens: 64, E2E: time.Minute, TTFT: 10 * time.Second}
					if k < 24 {
						s.OutputTokens = int32(w.rng.IntN(30))
						x.e.Running = append(x.e.Running, s)
					} else {
						s.PrefillTokens = s.PromptTokens
						x.e.Waiting = append(x.e.Waiting, s)
					}
				}
			}
			took := make([]time.Duration, 0, 1<<20)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				x := &states[i%len(states)]
				i++
				t := time.Now()
				if err := p.Foresee(&x.e, &x.s, &w.f); err != nil {
					b.Fatal(err)
				}
				if len(took) < cap(took) {
					took = append(took, time.Since(t))
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
		})
	}
}

// large is a model of the size that a trainer makes.
func large(b *testing.B, rows []row) *gbm.Model {
	d := gbm.Data{Columns: make([][]float32, feature.Count)}
	for i := range rows {
		for k, v := range rows[i].x {
			if k == feature.Waiting || k == feature.BacklogDecode || k == feature.BacklogPrefill || k == feature.Held || k == feature.Running {
				v = float32(w01(i, k)) * 20 // wide enough that what the benchmark asks is supported
			}
			d.Columns[k] = append(d.Columns[k], v)
		}
		d.Labels = append(d.Labels, rows[i].physics)
	}
	params := gbm.DefaultParams(0.5)
	params.Rounds, params.Leaves, params.Monotone = 200, 15, feature.Signs()
	m, _, err := gbm.Train(d, gbm.Data{}, params, nil)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// w01 spreads evenly over [0, 1).
func w01(i, k int) float64 {
	x := float64(i)*0.6180339887 + float64(k)*0.7548776662
	return x - float64(int(x))
}

// BenchmarkLearn is what a request costs after its foresight: its admission and its end.
//
//	go test -run ^$ -bench Learn -benchmem ./predictor/online
func BenchmarkLearn(b *testing.B) {
	w := byPrompt(b, 32)
	p := newPredictor(b, online.DefaultConfig(0.9))
	rows := w.serveAll(p, 2000)
	if err := p.Swap(learn(b, rows, 0.1, label), w.now); err != nil {
		b.Fatal(err)
	}
	w.serveAll(p, 500)
	w.next(p, 1)
	b.ReportAllocs()
	for b.Loop() {
		w.id++
		w.now += time.Minute
		p.Admit(w.id, &w.f, 1, w.now)
		took := w.f.Bound / 2
		if w.id%10 == 0 { // as often as its level says
			took *= 3
		}
		p.End(w.id, online.Ending{E2E: took, Tokens: 9}, w.now+took)
	}
}
