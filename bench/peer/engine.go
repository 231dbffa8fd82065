package peer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/llamaserver"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/workload"
)

// greedy makes llama-server choose the likeliest token in the cheapest way that it has: its usual chain of samplers would
// cost it time that ours does not spend. The prompt cache is its default, said aloud.
const greedy = `,"samplers":["top_k"],"top_k":1,"cache_prompt":true`

// engineRun is one Engine.
type engineRun struct {
	o      *Options
	report *Report
	model  string // file
	vocab  workload.Vocabulary
	ours   *side
	seed   uint64
	begin  time.Time
}

// say tells what begins now.
func (r *engineRun) say(format string, args ...any) error {
	if r.o.Progress == nil {
		return nil
	}
	_, err := fmt.Fprintf(r.o.Progress, "%6s  %s\n", time.Since(r.begin).Round(time.Second), fmt.Sprintf(format, args...))
	return err
}

// Engine compares the pipeline with llama-server. The report is complete if the error is nil; otherwise it has the parts that
// were finished, and Stopped if ctx ended.
func Engine(ctx context.Context, o Options) (rep Report, err error) {
	defer func() { rep.Stopped = err != nil && ctx.Err() != nil }()
	if err := o.Validate(); err != nil {
		return rep, err
	}
	if o.Quick {
		o.quick()
	}
	// The generator shares the machine with what it measures: one thread wakes others less.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r := &engineRun{o: &o, report: &rep, seed: o.Seed << 20, begin: time.Now()}
	if err := r.say("model %s", o.Model); err != nil {
		return rep, err
	}
	if r.model, err = pipeline.FindModel(ctx, o.ModelDir, o.Model); err != nil {
		return rep, err
	}
	rep.Time, rep.Machine, rep.Threads, rep.Quick = time.Now().UTC(), pipeline.ThisMachine(o.Version), o.Threads, o.Quick
	if rep.Model, r.vocab, err = pipeline.OpenModel(r.model); err != nil {
		return rep, err
	}
	if slices.ContainsFunc(o.Parts, func(p string) bool { return p != PartPrefill }) {
		if err := r.servers(ctx); err != nil {
			return rep, err
		}
	}
	if slices.Contains(o.Parts, PartPrefill) { // last, when nothing else holds memory
		if err := r.say("prefill in this process: %d rounds", o.Blocks); err != nil {
			return rep, err
		}
		rep.Prefill, err = prefill(ctx, &o, r.model, r.vocab)
	}
	return rep, err
}

// servers runs the parts that go over HTTP.
func (r *engineRun) servers(ctx context.Context) (err error) {
	o := r.o
	shared, err := workload.Open(o.Workload)
	if err != nil {
		return err
	}
	shared.Output = workload.Output{Fixed: o.OutputTokens}
	unique := &workload.Spec{Name: PartUnique, Output: shared.Output, UniqueTokens: workload.Range{Min: o.PromptTokens, Max: o.PromptTokens}}
	most := slices.Max(o.Concurrency)
	longest := max(shared.Longest(), unique.Longest())
	r.report.Slots, r.report.KVTokens = most, o.KVTokens
	if r.report.KVTokens == 0 {
		r.report.KVTokens = 2 * most * (longest + 255) / 256 * 256
	}
	if err := r.say("starting the pipeline"); err != nil {
		return err
	}
	up, err := pipeline.Start(ctx, pipeline.Options{Executable: o.Executable, Args: r.upArgs(most), Analytics: o.Analytics, Log: o.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, up.Stop()) }()
	if r.ours, err = newSide("cadence", up.URL, "default", "", o.Timeout); err != nil {
		return err
	}
	r.ours.ops = up.Ops
	defer r.ours.client.Close()
	if slices.Contains(o.Parts, PartUnique) {
		if err := r.against(ctx, unique, []string{PartUnique}); err != nil {
			return err
		}
	}
	parts := slices.DeleteFunc(slices.Clone(o.Parts), func(p string) bool { return p != PartShared && p != PartOpen })
	if len(parts) == 0 {
		return nil
	}
	return r.against(ctx, shared, parts)
}

// upArgs are the arguments of the pipeline's engine.
func (r *engineRun) upArgs(most int) []string {
	o := r.o
	args := slices.Concat([]string{"--backend", "llama", "--model", r.model},
		pipeline.Flag("threads", o.Threads), pipeline.Flag("kv-tokens", r.report.KVTokens), pipeline.Flag("engine-batch", o.EngineBatch),
		// Ids beyond those of running requests hold cached prefixes.
		pipeline.Flag("sequences", min(256, 4*most)), pipeline.Flag("worker-max-batch", most))
	return append(args, o.UpArgs...)
}

