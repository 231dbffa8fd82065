package workertest

import (
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// Metamorphic runs the same requests in every way that a planner knows, each compared with itself alone in an empty
// engine, under teacher forcing: batch sizes, chunk sizes, orders, paged or contiguous, with and without a prefix cache,
// preempted again and again. An exact engine makes the same choices everywhere; for others see Suite. It needs 17
// sequences, 1,024 tokens of context and 12,288 cells.
func Metamorphic(t *testing.T, s Suite) {
	b := s.New(t)
	reqs := families(b)
	base := PlannerConfig(b)
	base.MaxBatch, base.BatchTokens, base.PrefixCache = 16, b.Info().BatchTokens, false
	base.ChunkTokens = base.BatchTokens
	single := base
	single.MaxBatch = 1
	for i := range reqs {
		d := NewDriver(t, b, single)
		d.Add(t, reqs[i])
		for d.Step(t) {
		}
		out, err := d.Output(0)
		if err != nil {
			t.Fatal(err)
		}
		reqs[i].Forced = out
	}
	for _, v := range []struct {
		name string
		set  func(*batch.Config)
		// reached reports whether the run was what it claims to be.
		reached func(d *Driver, n batch.Totals) bool
	}{
		{"one at a time", func(c *batch.Config) { c.Mode = batch.FIFO }, nil},
		{"batch of 16", func(*batch.Config) {}, nil},
		{"static batches of 8", func(c *batch.Config) { c.Mode, c.MaxBatch = batch.Static, 8 }, nil},
		{"chunks of 64", func(c *batch.Config) { c.ChunkTokens = 64 }, nil},
		{"chunks of 128", func(c *batch.Config) { c.ChunkTokens = 128 }, nil},
		{"chunks of 512", func(c *batch.Config) { c.ChunkTokens = 512 }, nil},
		{"prefill first", func(c *batch.Config) { c.Order, c.BatchTokens, c.ChunkTokens = batch.PrefillFirst, 96, 96 }, nil},
		{"contiguous", func(c *batch.Config) { c.Contiguous = true }, nil},
		{"prefix cache", func(c *batch.Config) { c.PrefixCache = true }, hit},
		{"prefix cache, chunks of 64", func(c *batch.Config) { c.PrefixCache, c.ChunkTokens = true, 64 }, hit},
		{"prefix cache of answers, few pages", func(c *batch.Config) { c.PrefixCache, c.CacheOutput, c.KVPages = true, true, 130 }, func(d *Driver, n batch.Totals) bool {
			return hit(d, n) && n.Evictions > 0
		}},
		{"preempted", func(c *batch.Config) { c.Overcommit, c.KVPages = 8, 50 }, preempted},
		{"preempted, prefix cache", func(c *batch.Config) { c.PrefixCache, c.Overcommit, c.KVPages = true, 8, 50 }, func(d *Driver, n batch.Totals) bool {
			return hit(d, n) && preempted(d, n)
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			cfg := base
			v.set(&cfg)
			cfg.MaxBatch = min(cfg.MaxBatch, cfg.BatchTokens)
			d := s.again(t, v.name, b, cfg, reqs)
			n := d.P.Totals()
			t.Logf("%+v", n)
			if v.reached != nil && !v.reached(d, n) {
				t.Errorf("the run was not what it is to be: %+v", n)
			}
		})
	}
	// The deterministic mode: one at a time in an engine without a prefix cache, whatever ran before.
	t.Run("one at a time again", func(t *testing.T) {
		cfg := base
		cfg.Mode = batch.FIFO
		exact := s
		exact.Lead = nil
		again := force(slices.Clone(reqs), forced(reqs))
		slices.Reverse(again)
		exact.again(t, "one at a time again", b, cfg, again)
	})
}

func hit(_ *Driver, n batch.Totals) bool       { return n.CachedTokens > n.PromptTokens/4 }
func preempted(d *Driver, _ batch.Totals) bool { return d.Preempted > 0 }

func forced(reqs []Request) [][]int32 {
	out := make([][]int32, len(reqs))
	for i := range reqs {
		out[i] = reqs[i].Forced
	}
	return out
}

// families returns 24 requests; most share one of four long beginnings, two are longer than any chunk.
func families(b worker.Backend) []Request {
	reqs := make([]Request, 24)
	for i := range reqs {
		head := prompt(b, uint64(100+i%4), 150)
		if i%5 == 4 {
			head = prompt(b, uint64(200+i), 100)
		}
		if i%12 == 11 {
			head = prompt(b, uint64(300+i%4), 600)
		}
		reqs[i] = Request{Prompt: append(head, prompt(b, uint64(400+i), 3+7*i%30)...), MaxNew: 30 + 6*i%50, IgnoreEOS: true}
	}
	return reqs
}
