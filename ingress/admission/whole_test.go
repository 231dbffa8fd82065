package admission_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

// desk decides on requests that come to a laptop's engine with 24 running and 40 waiting requests of all ages, whose controller has
// seen a thousand answers and a full window of arrivals.
type desk struct {
	c       *admission.Controller
	arrival admission.Arrival
	rng     *rand.Rand
}

func newDesk(tb testing.TB) *desk {
	tb.Helper()
	p, err := profile.Open("seed-laptop")
	if err != nil {
		tb.Fatal(err)
	}
	config := online.DefaultConfig(0.95)
	config.Classes = 256
	model, err := online.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	arm, err := admission.NewMarginal(admission.DefaultConfig())
	if err != nil {
		tb.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	d := &desk{c: admission.NewController(arm, model, rng), rng: rng}
	plan := p.Batch()
	plan.MaxBatch, plan.PrefixCache, plan.Order = 24, true, "prefill_first"
	classes := admission.NewClasses(config.Classes)
	sequence := func(age time.Duration) predictor.Sequence {
		s := predictor.Sequence{PromptTokens: int32(480 + rng.IntN(100)), CapTokens: int32(16 + rng.IntN(400)), Age: age, E2E: 4 * time.Second,
			Guaranteed: rng.IntN(4) == 0}
		s.PrefillTokens = s.PromptTokens
		s.Lengths = classes.Of("", "chat", s.CapTokens)
		return s
	}
	idle := predictor.Engine{Profile: p, Plan: plan, FreePages: plan.KVPages}
	busy := idle
	busy.FreePages /= 4
	for i := range 64 {
		s := sequence(time.Duration(64-i) * 60 * time.Millisecond)
		if i < 24 {
			s.PrefillTokens, s.OutputTokens = 0, int32(rng.IntN(int(s.CapTokens)))
			busy.Running = append(busy.Running, s)
		} else {
			busy.Waiting = append(busy.Waiting, s)
		}
	}
	busy.StepLeft = 20 * time.Millisecond
	d.arrival = admission.Arrival{Load: admission.Load{Workers: 1, Waiting: 40}, Request: admission.Request{E2E: 4 * time.Second}}
	for range 1000 {
		d.next(sequence(0), &idle)
		d.decide(tb)
		tokens := 1 + rng.Int32N(d.arrival.Sequence.CapTokens)
		took := 300*time.Millisecond + time.Duration(tokens)*(20+time.Duration(rng.IntN(4)))*time.Millisecond
		d.c.End(d.arrival.ID, online.Ending{E2E: took, Tokens: tokens}, d.arrival.Now+took)
	}
	d.next(sequence(0), &busy)
	for range 9000 {
		d.decide(tb)
	}
	return d
}

// next is what comes from now on.
func (d *desk) next(s predictor.Sequence, e *predictor.Engine) {
	d.arrival.Sequence, d.arrival.Engine = s, e
	d.arrival.Request.PromptTokens, d.arrival.Request.CapTokens = s.PromptTokens, s.CapTokens
}

// decide lets the next request come; every fourth wants a guarantee. What is let in ends at once.
func (d *desk) decide(tb testing.TB) {
	a := &d.arrival
	a.ID++
	a.Now += 20 * time.Millisecond
	a.Request.Key = a.ID
	a.Request.Class = schema.BestEffort
	if a.ID%4 == 0 {
		a.Request.Class = schema.Guaranteed
	}
	got, _, err := d.c.Decide(a)
	if err != nil {
		tb.Fatal(err)
	}
	if got.Admit && len(a.Engine.Running) > 0 {
		d.c.End(a.ID, online.Ending{How: online.Left}, a.Now)
	}
}

func TestWholeDecisionDoesNotAllocate(t *testing.T) {
	d := newDesk(t)
	if n := testing.AllocsPerRun(2000, func() { d.decide(t) }); n != 0 {
		t.Errorf("%v allocations per decision", n)
	}
}

// A whole decision, the simulation of the engine included, with 24 running and 40 waiting requests.
//
//	go test ./ingress/admission -run - -bench BenchmarkDecide24x40 -benchmem
func BenchmarkDecide24x40(b *testing.B) {
	d := newDesk(b)
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		d.decide(b)
		if len(took) < cap(took) {
			took = append(took, time.Since(begin))
		}
	}
	slices.Sort(took)
	for _, q := range []struct {
		p    float64
		unit string
	}{{0.5, "p50-µs"}, {0.99, "p99-µs"}} {
		b.ReportMetric(took[int(q.p*float64(len(took)-1))].Seconds()*1e6, q.unit)
	}
}
