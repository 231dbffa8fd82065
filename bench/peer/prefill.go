package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/llama"
	"github.com/cadence-slo/cadence/worker/llamabackend"
)

// PrefillReport compares the worker's planner and backend with a bare loop of llama_decode, in this process, on the same
// loaded model and with contexts of the same settings. Prompts share nothing and run one at a time, in chunks of the same
// size; either side chooses the token that follows the prompt.
type PrefillReport struct {
	Prompts     int          `json:"prompts"` // of a block
	Tokens      int          `json:"prompt_tokens"`
	ChunkTokens int          `json:"chunk_tokens"`
	KVTokens    int          `json:"kv_tokens"`
	Bare        PrefillArm   `json:"bare"`
	Worker      []PrefillArm `json:"worker"` // without and with a prefix cache, which fills up with prompts that nobody asks for again
}

// PrefillArm is one way to prefill. All is by block, in order of time.
type PrefillArm struct {
	Name   string    `json:"name"`
	Speed  []float64 `json:"tokens_per_second"`
	CPU    []float64 `json:"tokens_per_cpu_second"` // of this process: what others on the machine take does not count
	Median float64   `json:"median_tokens_per_second"`
	// Ratio is this arm's speed over the bare loop's in the neighbouring block; CPURatio the same by CPU time.
	Ratio    Ratio `json:"over_bare"`
	CPURatio Ratio `json:"over_bare_cpu"`

	run func(prompt []int32) error
}

func (r *PrefillReport) write(p *printer.Printer) {
	p.Line("\nPrefill in this process (%d rounds of blocks of %d prompts of %d tokens, chunks of %d, %d tokens of KV cache)", len(r.Bare.Speed), r.Prompts, r.Tokens, r.ChunkTokens, r.KVTokens)
	t := p.Table("", "prompt tokens/s", "over bare", "least", "greatest", "over bare by CPU time")
	for _, a := range append([]PrefillArm{r.Bare}, r.Worker...) {
		t.AppendRow([]any{a.Name, fmt.Sprintf("%.1f", a.Median), times(a.Ratio.Median), times(a.Ratio.Min), times(a.Ratio.Max), times(a.CPURatio.Median)})
	}
	p.Render(t)
}

// prefillRun draws the prompts of all arms: none comes twice.
type prefillRun struct {
	o    *Options
	g    *workload.Generator
	next int
}

// prefill measures.
func prefill(ctx context.Context, o *Options, model string, vocab workload.Vocabulary) (rep *PrefillReport, err error) {
	m := &prefillRun{o: o}
	spec := &workload.Spec{Name: PartPrefill, UniqueTokens: workload.Range{Min: o.PrefillTokens, Max: o.PrefillTokens}, Output: workload.Output{Fixed: 1}}
	if m.g, err = workload.New(spec, vocab, o.Seed); err != nil {
		return nil, err
	}
	cfg := llamabackend.DefaultConfig()
	cfg.Path, cfg.Threads, cfg.BatchTokens = model, o.Threads, o.EngineBatch
	cfg.Cells = max(o.EngineBatch, (2*o.PrefillTokens+255)/256*256)
	rep = &PrefillReport{Prompts: o.PrefillPrompts, Tokens: o.PrefillTokens, ChunkTokens: o.PrefillChunk, KVTokens: cfg.Cells}
	var opened []func() error // to be closed in the opposite order: a context goes before its model
	defer func() {
		for _, closer := range slices.Backward(opened) {
			err = errors.Join(err, closer())
		}
	}()
	for _, cache := range []bool{false, true} { // each has cells of its own
		engine, err := llamabackend.Open(cfg, o.Log)
		if err != nil {
			return nil, err
		}
		opened = append(opened, engine.Close)
		d, err := newPlanned(engine, o, cache)
		if err != nil {
			return nil, err
		}
		if rep.Worker = append(rep.Worker, PrefillArm{Name: "worker", run: d.run}); cache {
			rep.Worker[1].Name += ", prefix cache"
			continue
		}
		loop, err := newBare(engine, o, cfg)
		if err != nil {
			return nil, err
		}
		opened = append(opened, loop.context.Close)
		rep.Bare = PrefillArm{Name: "bare llama_decode", run: loop.run}
	}
	arms := []*PrefillArm{&rep.Worker[0], &rep.Bare, &rep.Worker[1]}
	for n := -1; n < o.Blocks; n++ { // the first round warms up, and fills the prefix cache
		for _, a := range arms {
			if err := m.block(ctx, a, n >= 0); err != nil {
				return nil, fmt.Errorf("%s: %w", a.Name, err)
			}
		}
		slices.Reverse(arms)
	}
	rep.conclude()
	return rep, nil
}

