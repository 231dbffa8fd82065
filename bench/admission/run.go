package admission

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/worker/batch"
	"golang.org/x/sync/errgroup"
)

// Run is what became of one run's requests that were offered in the measured phase.
type Run struct {
	Arm      string  `json:"arm"`
	Constant float64 `json:"constant"`
	Rate     float64 `json:"rate"` // offered, requests/s
	Seed     uint64  `json:"seed"`

	Offered int `json:"offered"` // the sum of those below
	Good    int `json:"good"`    // answered within the objective
	Late    int `json:"late"`    // answered, not within it
	Refused int `json:"refused"` // at once or after waiting
	Open    int `json:"open"`    // the client gave up, or the run ended
	Failed  int `json:"failed"`

	Goodput float64 `json:"goodput_per_second"`
	// P99 is of the E2E of those that were admitted; 0: none was. It is a lower bound where requests were given up before it.
	P99        time.Duration `json:"admitted_p99_ns"`
	LowerBound bool          `json:"admitted_p99_is_lower_bound,omitempty"`
	// Coverage of the bounds that were said of admitted requests.
	Coverage conformal.Coverage `json:"coverage"`
}

// job is a run to do.
type job struct {
	arm            *arm
	constant, rate float64
	seed           uint64
	length         time.Duration
}

// bench is one Compare.
type bench struct {
	o     *Options
	vocab workload.Vocabulary
	seen  *control.Seen

	mu          sync.Mutex
	done, total int64 // guarded by mu
}

// open returns a bench for options that are settled, or ErrConfig.
func open(o *Options) (*bench, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Profile == nil {
		return nil, fmt.Errorf("%w: profile is missing", ErrConfig)
	}
	const tokens = 32000
	vocab, err := workload.NewVocabulary(tokens, nil)
	if err != nil {
		return nil, err
	}
	return &bench{o: o, vocab: vocab}, nil
}

// config is a run without admission.
func (b *bench) config(rate float64, seed uint64, length time.Duration) (sim.Config, error) {
	source, err := workload.OpenSource(b.o.Workload, b.vocab, seed)
	if err != nil {
		return sim.Config{}, err
	}
	warmup := b.o.Warmup
	if warmup > length/3 { // of a run to tune on
		warmup = length / 5
	}
	plan := b.o.Profile.Batch()
	plan.PrefixCache, plan.Order = true, batch.PrefillFirst
	return sim.Config{
		Source: source, Arrivals: arrival.Poisson{}.Times(seed, rate, length), Capped: true, Seed: seed,
		Profile: b.o.Profile, Workers: 1, Batch: plan, Latency: sim.DefaultLatency(),
		Length: length, Warmup: warmup, Drain: b.o.Timeout, ClientTimeout: b.o.Timeout,
		SLOs: map[string]record.SLO{"": {E2E: b.o.SLO}},
	}, nil
}

// single does one run.
func (b *bench) single(ctx context.Context, j *job) (Run, error) {
	cfg, err := b.config(j.rate, j.seed, j.length)
	if err != nil {
		return Run{}, err
	}
	o := control.Options{Arm: j.arm.of, Level: j.arm.level, Constant: j.constant, Seen: b.seen, Seed: j.seed}
	run, rows, err := b.simulate(ctx, cfg, o)
	if err != nil {
		return Run{}, fmt.Errorf("%s with %v at %.3g/s: %w", j.arm.name, j.constant, j.rate, err)
	}
	s := stat.Summarize(run, rows, nil)
	out := Run{Arm: j.arm.name, Constant: j.constant, Rate: j.rate, Seed: j.seed, Offered: s.Offered, Good: s.Good, Late: s.Late,
		Refused: s.Outcomes[record.Shed], Open: s.Outcomes[record.Timeout] + s.Outcomes[record.Censored], Failed: s.Outcomes[record.Error],
		Goodput: s.Goodput, P99: s.E2E.P99, LowerBound: !s.E2E.Exact(0.99)}
	if j.arm.level > 0 {
		out.Coverage = coverage(rows)
	}
	return out, nil
}

// simulate does a run with a controller. It returns what became of each request, in the order in which that was settled.
func (b *bench) simulate(ctx context.Context, cfg sim.Config, o control.Options) (*record.Run, []record.Request, error) {
	var rows []record.Request
	cfg.Sink = func(r *record.Request) error {
		rows = append(rows, *r)
		return nil
	}
	o.Profile = b.o.Profile
	if _, err := control.Attach(&cfg, o); err != nil {
		return nil, nil, err
	}
	run, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	return run, rows, ctx.Err()
}

// coverage judges the bounds of admitted requests of the measured phase.
func coverage(rows []record.Request) conformal.Coverage {
	var c conformal.Coverage
	for i := range rows {
		if rows[i].Phase == record.Measure {
			c.Add(judge(&rows[i]))
		}
	}
	return c
}

// judge says whether a request's bound held; NoVerdict: none was said, or it was refused.
func judge(r *record.Request) conformal.Verdict {
	switch {
	case r.Bound <= 0 || r.Outcome == record.Shed:
		return conformal.NoVerdict
	case r.E2E > r.Bound || r.Outcome == record.Error:
		return conformal.Miss
	case r.Outcome == record.OK:
		return conformal.Hit
	default:
		return conformal.Censored
	}
}

// all does runs, several at once, and returns them in the order of the jobs.
func (b *bench) all(ctx context.Context, jobs []job) ([]Run, error) {
	return each(ctx, b, len(jobs), func(ctx context.Context, i int) (Run, error) { return b.single(ctx, &jobs[i]) })
}

// each does n runs, several at once, and returns what they gave, in their order.
func each[T any](ctx context.Context, b *bench, n int, do func(ctx context.Context, i int) (T, error)) ([]T, error) {
	out := make([]T, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			var err error
			if err = ctx.Err(); err != nil {
				return err
			}
			if out[i], err = do(ctx, i); err == nil {
				b.tell(1, 0)
			}
			return err
		})
	}
	return out, g.Wait()
}

// tell counts runs that are done, and that are to do.
func (b *bench) tell(done, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += int64(done)
	b.total += int64(more)
	if b.o.Progress != nil {
		b.o.Progress(b.done, b.total)
	}
}

// mean is the mean goodput of runs, > 0 of them.
func mean(runs []Run) float64 {
	sum := 0.0
	for i := range runs {
		sum += runs[i].Goodput
	}
	return sum / float64(len(runs))
}
