package predictor_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/length"
)

// normal is a residual of log-normal shape.
type normal struct{ mean, deviation float64 }

func (n normal) CDF(x float64) float64 {
	return 0.5 * math.Erfc((n.mean-x)/(n.deviation*math.Sqrt2))
}

func (n normal) Quantile(p float64) float64 {
	return n.mean - n.deviation*math.Sqrt2*math.Erfcinv(2*p)
}

// steps is a residual as calibration keeps it: the sorted scores.
type steps []float64

func (s steps) CDF(x float64) float64 {
	i, _ := slices.BinarySearch(s, x)
	return float64(i) / float64(len(s))
}

func (s steps) Quantile(p float64) float64 { return s[int(p*float64(len(s)-1))] }

// learned is a table that has seen answers of a log-normal length.
func learned(rng *rand.Rand, classes int) *length.Table {
	t := length.New(classes, 1000)
	for range 3000 {
		c := rng.IntN(classes)
		n := int32(math.Exp(4+0.3*float64(c)+0.8*rng.NormFloat64())) + 1
		t.Observe(int32(c), min(n, 512), n >= 512)
	}
	return t
}

// busy is an engine with so many sequences that run and wait, and a request for it.
func busy(rng *rand.Rand, p string, t testing.TB, running, waiting int) (*predictor.Engine, *predictor.Sequence) {
	e := &predictor.Engine{Profile: open(t, p), StepLeft: time.Duration(1 + rng.IntN(20e6)), Delay: 860 * time.Microsecond,
		Enter: 645 * time.Microsecond, Refill: 645 * time.Microsecond}
	e.Plan = e.Profile.Batch()
	e.Plan.KVPages, e.Plan.MaxBatch = 4096, 24
	e.FreePages = 1000
	sequence := func() predictor.Sequence {
		s := predictor.Sequence{PromptTokens: int32(64 + rng.IntN(800)), CapTokens: 512, Lengths: int32(rng.IntN(4)), E2E: 10 * time.Second, TTFT: 4 * time.Second,
			Age: time.Duration(rng.IntN(3e9)), Guaranteed: rng.IntN(4) == 0}
		s.PrefillTokens = s.PromptTokens
		return s
	}
	for i := range running {
		s := sequence()
		if i < running-3 {
			s.PrefillTokens, s.OutputTokens = 0, int32(rng.IntN(200))
		}
		e.Running = append(e.Running, s)
	}
	for range waiting {
		e.Waiting = append(e.Waiting, sequence())
	}
	s := sequence()
	s.Age = 0
	return e, &s
}

// BenchmarkSimulate24x40 is a forecast with 24 sequences that run and 40 that wait, with and without the new one.
//
//	go test -bench 24x40 -benchmem ./predictor
func BenchmarkSimulate24x40(b *testing.B) {
	for _, name := range []string{"seed-laptop", "mock", "elasticserve"} {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			l := learned(rng, 4)
			var f predictor.Forecast
			e, s := busy(rng, name, b, 24, 40)
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Simulate(e, s, l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecide24x40 is a forecast and its outlook, over 64 states; p99 is of the calls.
func BenchmarkDecide24x40(b *testing.B) {
	for _, name := range []string{"seed-laptop", "mock", "elasticserve"} {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			l := learned(rng, 4)
			var f predictor.Forecast
			scores := make(steps, 512)
			for i := range scores {
				scores[i] = 0.2 * rng.NormFloat64()
			}
			slices.Sort(scores)
			var engines [64]*predictor.Engine
			var requests [64]*predictor.Sequence
			for i := range engines {
				engines[i], requests[i] = busy(rng, name, b, 24, 40)
			}
			residual := predictor.Residual(scores)
			took := make([]float64, 0, 1<<20)
			sum, i := 0.0, 0
			b.ReportAllocs()
			for b.Loop() {
				e, s := engines[i&63], requests[i&63]
				begin := time.Now()
				if err := f.Simulate(e, s, l); err != nil {
					b.Fatal(err)
				}
				o := f.Outlook(e, s, l, predictor.Residuals{New: residual}, predictor.Margin{Upper: 0.5, UpperIdle: 0.3, UpperOthers: 0.5, Level: 0.9})
				if i++; len(took) < cap(took) {
					took = append(took, float64(time.Since(begin)))
				}
				sum += o.Meet + o.Harm
			}
			b.ReportMetric(quantile(took, 0.99), "p99-ns")
			b.ReportMetric(sum/float64(i), "meet+harm")
		})
	}
}