// block measures one arm.
func (m *prefillRun) block(ctx context.Context, a *PrefillArm, counts bool) error {
	prompts := make([][]int32, m.o.PrefillPrompts)
	for i := range prompts {
		prompts[i] = m.g.Request(m.next).Prompt
		m.next++
	}
	used, err := cpuTime()
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, p := range prompts {
		if err := errors.Join(a.run(p), ctx.Err()); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	after, err := cpuTime()
	if err != nil || !counts {
		return err
	}
	tokens := float64(m.o.PrefillPrompts * m.o.PrefillTokens)
	a.Speed = append(a.Speed, tokens/took.Seconds())
	a.CPU = append(a.CPU, tokens/(after-used).Seconds())
	m.o.Log.Info("prefill", "by", a.Name, "tokens_per_s", fmt.Sprintf("%.1f", tokens/took.Seconds()), "tokens_per_cpu_s", fmt.Sprintf("%.1f", tokens/(after-used).Seconds()))
	return nil
}

// cpuTime is what this process has used.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("peer: getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// conclude compares the arms.
func (r *PrefillReport) conclude() {
	for _, a := range []*PrefillArm{&r.Bare, &r.Worker[0], &r.Worker[1]} {
		a.Median = medianOf(a.Speed)
		a.Ratio, a.CPURatio = ratioOf(a.Speed, r.Bare.Speed), ratioOf(a.CPU, r.Bare.CPU)
	}
}

// planned is the worker's planner over its backend, as its engine loop drives them.
type planned struct {
	planner *batch.Planner
	engine  *llamabackend.Backend
	moves   []batch.Move
	rows    []batch.Row
	id      batch.ID
	begin   time.Time
}

func newPlanned(engine *llamabackend.Backend, o *Options, cache bool) (*planned, error) {
	info := engine.Info()
	cfg := batch.DefaultConfig()
	cfg.KVPages, cfg.Sequences, cfg.MaxBatch = info.KVCells/cfg.PageTokens, info.Sequences, min(cfg.MaxBatch, info.Sequences)
	cfg.BatchTokens, cfg.ContextTokens, cfg.ChunkTokens, cfg.PrefixCache = info.BatchTokens, info.ContextTokens, o.PrefillChunk, cache
	planner, err := batch.New(cfg)
	if err != nil {
		return nil, err
	}
	return &planned{planner: planner, engine: engine, rows: make([]batch.Row, cfg.MaxBatch), begin: time.Now()}, nil
}

// run prefills a prompt and chooses one token.
func (d *planned) run(prompt []int32) error {
	d.id++
	if err := d.planner.Add(batch.Sequence{ID: d.id, Prompt: prompt, MaxNew: 1}, time.Since(d.begin)); err != nil {
		return err
	}
	for {
		b := d.planner.Plan(time.Since(d.begin))
		if b == nil {
			return nil
		}
		if err := d.move(); err != nil {
			return err
		}
		for i := range b.Entries {
			if e := &b.Entries[i]; e.Start {
				if err := d.engine.Start(e.Seq, &worker.Start{Attempt: 1, Prompt: prompt, MaxNew: 1, Sampling: schema.Sampling{}}); err != nil {
					return err
				}
			}
		}
		rows := d.rows[:len(b.Entries)]
		clear(rows)
		if err := d.engine.Step(b, rows); err != nil {
			return err
		}
		for _, out := range d.planner.Commit(rows, time.Since(d.begin)) {
			if out.Err != nil {
				return out.Err
			}
		}
		if err := d.move(); err != nil {
			return err
		}
	}
}

// move does to the engine's cells what the planner has decided.
func (d *planned) move() error {
	d.moves = d.planner.Moves(d.moves[:0])
	for _, m := range d.moves {
		if err := d.engine.Apply(m); err != nil {
			return err
		}
	}
	return nil
}

// bare is nothing but llama_decode.
type bare struct {
	context *llama.Context
	batch   *llama.Batch
	chunk   int
}

func newBare(engine *llamabackend.Backend, o *Options, cfg llamabackend.Config) (*bare, error) {
	c, err := llama.NewContext(engine.Model(), llama.ContextOptions{
		Cells: cfg.Cells, Sequences: cfg.Sequences, BatchTokens: cfg.BatchTokens, MicroBatchTokens: cfg.BatchTokens,
		Threads: cfg.Threads, BatchThreads: cfg.Threads,
	})
	if err != nil {
		return nil, err
	}
	return &bare{context: c, batch: llama.NewBatch(o.PrefillChunk), chunk: o.PrefillChunk}, nil
}

// run prefills a prompt and finds the likeliest token.
func (d *bare) run(prompt []int32) error {
	row := 0
	for pos := 0; pos < len(prompt); pos += d.chunk {
		d.batch.Reset()
		for i, token := range prompt[pos:min(pos+d.chunk, len(prompt))] {
			var err error
			if row, err = d.batch.Add(token, int32(pos+i), pos+i == len(prompt)-1, 0); err != nil {
				return err
			}
		}
		if err := d.context.Decode(d.batch); err != nil {
			return err
		}
	}
	logits, err := d.context.Logits(row)
	if err != nil {
		return err
	}
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	if logits[best] != logits[best] {
		return fmt.Errorf("peer: the prompt came to NaN: %w", worker.ErrBackend)
	}
	return d.context.SeqRemove(0, 0, -1)
}