// against measures one workload against llama-server in the settings that are its best for it.
func (r *engineRun) against(ctx context.Context, spec *workload.Spec, parts []string) (err error) {
	r.seed++
	g, err := workload.New(spec, r.vocab, r.seed)
	if err != nil {
		return err
	}
	args, trials, err := r.tune(ctx, g)
	if err != nil {
		return err
	}
	peer, theirs, err := r.startPeer(ctx, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPeer(peer, theirs)) }()
	r.report.PeerVersion = peer.Version
	if err := r.say("%s: warming up", spec.Name); err != nil {
		return err
	}
	most := slices.Max(r.o.Concurrency)
	for _, s := range []*side{r.ours, theirs} { // the shared prompts get into the caches, and memory is touched
		if _, err := s.closed(ctx, g.Reseed(r.next()), "warmup", most, r.requests(most)); err != nil {
			return err
		}
	}
	add := func(m *Measurement) {
		m.PeerArgs, m.Trials = peer.Args, trials
		r.report.Measurements = append(r.report.Measurements, *m)
	}
	var last *Measurement
	levels := r.o.Concurrency
	if spec.SharedRatio > 0 {
		levels = []int{most}
	}
	if parts[0] == PartOpen && r.o.OpenRate > 0 {
		levels = nil // the closed loop would only tell the rate
	}
	for _, n := range levels {
		if last, err = r.closed(ctx, g, theirs, n); err != nil {
			return err
		}
		add(last)
	}
	if !slices.Contains(parts, PartOpen) {
		return nil
	}
	m, err := r.open(ctx, g, theirs, r.openRate(last))
	if err != nil {
		return err
	}
	add(m)
	return nil
}

func (r *engineRun) next() uint64 { r.seed++; return r.seed }

// requests is how many a block has.
func (r *engineRun) requests(concurrency int) int {
	if r.o.Requests > 0 {
		return max(r.o.Requests, concurrency)
	}
	return max(8, 4*concurrency)
}

// openRate is the rate of the open loop after a closed one.
func (r *engineRun) openRate(closed *Measurement) float64 {
	if r.o.OpenRate > 0 || closed == nil {
		return r.o.OpenRate
	}
	rate := func(b *Block) float64 { return float64(b.Complete) / b.Length.Seconds() }
	return r.o.OpenLoad * min(rate(&closed.Ours.Pooled), rate(&closed.Theirs.Pooled))
}

// closed measures a closed loop.
func (r *engineRun) closed(ctx context.Context, g *workload.Generator, theirs *side, concurrency int) (*Measurement, error) {
	spec := g.Spec()
	m := &Measurement{Name: fmt.Sprintf("%s, %d at a time", spec.Name, concurrency), Workload: spec, Concurrency: concurrency}
	return m, r.pairs(ctx, m, theirs, func(s *side, seed uint64, block string) (sample, error) {
		return s.closed(ctx, g.Reseed(seed), block, concurrency, r.requests(concurrency))
	})
}

// open measures an open loop.
func (r *engineRun) open(ctx context.Context, g *workload.Generator, theirs *side, rate float64) (*Measurement, error) {
	spec := g.Spec()
	// A slow model needs longer for as many requests as a block of the closed loop has.
	length := max(r.o.OpenLength, time.Duration(float64(r.requests(slices.Max(r.o.Concurrency)))/rate*float64(time.Second)))
	m := &Measurement{Name: fmt.Sprintf("%s, %.2f requests/s", spec.Name, rate), Workload: spec, Rate: rate, OpenLength: length}
	return m, r.pairs(ctx, m, theirs, func(s *side, seed uint64, block string) (sample, error) {
		return s.open(ctx, g.Reseed(seed), block, seed, rate, length, r.o.Timeout)
	})
}

// pairs runs the blocks of a measurement in turns. Both blocks of a pair have the same requests.
func (r *engineRun) pairs(ctx context.Context, m *Measurement, theirs *side, block func(s *side, seed uint64, name string) (sample, error)) error {
	var all [2][]sample
	for n := range r.o.Blocks {
		if err := r.say("%s: pair of blocks %d of %d", m.Name, n+1, r.o.Blocks); err != nil {
			return err
		}
		seed := r.next()
		order := []int{0, 1}
		if !oursFirst(n) {
			order = []int{1, 0}
		}
		for _, i := range order {
			s := []*side{r.ours, theirs}[i]
			b, err := block(s, seed, fmt.Sprintf("s%d", seed))
			if err != nil {
				return err
			}
			all[i] = append(all[i], b)
			sum := summarize(b)
			logBlock(r.o.Log, m.Name, s, &sum)
			side := []*Side{&m.Ours, &m.Theirs}[i]
			side.Blocks = append(side.Blocks, sum)
		}
	}
	m.Ours.Pooled, m.Theirs.Pooled = summarize(all[0]...), summarize(all[1]...)
	m.Ratios = ratios(m.Ours.Blocks, m.Theirs.Blocks)
	return nil
}

// startPeer starts llama-server with further arguments.
func (r *engineRun) startPeer(ctx context.Context, args []string) (*llamaserver.Server, *side, error) {
	o := r.o
	ctx, cancel := context.WithTimeout(ctx, pipeline.StartLimit)
	defer cancel()
	s, err := llamaserver.Start(ctx, llamaserver.Options{
		Binary: o.LlamaServer, Model: r.model, Threads: o.Threads, Slots: r.report.Slots, Context: r.report.KVTokens,
		// The same device as ours, and nothing that only its own web page needs.
		ExtraArgs: slices.Concat([]string{"--device", "none", "--no-webui"}, pipeline.Flag("ubatch-size", o.EngineBatch), args, o.PeerArgs),
		Log:       o.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	theirs, err := newSide("llama-server", s.URL, "default", greedy, o.Timeout)
	if err != nil {
		return nil, nil, errors.Join(err, s.Kill())
	}
	return s, theirs, nil
}

func stopPeer(s *llamaserver.Server, theirs *side) error {
	theirs.client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Stop(ctx)
}
