package enginecore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/llamabackend"
	"github.com/cadence-slo/cadence/worker/mock"
	"github.com/cadence-slo/cadence/worker/modelfile"
	"github.com/google/pprof/profile"
)

// loaded is an engine with its tokenizer.
type loaded struct {
	backend   worker.Backend
	tokenizer tokenizer
	vocab     workload.Vocabulary
}

// load opens the engine.
func load(ctx context.Context, o *Options) (*loaded, error) {
	longest := o.SystemTokens + 2*o.TailTokens + o.OutputTokens
	sequences := min(256, 2*o.Batch+32) // half of them hold cached prefixes
	if o.On == "mock" {
		cfg := mock.FreeConfig()
		cfg.KVCells, cfg.Sequences, cfg.ContextTokens = o.KVTokens, sequences, longest
		b, err := mock.New(cfg)
		if err != nil {
			return nil, err
		}
		vocab, err := workload.NewVocabulary(mock.Vocab, func(id int32) bool { return id <= mock.TurnEnd })
		return &loaded{b, mock.Tokenizer{}, vocab}, err
	}
	path, err := modelfile.Find(ctx, o.ModelDir, o.Model, nil)
	if err != nil {
		return nil, err
	}
	cfg := llamabackend.DefaultConfig()
	cfg.Path, cfg.Model, cfg.Cells, cfg.Sequences, cfg.Context, cfg.Threads = path, "profiled", o.KVTokens, sequences, longest, o.Threads
	b, err := llamabackend.Open(cfg, o.Log)
	if err != nil {
		return nil, err
	}
	m := b.Model()
	vocab, err := workload.NewVocabulary(m.Facts().Vocab, func(id int32) bool { return m.IsControl(id) || m.IsEOG(id) })
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &loaded{b, m, vocab}, nil
}

// Profile measures.
func Profile(ctx context.Context, o Options) (rep *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l, err := load(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.backend.Close()) }()
	spec := &workload.Spec{
		Name: "profile", SharedRatio: o.SharedRatio, SystemPrompts: 4, SystemTokens: workload.Range{Min: o.SystemTokens, Max: o.SystemTokens},
		TailTokens:   workload.Range{Min: max(1, o.TailTokens/2), Max: o.TailTokens * 3 / 2},
		UniqueTokens: workload.Range{Min: o.SystemTokens, Max: o.SystemTokens + o.TailTokens}, Output: workload.Output{Fixed: o.OutputTokens},
	}
	requests, err := workload.New(spec, l.vocab, o.Seed)
	if err != nil {
		return nil, err
	}
	arms := []string{Fast}
	if o.Cores == Naive {
		arms = []string{Fast, Naive}
	}
	p := &profiler{o: &o, l: l, profiles: map[string][]*profile.Profile{}, blocks: map[string][]*block{}}
	for n := range o.Blocks {
		order := slices.Clone(arms)
		if n%2 == 1 { // A B B A: a drift of the machine meets both alike
			slices.Reverse(order)
		}
		for _, arm := range order {
			if err := p.block(ctx, arm, requests.Reseed(o.Seed+uint64(n))); err != nil {
				return nil, fmt.Errorf("block %d of %s: %w", n+1, arm, err)
			}
		}
	}
	return p.report(arms)
}

// profiler collects blocks.
type profiler struct {
	o        *Options
	l        *loaded
	profiles map[string][]*profile.Profile // by arm
	blocks   map[string][]*block
}

// block is one measurement.
type block struct {
	clock  *clock
	length time.Duration
	tokens int64
	ends   int64
	cpu    time.Duration // of the process, as the kernel counts; 0 if it does not tell
}

// block measures one block of an arm.
func (p *profiler) block(ctx context.Context, arm string, requests *workload.Generator) (err error) {
	dir, err := os.MkdirTemp("", "cadence-profile-")
	if err != nil {
		return fmt.Errorf("enginecore: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := &clock{}
	cfg := worker.DefaultConfig()
	cfg.Name, cfg.Pool, cfg.MaxBatch, cfg.FenceAfter = "profile", pool, p.o.Batch, time.Minute
	cfg.Grace = 0 // what runs at the end of the block is of no interest
	cfg.NewPlanner = c.planner(arm)
	rig, err := StartRig(ctx, dir, cfg, &timedBackend{p.l.backend, c}, p.o.Log)
	if err != nil {
		return err
	}
	b, measured := p.measure(ctx, rig, c, arm, requests)
	if err := errors.Join(measured, rig.Stop()); err != nil { // the engine loop has ended: the clock is ours
		return err
	}
	p.blocks[arm] = append(p.blocks[arm], b)
	if p.o.Progress != nil {
		_, err = fmt.Fprintf(p.o.Progress, "%-5s  %.1f output tokens/s, %d steps of %.1f requests, %d answers\n",
			arm, float64(b.tokens)/b.length.Seconds(), len(c.steps), float64(c.entries)/float64(max(1, len(c.steps))), b.ends)
	}
	return err
}

// measure loads the worker, and takes a CPU profile after the warm-up.
func (p *profiler) measure(ctx context.Context, rig *Rig, c *clock, arm string, requests *workload.Generator) (*block, error) {
	load := newClosed(rig, requests, p.l.tokenizer, p.l.backend.Info().Model, p.o.OutputTokens, p.o.Batch)
	if _, err := rig.Client.SubscribeChunks(ingress, load.chunk); err != nil {
		return nil, err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- load.run(loading) }()
	wait := func(d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case err := <-ended:
			ended <- nil
			return errors.Join(err, ctx.Err())
		}
	}
	if err := wait(p.o.Warmup); err != nil {
		return nil, err
	}
	var cpu bytes.Buffer
	if err := pprof.StartCPUProfile(&cpu); err != nil {
		return nil, fmt.Errorf("enginecore: CPU profile: %w", err)
	}
	begin, used, tokens, ends := time.Now(), processCPU(), load.tokens.Load(), load.ends.Load()
	c.on.Store(true)
	err := wait(p.o.Length)
	c.on.Store(false)
	b := &block{clock: c, length: time.Since(begin), tokens: load.tokens.Load() - tokens, ends: load.ends.Load() - ends, cpu: processCPU() - used}
	pprof.StopCPUProfile()
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	one, err := profile.ParseData(cpu.Bytes())
	if err != nil {
		return nil, fmt.Errorf("enginecore: CPU profile: %w", err)
	}
	p.profiles[arm] = append(p.profiles[arm], one)
	return b, nil
}

// write stores an arm's profile and its picture.
func (p *profiler) write(arm string, merged *profile.Profile) (files []string, err error) {
	if err := os.MkdirAll(p.o.Out, 0o755); err != nil {
		return nil, fmt.Errorf("enginecore: %w", err)
	}
	var raw, picture bytes.Buffer
	if err := merged.Write(&raw); err != nil {
		return nil, fmt.Errorf("enginecore: CPU profile: %w", err)
	}
	title := fmt.Sprintf("cadence worker, %s pages and prefix tree, %s, %d requests at once", arm, p.o.engine(), p.o.Batch)
	if err := flame(&picture, merged, title); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"engine-" + arm + ".pprof", raw.Bytes()}, {"engine-" + arm + ".svg", picture.Bytes()}} {
		path := filepath.Join(p.o.Out, f.name)
		if err := os.WriteFile(path, f.data, 0o644); err != nil {
			return nil, fmt.Errorf("enginecore: %w", err)
		}
		files = append(files, path)
	}
	return files, nil
}
