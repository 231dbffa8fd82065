package batch_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/worker/batch"
)

// One step of 24 sequences that decode, with a sequence ending and another starting every so often: paged and contiguous,
// with a prefix cache in which 70 % of the prompts find most of themselves, with one that must evict all the time, and with deadlines that
// three quarters keep.
//
//	go test -bench PlanCommit24 -benchmem ./worker/batch
func BenchmarkPlanCommit24(b *testing.B) {
	for _, c := range []struct {
		name   string
		set    func(*batch.Config)
		budget time.Duration // 0: none
	}{
		{"paged", func(*batch.Config) {}, 0},
		{"contiguous", func(c *batch.Config) { c.Contiguous = true }, 0},
		{"cached", func(c *batch.Config) { c.PrefixCache, c.CacheOutput = true, true }, 0},
		{"cached_full", func(c *batch.Config) { c.PrefixCache, c.CacheOutput, c.KVPages = true, true, 1024 }, 0},
		{"preempting", func(c *batch.Config) { c.PrefixCache, c.KVPages, c.Overcommit = true, 400, 4 }, 0},
		{"deadlines", func(c *batch.Config) { c.PrefixCache = true }, 150 * time.Millisecond},
	} {
		b.Run(c.name, func(b *testing.B) {
			cfg := batch.Config{PageTokens: 16, KVPages: 4096, Sequences: 64, MaxBatch: 24, BatchTokens: 512, ChunkTokens: 256, ContextTokens: 2048}
			c.set(&cfg)
			benchmarkSteps(b, cfg, c.budget)
		})
	}
}

func benchmarkSteps(b *testing.B, cfg batch.Config, budget time.Duration) {
	p, err := batch.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	prompts := make([][]int32, 256)
	for i := range prompts {
		prompts[i] = tokens(540)
		at, to := 500, int32(i)
		if i%10 > 6 {
			at = 0
		}
		for k := at; k < len(prompts[i]); k++ {
			prompts[i][k] += (to + 1) << 12
		}
		for k := range at {
			prompts[i][k] += int32(i%4) << 20
		}
	}
	rows := make([]batch.Row, 0, cfg.MaxBatch)
	moves := make([]batch.Move, 0, 64)
	id, known := batch.ID(0), 0
	now := time.Duration(0)
	token := int32(0)
	step := func() {
		for known < cfg.MaxBatch {
			id++
			known++
			s := batch.Sequence{ID: id, Prompt: prompts[r.IntN(len(prompts))], MaxNew: 100 + r.IntN(60)}
			s.Promise(batch.Promise{Left: deadline.Left{E2E: budget}}, now)
			if err := p.Add(s, now); err != nil {
				b.Fatal(err)
			}
		}
		plan := p.Plan(now)
		moves = p.Moves(moves[:0])
		now += time.Millisecond
		rows = rows[:len(plan.Entries)]
		for i := range rows {
			token++
			rows[i].Token = token
		}
		for _, o := range p.Commit(rows, now) {
			if o.Kind.Ended() {
				known--
			}
		}
		moves = p.Moves(moves[:0])
	}
	for range 5000 { // every buffer at its size
		step()
	}
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	if err := p.Check(); err != nil {
		b.Fatal(err)
	}
	n := p.Totals()
	b.ReportMetric(float64(n.CachedTokens)/float64(n.PromptTokens), "hit_ratio")
	b.ReportMetric(float64(n.Preemptions)/float64(b.N), "preemptions/op")
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	e := newEngine(t, batch.DefaultConfig())
	for id := batch.ID(1); id <= 24; id++ {
		if err := e.add(id, 10, 300); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		e.step()
	}
	rows := make([]batch.Row, 24)
	if n := testing.AllocsPerRun(100, func() {
		if b := e.p.Plan(e.now); len(b.Entries) != len(rows) {
			t.Fatalf("%d entries", len(b.Entries))
		}
		e.p.Commit(rows, e.now)
	}); n != 0 {
		t.Fatalf("%v allocations a step", n)
	}
}
