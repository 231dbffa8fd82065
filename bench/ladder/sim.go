package ladder

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/worker/batch"
)

// simulator runs arms in virtual time: one worker with the profile's speed.
type simulator struct {
	workload string
	vocab    workload.Vocabulary
	profile  *profile.Profile
	sum      string // of the profile
}

func openSimulator(d *Definition, p *profile.Profile) (*simulator, error) {
	_, vocab, err := pipeline.MockModel()
	if err != nil {
		return nil, err
	}
	sum, err := p.SHA256()
	if err != nil {
		return nil, err
	}
	e := &simulator{workload: d.Workload, vocab: vocab, profile: p, sum: sum}
	for i := range d.Arms { // before the first run, not in the middle of the ladder
		arm := d.Arm(d.Arms[i].Name)
		if _, _, _, err := e.flags(&arm); err != nil {
			return nil, fmt.Errorf("arm %s: %w", arm.Name, err)
		}
	}
	return e, nil
}

// flags are what an arm says, and how its worker plans by that.
func (e *simulator) flags(a *Arm) (args []string, f *flags, plan batch.Config, err error) {
	args = slices.Concat(sizes(e.profile), a.Args)
	if f, err = parseFlags(args); err == nil {
		plan, err = f.batch()
	}
	if err == nil && a.SpanNS > 0 && !plan.CacheOutput {
		err = fmt.Errorf("%w: span_ns is %v, which needs --worker-prefix-cache and --worker-cache-output", ErrConfig, a.SpanNS)
	}
	return args, f, plan, err
}

// speed is how fast the engine of one run is.
func (e *simulator) speed(a *Arm, plan *batch.Config) sim.Engine {
	if a.SpanNS == 0 {
		return e.profile
	}
	return &spanning{profile: e.profile, ns: a.SpanNS, cells: plan.KVPages * plan.PageTokens}
}

// spanning is an engine that attends over what others hold, too: see Arm.SpanNS. It is of one run and one worker.
type spanning struct {
	profile *profile.Profile
	ns      float64 // for each decode and cell
	cells   int     // of the pool
	used    int     // of cells: what was computed so far
}

// Step implements sim.Engine. What the step's own sequences hold, context, the profile's table was measured with.
func (e *spanning) Step(prefill, decodes, context int) time.Duration {
	e.used = min(e.cells, e.used+prefill+decodes)
	others := max(0, e.used-context)
	return e.profile.Step(prefill, decodes, context) + time.Duration(float64(e.ns*float64(decodes*others))+0.5)
}

func (e *simulator) source(seed uint64) (workload.Source, error) {
	return workload.OpenSource(e.workload, e.vocab, seed)
}

func (e *simulator) model() *pipeline.Model { return nil }

func (e *simulator) profileSHA256() string { return e.sum }

func (e *simulator) run(ctx context.Context, s *setup) (*record.Run, error) {
	args, f, plan, err := e.flags(&s.arm)
	if err != nil {
		return nil, err
	}
	order, err := core.OrderOf(f.Scheduler.Order)
	if err != nil {
		return nil, err
	}
	cfg := sim.Config{
		Source: s.source, Arrivals: s.arrivals, Capped: form(s.arm.Name).Capped, Seed: s.run.Seed, SLOs: s.run.SLOs,
		Profile: e.speed(&s.arm, &plan), Workers: 1, Batch: plan, ShareAll: f.Worker.PrefixSharing == "global",
		Order: order, MaxQueueWait: f.Scheduler.MaxQueueWait, MaxOpen: f.MaxOpen, MaxWaiting: f.MaxWaiting,
		ClientTimeout: s.timeout, Latency: sim.DefaultLatency(),
		Length: s.run.Length, Warmup: s.run.Warmup, Tail: s.run.Tail, Drain: s.drain, Sink: s.sink, KeepITL: true, Deadlines: s.deadlines,
	}
	if err := f.admit(&cfg, e.profile); err != nil {
		return nil, err
	}
	got, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	out := s.run
	out.Args, out.Time, out.Wall, out.Model, out.Profile, out.Partial = args, time.Now().UTC(), got.Wall, got.Model, e.profile.Name, got.Partial
	out.PromptTokens, out.CachedTokens, out.Preemptions, out.Invalid = got.PromptTokens, got.CachedTokens, got.Preemptions, got.Invalid
	return &out, nil
}

// alone lets requests arrive so far apart that each finds nobody.
func (e *simulator) alone(ctx context.Context, s *setup, n int) ([]record.Request, error) {
	var rows []record.Request
	apart := s.timeout + time.Second
	s.run.Length = apart * time.Duration(n)
	s.arrivals = func(yield func(time.Duration) bool) {
		for i := range n {
			if !yield(apart * time.Duration(i)) {
				return
			}
		}
	}
	s.sink = func(r *record.Request) error {
		rows = append(rows, *r)
		return nil
	}
	if _, err := e.run(ctx, s); err != nil {
		return nil, err
	}
	return rows, ctx.Err()
}

// open returns what the options name.
func open(ctx context.Context, o *Options) (engine, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	d := o.Definition
	if o.On == Llama {
		return openLlama(ctx, o)
	}
	lookUp := o.Profile
	if lookUp == nil {
		lookUp = profile.Open
	}
	p, err := lookUp(d.Profile)
	if err != nil {
		return nil, fmt.Errorf("ladder %s: %w", d.Name, err)
	}
	if o.On == Sim {
		return openSimulator(d, p)
	}
	return openMock(o, p)
}
