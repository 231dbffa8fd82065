package batch_test

import (
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
	"pgregory.net/rapid"
)

// On an engine for one sequence at a time, whoever is in time where nobody is demoted is no later where the late are.
func TestDemotionDelaysNobodyWhoIsInTime(t *testing.T) {
	demoted := 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "sequences")
		all := make([]batch.Sequence, n)
		for i := range all {
			all[i] = batch.Sequence{ID: batch.ID(i + 1), Prompt: tokens(rapid.IntRange(1, 20).Draw(t, "prompt")), MaxNew: rapid.IntRange(1, 12).Draw(t, "max_new"),
				Deadline: time.Duration(rapid.IntRange(0, 100).Draw(t, "deadline")) * time.Millisecond}
		}
		cfg := batch.Config{PageTokens: 4, KVPages: 32, Sequences: 2, MaxBatch: 1, BatchTokens: 8, ChunkTokens: 8, ContextTokens: 64,
			Speed: deadline.Speed{Step: time.Millisecond}}
		ends := func(late schema.OnDeadline) []time.Duration {
			e := newEngine(t, cfg)
			for _, s := range all {
				s.OnDeadline = late
				if err := e.addSequence(s); err != nil {
					t.Fatal(err)
				}
			}
			e.run()
			at := make([]time.Duration, n)
			for i := range at {
				o := e.end(batch.ID(i + 1))
				if o.Kind != batch.KindLength {
					t.Fatalf("%+v", o)
				}
				at[i] = o.Last
			}
			e.empty()
			return at
		}
		plain, demote := ends(schema.OnDeadlineContinue), ends("")
		for i := range all {
			if d := all[i].Deadline; d > 0 && plain[i] <= d && demote[i] > plain[i] {
				t.Fatalf("sequence %d is done at %v, at %v without demotion; its deadline is %v", i+1, demote[i], plain[i], d)
			}
			if demote[i] > plain[i] {
				demoted++
			}
		}
	})
	if demoted < 20 {
		t.Errorf("%d were demoted: too few to tell", demoted)
	}
}

// Whoever ends by its deadline leaves nothing behind, wherever it is: waiting, prefilling, decoding, preempted.
func TestDeadlinesGiveEverythingBack(t *testing.T) {
	cfg := batch.Config{PageTokens: 4, KVPages: 24, Sequences: 8, MaxBatch: 4, BatchTokens: 12, ChunkTokens: 5, ContextTokens: 64, PrefixCache: true,
		CacheOutput: true, Overcommit: 2, Speed: deadline.Speed{Step: time.Millisecond}}
	e := newEngine(t, cfg)
	const n = 300
	for id := batch.ID(1); id <= n; id++ {
		s := batch.Sequence{ID: id, Prompt: tokens(int(1 + id*7%30)), MaxNew: int(1 + id*5%20), Deadline: e.now + time.Duration(1+id*13%60)*time.Millisecond,
			OnDeadline: schema.OnDeadlineCancel}
		if err := e.addSequence(s); err != nil {
			t.Fatal(err)
		}
		if id%3 == 0 {
			e.step()
		}
	}
	e.run()
	waiting, running := 0, 0
	for id := batch.ID(1); id <= n; id++ {
		o := e.end(id)
		switch {
		case o.Kind == batch.KindDeadline && o.Seq < 0:
			waiting++
		case o.Kind == batch.KindDeadline:
			running++
		case o.Kind != batch.KindLength:
			t.Fatalf("%+v", o)
		}
	}
	if waiting < 20 || running < 20 || waiting+running > n-20 {
		t.Errorf("%d ended while they waited and %d while they ran of %d", waiting, running, n)
	}
	e.empty()
}

// A victim goes on before it has given way for ever, though one promised sequence after the other comes.
func TestNobodyGivesWayForEver(t *testing.T) {
	cfg := batch.Config{PageTokens: 4, KVPages: 32, Sequences: 4, MaxBatch: 1, BatchTokens: 16, ChunkTokens: 16, ContextTokens: 64, MaxPreemptions: 2,
		Speed: deadline.Speed{Step: time.Millisecond}}
	e := newEngine(t, cfg)
	if err := e.add(1, 4, 12); err != nil {
		t.Fatal(err)
	}
	promised := func(id batch.ID) {
		s := batch.Sequence{ID: id, Prompt: tokens(4), MaxNew: 2, Priority: 1, Deadline: e.now + 3*time.Millisecond}
		if err := e.addSequence(s); err != nil {
			t.Fatal(err)
		}
	}
	for id := batch.ID(2); id < 20; id++ {
		e.step()
		if u := e.p.Usage(); u.Waiting == 0 {
			promised(id)
		}
	}
	e.run()
	if e.gave[1] != 2 {
		t.Errorf("it gave way %d times, want 2", e.gave[1])
	}
	e.empty()
}

// The planner learns how fast its engine is, and then no longer goes by what it was told.
func TestSpeedIsLearned(t *testing.T) {
	var m batch.StepModel
	if got := m.Speed(); got != (deadline.Speed{}) {
		t.Errorf("%+v before the first step", got)
	}
	for i := range 200 {
		prefill, decodes := 0, 1+i%8
		if i%3 == 0 {
			prefill = 16 + i%64
		}
		m.Observe(decodes, prefill, 100*decodes+prefill, 10*time.Millisecond+time.Duration(decodes)*time.Millisecond+time.Duration(prefill)*100*time.Microsecond)
	}
	got := m.Speed()
	if got.Step > 11*time.Millisecond || got.Step < 9*time.Millisecond || got.PrefillToken > 101*time.Microsecond || got.PrefillToken < 95*time.Microsecond {
		t.Errorf("%+v, want 10.1 to 11 ms and 0.1 ms a token", got)
	}
}
