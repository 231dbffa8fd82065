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
// preempted again and again. An exact engine makes the same choices everywhere. What rounding does to others is measured
// first, and bounds what may differ. It needs 17 sequences, 1,024 tokens of context and 12,288 cells.
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
	if s.Logit != nil {
		s.Tie = s.rounding(t, b, base, reqs)
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
	// The deterministic mode: one at a time in an engine without a prefix cache, whatever ran before.
	t.Run("one at a time again", func(t *testing.T) {
		cfg := base
		cfg.Mode = batch.FIFO
		exact := s
		exact.Logit = nil
		again := force(slices.Clone(reqs), forced(reqs))
		slices.Reverse(again)
		exact.again(t, "one at a time again", b, cfg, again)
	})
}

// rounding returns by how much two scores may differ for a tie, as measured where nothing but sizes changes: in plain batches
// of some sizes, and with half of the answers prefilled. Two scores come closer by up to twice what one changes by.
func (s Suite) rounding(t *testing.T, b worker.Backend, base batch.Config, reqs []Request) float32 {
	t.Helper()
	sizes := func(sequences, chunk int) batch.Config {
		cfg := base
		cfg.MaxBatch, cfg.ChunkTokens = sequences, chunk
		return cfg
	}
	resumed := slices.Clone(reqs)
	for i := range resumed {
		r := &resumed[i]
		n := len(r.Forced) / 2
		r.Output, r.Forced, r.logits, r.MaxNew = r.Forced[:n], r.Forced[n:], r.logits[n:], r.MaxNew-n
	}
	noise := float32(leastNoise)
	for _, run := range []struct {
		what string
		cfg  batch.Config
		reqs []Request
	}{
		{"plain batches of 16", base, reqs},
		{"plain batches of 8, chunks of 64", sizes(8, 64), reqs},
		{"plain batches of 5, chunks of 16", sizes(5, 16), reqs},
		{"plain batches of 16, answers in chunks of 16", sizes(16, 16), resumed},
	} {
		_, n := s.measured(t, run.what, b, run.cfg, run.reqs)
		noise = max(noise, n)
	}
	t.Logf("other sizes change scores by up to %.4f: up to %.4f is a tie", noise, 2*noise)
	return 2 * noise
}

// leastNoise is what rounding may do to a score though no choice has shown it.
const leastNoise = 0.02

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

func forced(reqs []Request) [][]int32 {
	out := make([][]int32, len(reqs))
	for i := range reqs {
		out[i] = reqs[i].Forced
	}
	return out
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
