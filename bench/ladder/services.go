package ladder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// ErrEngine is returned for an engine that started and then failed by itself: it did not answer the first request, or was
// gone after the last.
var ErrEngine = errors.New("ladder: the engine failed")

// failed is err, as ErrEngine unless it is due to the end of ctx.
func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return fmt.Errorf("%w: %w", ErrEngine, err)
}

// services runs arms on child processes.
type services struct {
	workload   string
	vocab      workload.Vocabulary
	args       []string // of the engine, before an arm's own
	gateway    []string // of one that stands in front, before an arm's own
	served     *pipeline.Model
	profile    string
	sum        string // of the profile
	executable string
	log        *slog.Logger
	step       func(*schema.Step) // nil: nobody wants to hear of steps
}

func openMock(o *Options, p *profile.Profile) (*services, error) {
	_, vocab, err := pipeline.MockModel()
	if err != nil {
		return nil, err
	}
	sum, err := p.SHA256()
	return &services{workload: o.Definition.Workload, vocab: vocab, profile: p.Name, sum: sum, executable: o.Executable, log: o.Log, step: o.Step,
		args:    append([]string{"--backend=mock", "--mock-profile=" + o.Definition.Profile}, sizes(p)...),
		gateway: []string{"--backend=openai", "--tokenizer=mock"}}, err
}

func openLlama(ctx context.Context, o *Options) (*services, error) {
	file, err := pipeline.FindModel(ctx, o.ModelDir, o.Definition.Model)
	if err != nil {
		return nil, err
	}
	model, vocab, err := pipeline.OpenModel(file)
	if err != nil {
		return nil, err
	}
	return &services{workload: o.Definition.Workload, vocab: vocab, served: &model, executable: o.Executable, log: o.Log, step: o.Step,
		args:    []string{"--backend=llama", "--model=" + file, "--threads=" + strconv.Itoa(o.Definition.Threads)},
		gateway: []string{"--backend=openai", "--model=" + file}}, nil
}

func (e *services) source(seed uint64) (workload.Source, error) {
	return workload.OpenSource(e.workload, e.vocab, seed)
}

func (e *services) model() *pipeline.Model { return e.served }

func (e *services) profileSHA256() string { return e.sum }

// front is a fresh engine and a client of it.
type front struct {
	args    []string // of the engine, and behind "gateway" those of what stands before it
	engine  *pipeline.Pipeline
	gateway *pipeline.Pipeline // nil: none
	client  *load.Client
	steps   *streams.Client // nil: nobody wants to hear of them
}

