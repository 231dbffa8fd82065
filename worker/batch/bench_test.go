package batch_test

import (
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/batch"
)

// One step of 24 sequences that decode, with a sequence ending and another starting every so often.
//
//	go test -bench PlanCommit24 -benchmem ./worker/batch
func BenchmarkPlanCommit24(b *testing.B) {
	cfg := batch.Config{PageTokens: 16, KVPages: 4096, Sequences: 32, MaxBatch: 24, BatchTokens: 512, ChunkTokens: 256, ContextTokens: 2048}
	p, err := batch.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	prompt := tokens(500)
	rows := make([]batch.Row, 0, cfg.MaxBatch)
	id, known := batch.ID(0), 0
	now := time.Duration(0)
	step := func() {
		for known < cfg.MaxBatch {
			id++
			known++
			if err := p.Add(batch.Sequence{ID: id, Prompt: prompt, MaxNew: 129}, now); err != nil {
				b.Fatal(err)
			}
		}
		plan := p.Plan(now)
		now += time.Millisecond
		rows = rows[:len(plan.Entries)]
		for _, o := range p.Commit(rows, now) {
			if o.Kind.Ended() {
				known--
			}
		}
	}
	for range 2000 { // every buffer at its size
		step()
	}
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
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
