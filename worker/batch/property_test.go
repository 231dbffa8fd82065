package batch_test

import (
	"testing"

	"github.com/cadence-slo/cadence/worker/batch"
	"pgregory.net/rapid"
)

// Whatever is added, cancelled, stopped and failed, in whatever order: no step breaks a limit, every sequence gets the
// tokens of its own positions in order, ends exactly once, and everything is given back.
func TestAnyHistoryConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqs := rapid.IntRange(1, 8).Draw(t, "sequences")
		maxBatch := rapid.IntRange(1, seqs).Draw(t, "max_batch")
		tokens := maxBatch + rapid.IntRange(0, 20).Draw(t, "spare_tokens")
		cfg := batch.Config{
			PageTokens: rapid.IntRange(1, 8).Draw(t, "page_tokens"), KVPages: rapid.IntRange(4, 40).Draw(t, "kv_pages"),
			Sequences: seqs, MaxBatch: maxBatch, BatchTokens: tokens,
			ChunkTokens: rapid.IntRange(1, tokens).Draw(t, "chunk"), ContextTokens: rapid.IntRange(2, 60).Draw(t, "context"),
		}
		e := newEngine(t, cfg)
		added := map[batch.ID][2]int{}
		next := batch.ID(1)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				prompt, maxNew := rapid.IntRange(1, 40).Draw(t, "prompt"), rapid.IntRange(1, 20).Draw(t, "max_new")
				if err := e.add(next, prompt, maxNew); (err == nil) != (prompt+maxNew <= cfg.Longest()) {
					t.Fatalf("%d + %d tokens: %v", prompt, maxNew, err)
				} else if err == nil {
					added[next] = [2]int{prompt, maxNew}
					if rapid.Bool().Draw(t, "stops") {
						e.stop[next] = rapid.IntRange(0, 20).Draw(t, "stop_at")
					}
					e.fail[next] = rapid.IntRange(0, 9).Draw(t, "fails") == 0
				}
				next++
			},
			"step": func(t *rapid.T) { e.step() },
			"cancel": func(t *rapid.T) {
				e.apply(e.p.Cancel(batch.ID(rapid.IntRange(1, int(next)).Draw(t, "id"))))
			},
			"cancel in flight": func(t *rapid.T) {
				if e.plan() != nil {
					e.apply(e.p.Cancel(batch.ID(rapid.IntRange(1, int(next)).Draw(t, "id"))))
					e.commit()
				}
			},
			"": func(t *rapid.T) { e.check() },
		})
		e.run()
		for id, s := range added {
			outs := e.out[id]
			for i, o := range outs {
				if last := i == len(outs)-1; o.Kind.Ended() != last {
					t.Fatalf("sequence %d: outcome %d of %d is %v", id, i, len(outs), o.Kind)
				}
				switch o.Kind {
				case batch.KindToken, batch.KindStop, batch.KindLength:
					if o.Index != i || o.Token != token(id, s[0]+i) {
						t.Fatalf("sequence %d: token %d is %#x at %d", id, i, o.Token, o.Index)
					}
				}
				if o.Kind == batch.KindLength && i != s[1]-1 {
					t.Fatalf("sequence %d ended at length %d of %d", id, i+1, s[1])
				}
			}
			e.end(id)
		}
		if u := e.p.Usage(); u != (batch.Usage{FreeSequences: cfg.Sequences, FreePages: cfg.KVPages}) {
			t.Fatalf("not empty: %+v", u)
		}
	})
}
