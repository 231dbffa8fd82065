package batch_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
	"pgregory.net/rapid"
)

// Whatever is added, cancelled, stopped, preempted and failed, in whatever order and under whatever configuration: no
// step breaks a limit, every sequence reads its own text only and gets the tokens of its own positions in order, ends
// exactly once, and everything is given back.
func TestAnyHistoryConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) })
	})
}

// The same on longer histories that are random throughout, and that reach what they are to test.
func TestHistoriesReachEverything(t *testing.T) {
	var hits, evictions, preemptions, copies, rebases int
	const runs = 400
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := history(t, func(name string, lo, hi int) int {
			if in, ok := crowded[name]; ok {
				lo, hi = max(lo, min(in[0], hi)), min(hi, in[1])
			}
			return lo + r.IntN(hi-lo+1)
		})
		for count, reached := range map[*int]bool{&hits: n.CachedTokens > 0, &evictions: n.Evictions > 0, &preemptions: n.Preemptions > 0,
			&copies: n.PageCopies > 0, &rebases: n.RebasedTokens > 0} {
			if reached {
				*count++
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("of %d histories %d hit the cache, %d evicted, %d preempted, %d copied a page, %d rebased", runs, hits, evictions, preemptions, copies, rebases)
	if hits < runs/2 || evictions < runs/3 || preemptions < runs/8 || copies < runs/10 || rebases < runs/10 {
		t.Errorf("the histories reach too little")
	}
}

// crowded keeps to engines in which much happens.
var crowded = map[string][2]int{"operations": {40, 60}, "context": {45, 60}, "sequences": {4, 10}, "max_batch": {3, 10}, "page_tokens": {1, 4},
	"kv_pages": {12, 26}, "chunk": {4, 30}, "spare_tokens": {5, 20}, "mode": {0, 3}, "overcommit": {1, 3}, "fails": {1, 12}}

var onDeadline = []schema.OnDeadline{"", schema.OnDeadlineDemote, schema.OnDeadlineContinue, schema.OnDeadlineCancel}

// dice draws a number in [lo, hi].
type dice func(name string, lo, hi int) int

func (d dice) one(name string, of int) bool { return d(name, 1, of) == of }

func history(t tb, d dice) batch.Totals {
	t.Helper()
	cfg := drawConfig(d)
	e := newEngine(t, cfg)
	late := map[batch.ID]schema.OnDeadline{}
	added, dated := map[batch.ID][2]int{}, false
	next := batch.ID(1)
	for range d("operations", 1, 60) {
		switch d("operation", 0, 9) {
		case 0, 1, 2:
			s := batch.Sequence{ID: next, Prompt: drawPrompt(d), MaxNew: d("max_new", 1, 20), Scope: []string{"a", "a", "a", "b"}[d("scope", 0, 3)],
				Priority: d("priority", 0, 1), Deadline: time.Duration(d("deadline", 0, 4)) * 15 * time.Millisecond,
				FirstDeadline: time.Duration(d("first_deadline", 0, 2)) * 10 * time.Millisecond, OnDeadline: onDeadline[d("late", 0, len(onDeadline)-1)]}
			s.MinNew = d("min_new", 0, 1) * s.MaxNew
			if err := e.addSequence(s); (err == nil) != (len(s.Prompt)+s.MaxNew <= cfg.Longest()) {
				t.Fatalf("%d + %d tokens: %v", len(s.Prompt), s.MaxNew, err)
			} else if err == nil {
				added[next] = [2]int{len(s.Prompt), s.MaxNew}
				late[next] = s.OnDeadline
				dated = dated || s.Deadline > 0 || s.FirstDeadline > 0
				if d.one("stops", 3) && s.MinNew == 0 {
					e.stop[next] = d("stop_at", 0, 20)
				}
				e.fail[next] = d.one("fails", 12)
				e.wait[next] = max(0, d("waits", -8, 2))
			}
			next++
		case 3:
			e.apply(e.p.Cancel(batch.ID(d("id", 1, int(next)))))
		case 4:
			if e.plan() != nil {
				e.apply(e.p.Cancel(batch.ID(d("id", 1, int(next)))))
				e.commit()
			}
		default:
			for range d("steps", 1, 6) {
				e.step()
			}
		}
		e.check()
	}
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
			if o.Kind == batch.KindDeadline && late[id] != schema.OnDeadlineCancel {
				t.Fatalf("sequence %d was ended by its deadline, it is to be %q", id, late[id])
			}
			if o.Kind == batch.KindLength && i != s[1]-1 {
				t.Fatalf("sequence %d ended at length %d of %d", id, i+1, s[1])
			}
		}
		e.end(id)
	}
	n := e.p.Totals()
	if cfg.Overcommit <= 1 && n.Preemptions > 0 && !dated {
		t.Fatalf("%d preemptions though every peak has its pages, and nobody has a deadline", n.Preemptions)
	}
	e.empty()
	return n
}

func drawConfig(d dice) batch.Config {
	seqs := d("sequences", 1, 10)
	maxBatch := d("max_batch", 1, seqs)
	tokens := maxBatch + d("spare_tokens", 0, 20)
	cfg := batch.Config{
		PageTokens: d("page_tokens", 1, 8), KVPages: d("kv_pages", 4, 40),
		Sequences: seqs, MaxBatch: maxBatch, BatchTokens: tokens,
		ChunkTokens: d("chunk", 1, tokens), ContextTokens: d("context", 2, 60),
		Mode:       []batch.Mode{batch.Continuous, batch.Continuous, batch.Continuous, batch.Static, batch.FIFO}[d("mode", 0, 4)],
		Order:      []batch.Order{batch.DecodeFirst, batch.PrefillFirst}[d("order", 0, 1)],
		Contiguous: d.one("contiguous", 6),
		Overcommit: []float64{1, 1, 2, 4}[d("overcommit", 0, 3)],
		ITLTarget:  time.Duration(d("itl_target", 0, 2)) * time.Millisecond,
	}
	if !cfg.Contiguous {
		cfg.PrefixCache = !d.one("no_prefix_cache", 5)
		cfg.CacheOutput = cfg.PrefixCache && d.one("cache_output", 2)
	}
	return cfg
}

// drawPrompt draws from a few families of prompts that share beginnings.
func drawPrompt(d dice) []int32 {
	p := tokens(d("prompt", 1, 40))
	if at := []int{0, 8, 16, 99}[d("branch", 0, 3)]; at < len(p) {
		branch := int32(d("to", 1, 3))
		for i := at; i < len(p); i++ {
			p[i] += branch << 8
		}
	}
	return p
}
