package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cadence-slo/cadence/bench/enginecore"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// Patience with what must happen by itself.
const (
	endsWithin    = 2 * time.Minute // everything that is under way
	settlesWithin = 5 * time.Second // gauges and goroutines, after that
)

// Run soaks. A leak or a wrong answer is in the report; an error means that it could not be found out.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.warmup()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	rep := &Report{On: o.On, Seed: o.Seed, Sequences: o.Sequences, MaxBatch: o.MaxBatch, Overcommit: o.Overcommit, Memory: Judged, Problems: []string{}}
	if o.Warmup < memoryWarmup {
		rep.Memory = fmt.Sprintf("not judged, warm-up below %gm", memoryWarmup.Minutes())
	}
	rep.Goroutines.Before = goroutines()
	dir, err := os.MkdirTemp("", "cadence-soak-")
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e, err := open(ctx, &o, dir)
	if err != nil {
		return nil, err
	}
	s := &soak{o: &o, rep: rep, engine: e}
	err = errors.Join(s.run(ctx, filepath.Join(dir, "streams")), e.Close())
	rep.Goroutines.After = settle(rep.Goroutines.Before, settlesWithin)
	if err != nil {
		return nil, err
	}
	s.judge()
	return rep, nil
}

// soak is one run.
type soak struct {
	o       *Options
	rep     *Report
	engine  *engine
	planner *batch.Planner // the worker's; ours once it has ended
	rig     *enginecore.Rig
	load    *load
	begin   time.Time
}

func (s *soak) config() worker.Config {
	cfg := worker.DefaultConfig()
	cfg.Name, cfg.Pool, cfg.KVOvercommit, cfg.MaxBatch, cfg.ChunkTokens = "soak", pool, s.o.Overcommit, s.o.MaxBatch, 64
	cfg.Remember, cfg.FenceAfter = 256, time.Minute // a machine that stands still for a while is no leak
	cfg.CheckInvariants = true
	cfg.NewPlanner = func(c batch.Config) (*batch.Planner, error) {
		s.rep.KVPages = c.KVPages
		var err error
		s.planner, err = batch.New(c)
		return s.planner, err
	}
	return cfg
}

func (s *soak) problem(format string, args ...any) {
	s.rep.Problems = append(s.rep.Problems, fmt.Sprintf(format, args...))
}

// run does all that needs the worker. What it finds wrong is among the report's problems.
func (s *soak) run(ctx context.Context, dir string) error {
	var err error
	if s.rig, err = enginecore.StartRig(ctx, dir, s.config(), s.engine, s.o.Log); err != nil {
		return err
	}
	s.load = newLoad(s.rig, s.engine, s.o.Seed)
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		if err := s.rig.Stop(); err != nil {
			s.problem("the worker ended with: %v", err)
		}
	}
	defer stop()
	if _, err := s.rig.Client.SubscribeChunks(ingress, s.load.chunk); err != nil {
		return err
	}
	s.begin = time.Now()
	for time.Since(s.begin) < s.o.Duration {
		timer := time.NewTimer(min(s.o.Every, s.o.Duration-time.Since(s.begin)))
		err := s.load.run(ctx, timer.C)
		timer.Stop()
		if err == nil {
			err = s.quiet(ctx)
		}
		if errors.Is(err, errLost) || errors.Is(err, enginecore.ErrEnded) {
			s.problem("%v", err)
			break
		}
		if err != nil {
			return err
		}
	}
	s.rep.Length = time.Since(s.begin)
	stop()
	s.totals()
	if err := s.engine.vacant(); err != nil {
		s.problem("after the end: %v", err)
	} else {
		s.rep.Vacant = true
	}
	return nil
}

// errLost tells that something did not come back at a quiet point.
var errLost = errors.New("soak: lost")