// start starts an arm. It must be stopped.
func (e *services) start(ctx context.Context, s *setup) (f *front, err error) {
	f = &front{args: slices.Concat(e.args, s.arm.Args)}
	var nats string
	if e.step != nil {
		if nats, err = pipeline.FreeAddr(); err != nil {
			return nil, err
		}
		f.args = append(f.args, "--nats-listen="+nats, "--worker-step-sample=1")
	}
	if f.engine, err = pipeline.Start(ctx, pipeline.Options{Executable: e.executable, Args: f.args, Log: e.log}); err != nil {
		return nil, err
	}
	if e.step != nil {
		if err := f.hear(ctx, nats, e.step, e.log); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	url := f.engine.URL
	if s.arm.Gateway != nil {
		args := slices.Concat(e.gateway, []string{"--upstream=" + url}, s.arm.Gateway)
		if f.gateway, err = pipeline.Start(ctx, pipeline.Options{Executable: e.executable, Args: args, Log: e.log}); err != nil {
			return nil, errors.Join(err, f.stop())
		}
		f.args = slices.Concat(f.args, []string{"gateway"}, args)
		url = f.gateway.URL
	}
	cfg := load.DefaultClientConfig()
	cfg.URL, cfg.Timeout = url, s.timeout
	if f.client, err = load.NewClient(cfg); err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return f, nil
}

// hear subscribes to the steps of the engine.
func (f *front) hear(ctx context.Context, address string, step func(*schema.Step), log *slog.Logger) error {
	cfg := streams.DefaultConfig()
	cfg.URL, cfg.Name = "nats://"+address, "ladder"
	var err error
	if f.steps, err = streams.Connect(ctx, cfg, nil, log, nil); err != nil {
		return err
	}
	_, err = f.steps.SubscribeSteps(step)
	return err
}

func (f *front) stop() error {
	if f.client != nil {
		f.client.Close()
	}
	var err error
	if f.steps != nil {
		f.steps.Close()
	}
	if f.gateway != nil {
		err = f.gateway.Stop()
	}
	return errors.Join(err, f.engine.Stop())
}

// form is how requests are put.
func form(name string) *load.Form {
	return &load.Form{Endpoint: load.Completions, Model: "default", Name: name}
}

// canaryTokens is how many tokens the canary generates.
const canaryTokens = 64

// canary times a fixed generation on the idle engine. Its prompt is shorter than a page, so that it leaves nothing in the
// prefix cache that a prompt could meet.
func (e *services) canary(ctx context.Context, c *load.Client) *record.Canary {
	q := workload.Request{Prompt: e.vocab[:min(8, len(e.vocab))], Cap: canaryTokens, Output: canaryTokens}
	r := c.Do(ctx, form("canary").Request(&q))
	out := &record.Canary{Took: r.E2E}
	if r.Usage != nil {
		out.Tokens = r.Usage.CompletionTokens
	}
	pace(out, r)
	return out
}

// pace is that of the tokens after the first, so that what an arm waits before it starts (static batching does) does not count.
func pace(c *record.Canary, r *load.Record) {
	if r.Outcome != load.OK || c.Tokens < 2 || r.TTFT < 0 || r.E2E <= r.TTFT {
		c.Err = fmt.Sprintf("%s with %d tokens in %v: %s", r.Outcome, c.Tokens, r.E2E, r.Err)
		return
	}
	c.TokensRate = float64(c.Tokens-1) / (r.E2E - r.TTFT).Seconds()
}

func (e *services) run(ctx context.Context, s *setup) (_ *record.Run, err error) {
	f, err := e.start(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	out := s.run
	out.Args, out.Profile = f.args, e.profile
	out.Model = "mock"
	if e.served != nil {
		out.Model = e.served.File
	}
	// The first request opens a connection and touches memory: it is not measured.
	if first := e.canary(ctx, f.client); first.Err != "" {
		return nil, failed(ctx, fmt.Errorf("the first request: %s", first.Err))
	}
	if s.canary {
		out.Canary = e.canary(ctx, f.client)
	}
	before, err := pipeline.ReadCounters(ctx, f.engine.Ops)
	if err != nil {
		return nil, err
	}
	put := form(s.arm.Name)
	if s.deadlines {
		put.Deadlines = out.SLOs
	}
	trial := load.Trial{Client: f.client, Form: put, Source: s.source, Arrivals: s.arrivals, Drain: s.drain, Run: out, Sink: s.sink}
	run, err := trial.Measure(ctx)
	if err != nil {
		return nil, err
	}
	after, err := pipeline.ReadCounters(ctx, f.engine.Ops)
	if err != nil {
		return nil, failed(ctx, err)
	}
	counted := after.Less(before)
	run.PromptTokens, run.CachedTokens, run.Preemptions = int64(counted.Prompt), int64(counted.Cached), int64(counted.Preemptions)
	return run, nil
}

func (e *services) alone(ctx context.Context, s *setup, n int) (rows []record.Request, err error) {
	f, err := e.start(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	e.canary(ctx, f.client) // as before a run
	put := form("alone")
	begin := time.Now()
	for i := range n {
		q := s.source.Request(i)
		r := f.client.Do(ctx, put.Request(&q))
		row := load.Row(r, &q, put.MaxTokens(&q))
		row.Index, row.Intended = i, time.Since(begin)-row.E2E
		rows = append(rows, row)
	}
	return rows, ctx.Err()
}
