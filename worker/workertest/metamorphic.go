package workertest

import (
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// Metamorphic runs the same requests in every way that a planner knows, each compared with itself alone in an empty
// engine, under teacher forcing: batch sizes, chunk sizes, orders, paged or contiguous, with and without a prefix cache,
// preempted again and again. It needs 17 sequences, 1,024 tokens of context and 12,288 cells.
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
		if s.Logit != nil {
			d.OnRow = func(_ *batch.Entry, row, _, _ int, token int32) {
				reqs[i].logits = append(reqs[i].logits, s.Logit(b, row, token))
			}
		}
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
		{"prefix cache", func(c *batch.Config) { c.PrefixCache, c.MaxBatch = true, 8 }, hit},
		{"prefix cache, chunks of 64", func(c *batch.Config) { c.PrefixCache, c.MaxBatch, c.ChunkTokens = true, 8, 64 }, hit},
		{"prefix cache of answers, few pages", func(c *batch.Config) { c.PrefixCache, c.CacheOutput, c.KVPages = true, true, 130 }, func(d *Driver, n batch.Totals) bool {
			return hit(d, n) && n.Evictions > 0
		}},
		// Without the two long requests, which leave no room for others to be preempted in.
		{"preempted", preempting(base.ChunkTokens), preempted},
		{"preempted, chunks of 3", preempting(3), preempted},
		{"preempted, chunks of 16", preempting(16), preempted},
		{"preempted, prefix cache", cached(preempting(base.ChunkTokens)), both},
		{"preempted, prefix cache, chunks of 2", cached(preempting(2)), both},
	} {
		t.Run(v.name, func(t *testing.T) {
			cfg := base
			v.set(&cfg)
			cfg.MaxBatch = min(cfg.MaxBatch, cfg.BatchTokens)
			these := reqs
			if cfg.Overcommit > 0 {
				these = reqs[1 : len(reqs)-1]
			}
			d := s.again(t, v.name, b, cfg, these)
			n := d.P.Totals()
			t.Logf("%+v", n)
			if v.reached != nil && !v.reached(d, n) {
				t.Errorf("the run was not what it is to be: %+v", n)
			}
		})
	}
	t.Run("in another order, after all that", func(t *testing.T) {
		again := slices.Clone(reqs)
		slices.Reverse(again)
		s.again(t, "in another order", b, base, again)
	})
}

func hit(_ *Driver, n batch.Totals) bool       { return n.CachedTokens > n.PromptTokens/8 }
func preempted(d *Driver, _ batch.Totals) bool { return d.Preempted >= 4 }
func both(d *Driver, n batch.Totals) bool      { return n.CachedTokens > 0 && preempted(d, n) }

// preempting promises far more pages than there are.
func preempting(chunk int) func(*batch.Config) {
	return func(c *batch.Config) { c.Overcommit, c.KVPages, c.ChunkTokens = 8, 32, chunk }
}

func cached(set func(*batch.Config)) func(*batch.Config) {
	return func(c *batch.Config) {
		set(c)
		c.PrefixCache = true
	}
}

// families returns 16 requests; most share one of four long beginnings, two are longer than any chunk. All are greedy,
// most with penalties that remember what was said; where the backend knows grammars, half may say four letters only, so
// that each choice depends on how often each was said.
func families(b worker.Backend) []Request {
	reqs := make([]Request, 16)
	for i := range reqs {
		head := prompt(b, uint64(100+i%4), 90)
		if i%5 == 4 {
			head = prompt(b, uint64(200+i), 60)
		}
		if i%15 == 0 {
			head = prompt(b, 300, 600)
		}
		reqs[i] = Request{Prompt: append(head, prompt(b, uint64(400+i), 3+7*i%30)...), MaxNew: 30 + 34*i%120, IgnoreEOS: true}
		switch i % 4 {
		case 1, 3:
			reqs[i].Sampling = schema.Sampling{RepetitionPenalty: 1.1, FrequencyPenalty: 2, PresencePenalty: 0.5}
			if b.Info().Grammars {
				reqs[i].Grammar = "root ::= [a-d] root"
			}
		case 2: // says nothing twice for long, so that what is nearly a tie does not come again and again
			reqs[i].Sampling = schema.Sampling{RepetitionPenalty: 1.2, FrequencyPenalty: 0.5}
		}
	}
	return reqs
}
