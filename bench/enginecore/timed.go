package enginecore

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/kv/kvtest"
	"github.com/cadence-slo/cadence/worker/llamabackend"
	"github.com/cadence-slo/cadence/worker/radix"
	"github.com/cadence-slo/cadence/worker/radix/radixtest"
)

// clock is what the engine loop spends, as its decorators see it. The engine loop's goroutine owns it until the worker has
// ended; on is anyone's.
type clock struct {
	on atomic.Bool // the block is being measured

	step, apply, start, text, pages, tree time.Duration // in calls
	decode, sample                        time.Duration // of step
	calls                                 int           // of pages and tree
	loop                                  time.Duration // between two steps
	iterations, steps                     []time.Duration
	entries                               int // of steps
	prefill                               int // tokens
	from, to                              time.Time
}

// pass adds the time since begin to what, while a block is measured.
func (c *clock) pass(what *time.Duration, begin time.Time) {
	if c.on.Load() {
		*what += time.Since(begin)
	}
}

// core is pass for a call of the pages or the prefix tree.
func (c *clock) core(what *time.Duration, begin time.Time) {
	if c.on.Load() {
		c.calls++
		*what += time.Since(begin)
	}
}

// timedBackend times a backend's calls and what is between its steps.
type timedBackend struct {
	worker.Backend
	c *clock
}

// times is what the backend knows of its steps: nothing, if it computes nothing.
func (b *timedBackend) times() llamabackend.Times {
	if l, ok := b.Backend.(*llamabackend.Backend); ok {
		return l.Times()
	}
	return llamabackend.Times{}
}

func (b *timedBackend) Start(seq batch.SeqID, s *worker.Start) error {
	defer b.c.pass(&b.c.start, time.Now())
	return b.Backend.Start(seq, s)
}

func (b *timedBackend) Apply(m batch.Move) error {
	defer b.c.pass(&b.c.apply, time.Now())
	return b.Backend.Apply(m)
}

func (b *timedBackend) AppendPiece(dst []byte, token int32) ([]byte, error) {
	defer b.c.pass(&b.c.text, time.Now())
	return b.Backend.AppendPiece(dst, token)
}

func (b *timedBackend) EOG(token int32) bool {
	defer b.c.pass(&b.c.text, time.Now())
	return b.Backend.EOG(token)
}

// Step also notes the time since the step before: an engine that always has something to run does nothing but its loop
// then.
func (b *timedBackend) Step(s *batch.Batch, rows []batch.Row) error {
	c := b.c
	if !c.on.Load() {
		c.from, c.to = time.Time{}, time.Time{}
		return b.Backend.Step(s, rows)
	}
	begin := time.Now()
	if !c.to.IsZero() {
		c.loop += begin.Sub(c.to)
		c.iterations = append(c.iterations, begin.Sub(c.from))
	}
	before := b.times()
	err := b.Backend.Step(s, rows)
	c.from, c.to = begin, time.Now()
	after := b.times()
	c.decode += after.Decode - before.Decode
	c.sample += after.Sample - before.Sample
	c.step += c.to.Sub(begin)
	c.steps = append(c.steps, c.to.Sub(begin))
	c.entries += len(s.Entries)
	c.prefill += s.PrefillTokens
	return err
}

// planner makes the planner of an arm, whose pages and prefix tree are timed.
func (c *clock) planner(arm string) func(batch.Config) (*batch.Planner, error) {
	return func(cfg batch.Config) (*batch.Planner, error) {
		var pages kv.Allocator
		var tree radix.Cache
		var err error
		if arm == Naive {
			pages, tree = kvtest.NewPaged(cfg.PageTokens, cfg.KVPages), radixtest.New(cfg.PageTokens)
		} else {
			if pages, err = kv.NewPaged(cfg.PageTokens, cfg.KVPages); err != nil {
				return nil, err
			}
			if tree, err = radix.New(cfg.PageTokens); err != nil {
				return nil, err
			}
		}
		if !cfg.PrefixCache {
			return nil, fmt.Errorf("%w: the engine cannot share cells", ErrConfig)
		}
		return batch.NewWith(cfg, &timedPages{pages, c}, &timedTree{tree, c})
	}
}

// timedPages times the calls that a planner makes of its pages. Check, which only a debugged worker calls, is not timed.
type timedPages struct {
	kv.Allocator
	c *clock
}

func (p *timedPages) pass(begin time.Time) {
	p.c.core(&p.c.pages, begin)
}

func (p *timedPages) Need(t *kv.Table, tokens int) int {
	defer p.pass(time.Now())
	return p.Allocator.Need(t, tokens)
}

func (p *timedPages) Reserve(t *kv.Table, tokens int) error {
	defer p.pass(time.Now())
	return p.Allocator.Reserve(t, tokens)
}

func (p *timedPages) Fill(t *kv.Table, tokens int) error {
	defer p.pass(time.Now())
	return p.Allocator.Fill(t, tokens)
}

func (p *timedPages) Share(t *kv.Table, pages []kv.PageID, tokens int) error {
	defer p.pass(time.Now())
	return p.Allocator.Share(t, pages, tokens)
}

func (p *timedPages) Replace(t *kv.Table, pages []kv.PageID) error {
	defer p.pass(time.Now())
	return p.Allocator.Replace(t, pages)
}

func (p *timedPages) Fork(dst, src *kv.Table) error {
	defer p.pass(time.Now())
	return p.Allocator.Fork(dst, src)
}

func (p *timedPages) Release(t *kv.Table) {
	defer p.pass(time.Now())
	p.Allocator.Release(t)
}

func (p *timedPages) Hold(pages []kv.PageID) error {
	defer p.pass(time.Now())
	return p.Allocator.Hold(pages)
}

func (p *timedPages) Drop(pages []kv.PageID) error {
	defer p.pass(time.Now())
	return p.Allocator.Drop(pages)
}

func (p *timedPages) Stats() kv.Stats {
	defer p.pass(time.Now())
	return p.Allocator.Stats()
}

// timedTree times the calls that a planner makes of its prefix tree, but for Check and Walk.
type timedTree struct {
	radix.Cache
	c *clock
}

func (t *timedTree) pass(begin time.Time) {
	t.c.core(&t.c.tree, begin)
}

func (t *timedTree) Match(scope string, tokens []int32, dst []kv.PageID) radix.Match {
	defer t.pass(time.Now())
	return t.Cache.Match(scope, tokens, dst)
}

func (t *timedTree) Pin(m radix.Match, tokens int) (radix.Ref, error) {
	defer t.pass(time.Now())
	return t.Cache.Pin(m, tokens)
}

func (t *timedTree) Unpin(ref radix.Ref) error {
	defer t.pass(time.Now())
	return t.Cache.Unpin(ref)
}

func (t *timedTree) Insert(scope string, tokens []int32, pages []kv.PageID, seq kv.SeqID) (radix.Inserted, error) {
	defer t.pass(time.Now())
	return t.Cache.Insert(scope, tokens, pages, seq)
}

func (t *timedTree) Owned(seq kv.SeqID) (int, bool) {
	defer t.pass(time.Now())
	return t.Cache.Owned(seq)
}

func (t *timedTree) Evict() (radix.Evicted, bool) {
	defer t.pass(time.Now())
	return t.Cache.Evict()
}

func (t *timedTree) Remove(ref radix.Ref) (radix.Evicted, bool, error) {
	defer t.pass(time.Now())
	return t.Cache.Remove(ref)
}

func (t *timedTree) Stats() radix.Stats {
	defer t.pass(time.Now())
	return t.Cache.Stats()
}