// quiet lets everything end and looks at what is left.
func (s *soak) quiet(ctx context.Context) error {
	begin := time.Now()
	ending, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	if err := s.load.rest(ending); err != nil {
		if ctx.Err() == nil && ending.Err() != nil {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		return err
	}
	cached, err := s.returned(ctx)
	if err != nil {
		return err
	}
	if err := s.rig.Purge(ctx); err != nil {
		return err
	}
	if n := len(s.rep.Samples); n > 0 {
		settle(s.rep.Samples[n-1].Goroutines, time.Second)
	}
	m, err := s.rig.Metrics()
	if err != nil {
		return err
	}
	sample := measure()
	sample.At, sample.Cached, sample.Steps = time.Since(s.begin), cached, s.engine.steps.Load()
	sample.Preempted, sample.Evicted = int64(m["cadence_worker_preemptions_total"]), int64(m["cadence_worker_prefix_evictions_total"])
	s.load.mu.Lock()
	counts, wrong := s.load.counts, s.load.wrong
	s.load.mu.Unlock()
	sample.Requests, sample.Collection = counts.Requests, time.Since(begin)
	s.rep.Samples = append(s.rep.Samples, sample)
	if s.o.Progress != nil {
		_, err = fmt.Fprintf(s.o.Progress, "%6s  %d requests (%d cancelled, %d replaced, %d wrong)  %d steps  %d preemptions  %d evictions  %.0f pages copied  %d rebases  heap %.1f MiB  rss %.1f MiB  %d goroutines\n",
			sample.At.Round(time.Second), counts.Requests, counts.Cancelled, counts.Replaced, wrong, sample.Steps, sample.Preempted, sample.Evicted,
			m["cadence_worker_kv_page_copies_total"], s.engine.rebases.Load(), float64(sample.Heap)/(1<<20), float64(sample.RSS)/(1<<20), sample.Goroutines)
	}
	return err
}

// returned waits until the worker says that nothing runs or is reserved, and that all pages in use are cached prefixes. It
// returns how many those are.
func (s *soak) returned(ctx context.Context) (cached int64, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(settlesWithin); ; {
		m, err := s.rig.Metrics()
		if err != nil {
			return 0, err
		}
		running, waiting, reserved := m["cadence_worker_running"], m["cadence_worker_waiting"], m["cadence_worker_kv_reserved_pages"]
		used, kept := m["cadence_worker_kv_used_pages"], m["cadence_worker_kv_cached_pages"]
		if running == 0 && waiting == 0 && reserved == 0 && used == kept {
			return int64(kept), nil
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("%w: with nothing to do, %.0f requests run, %.0f wait, %.0f pages are reserved, %.0f are used, %.0f cached", errLost, running, waiting, reserved, used, kept)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.rig.Ended():
			return 0, enginecore.ErrEnded
		}
	}
}

// totals reads what was counted. The worker has ended, with its prefix cache emptied.
func (s *soak) totals() {
	e, t := s.engine, s.planner.Totals()
	s.rep.Engine = Engine{
		Steps: e.steps.Load(), FailedSteps: e.failed.Load(), FedTokens: e.tokens.Load(), Sampled: e.rows.Load(), LargestBatch: e.largest.Load(),
		Copies: e.copies.Load(), Trims: e.trims.Load(), Rebases: e.rebases.Load(),
		Preemptions: t.Preemptions, Wasted: t.WastedTokens, Evictions: t.Evictions, PageCopies: t.PageCopies, Rebased: t.RebasedTokens,
		PromptTokens: t.PromptTokens, CachedTokens: t.CachedTokens,
	}
	if err := s.planner.Check(); err != nil {
		s.problem("after the end: %v", err)
	}
	u := s.planner.Usage()
	if u.Running+u.Waiting+u.UsedPages+u.CachedPages+u.PromisedPages > 0 || u.FreeSequences != s.o.Sequences || u.FreePages != s.rep.KVPages {
		s.problem("after the end the planner holds something: %+v", u)
	}
}

// judge looks for leaks.
func (s *soak) judge() {
	r := s.rep
	s.load.mu.Lock()
	r.Requests = s.load.counts
	wrong, some := s.load.wrong, s.load.samples
	s.load.mu.Unlock()
	if wrong > 0 {
		s.problem("%d answers are wrong", wrong)
		r.Problems = append(r.Problems, some...)
	}
	if r.Engine.FailedSteps > 0 {
		s.problem("%d steps failed", r.Engine.FailedSteps)
	}
	warm := r.Samples
	for len(warm) > 0 && warm[0].At < s.o.Warmup {
		warm = warm[1:]
	}
	if len(warm) < 2 {
		s.problem("%d quiet points after the warm-up, at least 2 are needed", len(warm))
		return
	}
	r.Heap = trend(warm, func(m *Sample) int64 { return m.Heap }, s.o.HeapRate, heapNoise)
	r.RSS = trend(warm, func(m *Sample) int64 { return m.RSS }, s.o.RSSRate, rssNoise)
	if r.Memory == Judged {
		s.judgeMemory()
	}
	g := &r.Goroutines
	g.First, g.Last = warm[0].Goroutines, warm[len(warm)-1].Goroutines
	if g.Last > g.First {
		s.problem("%d goroutines at the first quiet point, %d at the last", g.First, g.Last)
	}
	if g.After > g.Before {
		s.problem("%d goroutines before, %d after:\n%s", g.Before, g.After, join(stacks()))
	}
	r.Passed = len(r.Problems) == 0
}

// judgeMemory holds growth against its bounds.
func (s *soak) judgeMemory() {
	r := s.rep
	if r.Heap.Growth > r.Heap.Bound {
		s.problem("the heap grew by %d bytes, allowed are %d", r.Heap.Growth, r.Heap.Bound)
	}
	if r.RSS.Growth > r.RSS.Bound {
		s.problem("the resident memory grew by %d bytes, allowed are %d", r.RSS.Growth, r.RSS.Bound)
	}
}

// join makes one text of stacks.
func join(all [][]byte) (out string) {
	for _, one := range all {
		out += string(one) + "\n\n"
	}
	return out
}
