package predictor_test

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/sim/simtest"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/predictor/profile/profiletest"
	"github.com/cadence-slo/cadence/worker/batch"
)

var open = profiletest.Open

// drawn is a workload of prompts and outputs drawn per index.
type drawn struct {
	seed                     uint64
	prompt, output, capTimes int
	capped                   bool
	kinds                    bool // every second answer is a fifth as long
}

func (d drawn) Name() string                { return "drawn" }
func (d drawn) Describe() json.RawMessage   { return json.RawMessage(`{}`) }
func (d drawn) SLOs() map[string]record.SLO { return nil }

// sizes are log-uniform over a factor of 16 in prompt and output.
func (d drawn) sizes(i int) (prompt, output, limit int) {
	rng := rand.New(rand.NewPCG(d.seed, uint64(i)))
	prompt = max(1, int(float64(d.prompt)*math.Exp2(4*rng.Float64()-3)))
	long := float64(d.output) * math.Exp2(4*rng.Float64()-3)
	if d.kinds && i%2 == 0 {
		long /= 5
	}
	return prompt, max(1, int(long)), d.output * d.capTimes
}

func (d drawn) Request(i int) workload.Request {
	p, o, limit := d.sizes(i)
	r := workload.Request{Index: i, Output: o, Cap: limit, Prompt: make([]int32, p)}
	if !d.capped {
		r.Cap = o
	}
	for k := range r.Prompt {
		r.Prompt[k] = int32(i*7919+k*31) & 0x7fffffff
	}
	return r
}

// oracle knows every length: a sequence's class is its index.
type oracle struct{ d drawn }

func (o oracle) Quantile(class, done, limit int32, _ float64) float64 {
	_, n, _ := o.d.sizes(int(class))
	return float64(max(1, min(int32(n), limit)-done))
}

func (o oracle) Spread(class, done, limit int32, to []float64) {
	for i := range to {
		to[i] = o.Quantile(class, done, limit, 0)
	}
}

func (o oracle) Remaining(class, done, limit int32, d *length.Dist) {
	d.N = 1
	d.Tokens[0], d.Prob[0] = o.Quantile(class, done, limit, 0), 1
}

// world replays arrivals through the real pipeline and shows the engine to see at each.
type world struct {
	profile *profile.Profile
	plan    batch.Config
	source  drawn
	rate    float64
	n       int
	latency sim.Latency
	see     func(index int, e *predictor.Engine, s *predictor.Sequence)
	ended   func(r *record.Request) // if not nil
	class   func(index int) int32
	slo     record.SLO
}

// run returns the records by index.
func (w world) run(t testing.TB) []record.Request {
	t.Helper()
	rows := make([]record.Request, w.n)
	span := time.Duration(float64(w.n) / w.rate * 2 * float64(time.Second))
	arrived := make([]time.Duration, w.n)
	var e predictor.Engine
	c := sim.Config{Source: w.source, Arrivals: arrival.Poisson{}.Times(w.source.seed, w.rate, span), Capped: w.source.capped, Requests: w.n, Seed: 1,
		Profile: w.profile, Workers: 1, Batch: w.plan, Latency: w.latency, Length: span, Drain: sim.Forever}
	c.Sink = func(r *record.Request) error {
		rows[r.Index] = *r
		if w.ended != nil {
			w.ended(r)
		}
		return nil
	}
	sequence := func(i int, now time.Duration) predictor.Sequence {
		p, o, limit := w.source.sizes(i)
		if !w.source.capped {
			limit = o
		}
		limit, _ = w.plan.Fit(p, 0, limit)
		return predictor.Sequence{PromptTokens: int32(p), PrefillTokens: int32(p), CapTokens: int32(limit), Lengths: w.class(i), Age: now - arrived[i],
			E2E: w.slo.E2E, TTFT: w.slo.TTFT}
	}
	c.Admit = func(a *sim.Arrival) sim.Decision {
		arrived[a.Index] = a.Now
		running := map[int]bool{}
		for _, r := range simtest.See(&e, a, 0, w.profile, w.plan, &w.latency) {
			running[r.Index] = true
			s := sequence(r.Index, a.Now)
			s.PrefillTokens, s.OutputTokens = int32(r.PrefillTokens), int32(r.OutputTokens)
			e.Running = append(e.Running, s)
		}
		for i := a.Index - 1; i >= 0 && len(e.Waiting) < a.Pool.Waiting; i-- {
			if !running[i] {
				e.Waiting = append(e.Waiting, sequence(i, a.Now))
			}
		}
		slices.Reverse(e.Waiting)
		s := sequence(a.Index, a.Now)
		w.see(a.Index, &e, &s)
		return sim.Decision{}
	}
	if _, err := sim.Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	return rows
}

func quantile(x []float64, p float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return s[min(len(s)-1, int(p*float64(len(s))))]
}
