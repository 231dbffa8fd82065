package batch_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/batch"
)

// cost is an engine's true step time.
func cost(decodes, prefill, context int) time.Duration {
	return 5*time.Millisecond + time.Duration(decodes)*300*time.Microsecond + time.Duration(prefill)*200*time.Microsecond + time.Duration(context)*time.Microsecond
}

func TestStepModelLearnsAndFollows(t *testing.T) {
	var m batch.StepModel
	if m.Predict(4, 100, 1000) != 0 || m.Chunk(time.Millisecond, 1000) < 1<<20 {
		t.Error("a model that has seen nothing tells something")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, slower := range []float64{1, 2, 0.7} {
		for range 2000 {
			d, p, c := r.IntN(17), r.IntN(3)*r.IntN(257), r.IntN(9000)
			noise := 0.95 + 0.1*r.Float64()
			m.Observe(d, p, c, time.Duration(slower*noise*float64(cost(d, p, c))))
		}
		for _, x := range [][3]int{{0, 256, 512}, {16, 0, 8000}, {8, 128, 4000}, {1, 0, 100}} {
			want := slower * float64(cost(x[0], x[1], x[2]))
			if got := float64(m.Predict(x[0], x[1], x[2])); got < 0.95*want || got > 1.05*want {
				t.Errorf("%g times slower: a step of %v is predicted at %v, takes %v", slower, x, time.Duration(got), time.Duration(want))
			}
		}
	}
	n := m.Chunk(30*time.Millisecond-m.Predict(8, 0, 4000), 6000)
	if took := 0.7 * float64(cost(8, n, 10_000+n)); n < 10 || took < 28e6 || took > 32e6 {
		t.Errorf("%d tokens beside 8 sequences take %v", n, time.Duration(took))
	}
	if n := m.Chunk(-time.Millisecond, 100); n != 0 {
		t.Errorf("no time is left, %d tokens", n)
	}
}

// A model that sees the same step for ever keeps its senses when something else comes.
func TestStepModelSurvivesMonotony(t *testing.T) {
	var m batch.StepModel
	for range 100_000 {
		m.Observe(8, 0, 1000, cost(8, 0, 1000))
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		d, p, c := r.IntN(17), r.IntN(257), r.IntN(9000)
		m.Observe(d, p, c, cost(d, p, c))
	}
	want := cost(8, 128, 4000)
	if got := m.Predict(8, 128, 4000); got < want*95/100 || got > want*105/100 {
		t.Errorf("predicted %v, takes %v", got, want)
	}
}

// With a target, chunks shrink until a step in which sequences decode takes no longer; alone, a prefill goes at full
// speed.
func TestChunksKeepTheTarget(t *testing.T) {
	t.Run("short prompts", func(t *testing.T) { chunksKeepTheTarget(t, 900, 20, cost) })
	t.Run("long prompts, dear context", func(t *testing.T) {
		chunksKeepTheTarget(t, 6000, 60, func(decodes, prefill, context int) time.Duration {
			return cost(decodes, prefill, context) + time.Duration(context)*500*time.Nanosecond
		})
	})
}

func chunksKeepTheTarget(t *testing.T, prompt, every int, cost func(decodes, prefill, context int) time.Duration) {
	const target = 40 * time.Millisecond
	cfg := batch.Config{PageTokens: 16, KVPages: 8192, Sequences: 32, MaxBatch: 16, BatchTokens: 512, ChunkTokens: 512, ContextTokens: 8192, ITLTarget: target}
	p, err := batch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	id := batch.ID(0)
	var now time.Duration
	long, mixed, chunks := 0, 0, 0
	for step := range 3000 {
		if u := p.Usage(); step%every == 0 && u.Running+u.Waiting < 5 {
			id++
			if err := p.Add(batch.Sequence{ID: id, Prompt: tokens(prompt), MaxNew: 100}, now); err != nil {
				t.Fatal(err)
			}
		}
		b := p.Plan(now)
		if b == nil {
			now += time.Millisecond
			continue
		}
		took := cost(b.Decodes, b.PrefillTokens, b.ContextTokens)
		if step == 0 && b.PrefillTokens != 512 {
			t.Errorf("%d tokens of prefill while nobody decodes", b.PrefillTokens)
		}
		if step > 200 && b.Decodes > 0 && b.PrefillTokens > 0 {
			mixed++
			chunks += b.PrefillTokens
			if took > target*11/10 && b.PrefillTokens > cfg.PageTokens {
				long++
			}
		}
		now += took
		p.Commit(make([]batch.Row, len(b.Entries)), now)
		p.Moves(nil)
	}
	t.Logf("%d mixed steps, %d tokens of prefill on average, %d too long", mixed, chunks/max(1, mixed), long)
	if mixed < 100 || long > mixed/50 || chunks/mixed < 30 {
		t.Errorf("%d of %d mixed steps took too long, with %d tokens of prefill on average", long, mixed, chunks/max(1, mixed))
	}
}
