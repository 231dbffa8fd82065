package batch_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/batch"
)

func TestSequenceRunsToItsLength(t *testing.T) {
	e := newEngine(t, small())
	if err := e.add(1, 13, 3); err != nil {
		t.Fatal(err)
	}
	var chunks []int
	for {
		b := e.plan()
		if b == nil {
			break
		}
		x := b.Entries[0]
		chunks = append(chunks, len(x.Tokens))
		if x.Start != (b.Step == 1) || x.Sample != (b.Step >= 3) {
			t.Fatalf("step %d: start %v, sample %v", b.Step, x.Start, x.Sample)
		}
		e.now += time.Millisecond
		e.commit()
		e.check()
	}
	if want := []int{6, 6, 1, 1, 1}; !equal(chunks, want) {
		t.Fatalf("chunks %v, want %v", chunks, want)
	}
	outs := e.out[1]
	for i, o := range outs {
		if o.Token != token(1, 13+i) || o.Index != i {
			t.Fatalf("token %d is %d at %d", i, o.Token, o.Index)
		}
	}
	o := e.end(1)
	if o.Kind != batch.KindLength || len(outs) != 3 {
		t.Fatalf("ended %+v", o)
	}
	if o.Started != 0 || o.First != 3*time.Millisecond || o.Last != 5*time.Millisecond {
		t.Fatalf("times %v %v %v", o.Started, o.First, o.Last)
	}
}

func TestDecodesRunBesidePrefillInEveryStep(t *testing.T) {
	e := newEngine(t, small())
	for id, prompt := range map[batch.ID]int{1: 2, 2: 20} {
		if err := e.add(id, prompt, 10); err != nil {
			t.Fatal(err)
		}
	}
	e.run()
	if a, b := len(e.out[1]), len(e.out[2]); a != 10 || b != 10 {
		t.Fatalf("generated %d and %d", a, b)
	}
	for i, o := range e.out[1] {
		if got, want := o.Last, e.out[1][0].Last+time.Duration(i)*time.Millisecond; got != want {
			t.Fatalf("token %d came at %v, want %v: a decode waited", i, got, want)
		}
	}
}

func TestAdmissionIsFirstComeFirstServed(t *testing.T) {
	e := newEngine(t, small()) // 16 pages
	for _, s := range []struct {
		id             batch.ID
		prompt, maxNew int
	}{{1, 20, 20}, {2, 20, 20}, {3, 2, 2}} { // 10, 10 and 1 pages: 3 would fit beside 1, but 2 came first
		if err := e.add(s.id, s.prompt, s.maxNew); err != nil {
			t.Fatal(err)
		}
	}
	e.run()
	if a, b := e.end(1).Last, e.out[2][0].Started; b < a {
		t.Fatalf("2 started at %v, before 1 ended at %v", b, a)
	}
	if a, b := e.out[2][0].Started, e.out[3][0].Started; b < a {
		t.Fatalf("3 started at %v, 2 at %v", b, a)
	}
}

func TestStopFailAndCancelFree(t *testing.T) {
	e := newEngine(t, small())
	for id := batch.ID(1); id <= 6; id++ {
		if err := e.add(id, 9, 7); err != nil {
			t.Fatal(err)
		}
	}
	e.stop[1], e.fail[2] = 2, true
	e.step()
	e.apply(e.p.Cancel(3)) // runs
	e.apply(e.p.Cancel(6)) // waits
	if got := e.p.Cancel(99); len(got) != 0 {
		t.Fatalf("unknown id cancelled: %+v", got)
	}
	e.check()
	for b := e.plan(); b != nil; b = e.plan() {
		inFlight := false
		for _, x := range b.Entries {
			inFlight = inFlight || x.ID == 5
		}
		if outs := e.p.Cancel(5); inFlight && len(outs) != 0 {
			t.Fatalf("5 ended in flight: %+v", outs)
		} else {
			e.apply(outs)
		}
		e.commit()
		e.check()
	}
	for id, want := range map[batch.ID]batch.Kind{1: batch.KindStop, 2: batch.KindFailed, 3: batch.KindCancelled,
		4: batch.KindLength, 5: batch.KindCancelled, 6: batch.KindCancelled} {
		if o := e.end(id); o.Kind != want {
			t.Errorf("%d ended with %v, want %v", id, o.Kind, want)
		}
	}
	if n := len(e.out[1]); n != 3 {
		t.Errorf("1 stopped after %d tokens", n)
	}
	if o := e.end(2); !errors.Is(o.Err, errRow) {
		t.Errorf("2 failed with %v", o.Err)
	}
	if o := e.end(6); o.Seq != -1 {
		t.Errorf("6 never ran, had sequence id %d", o.Seq)
	}
	e.empty()
}

// Ten thousand cancels at random moments, of sequences that wait, prefill, decode, were preempted or are in flight, give
// everything back.
func TestCancelsConserve(t *testing.T) {
	cfg := batch.Config{PageTokens: 4, KVPages: 60, Sequences: 12, MaxBatch: 8, BatchTokens: 32, ChunkTokens: 12, ContextTokens: 120,
		PrefixCache: true, CacheOutput: true, Overcommit: 3}
	e := newEngine(t, cfg)
	r := rand.New(rand.NewPCG(5, 6))
	const cancels = 10_000
	cancelled, next := 0, batch.ID(0)
	for cancelled < cancels {
		for range r.IntN(4) {
			if next++; e.p.Usage().Waiting < 20 {
				p := tokens(1 + r.IntN(60))
				for k := 16 * r.IntN(3); k < len(p); k++ {
					p[k] += int32(r.IntN(2)) << 8
				}
				if err := e.addSequence(batch.Sequence{ID: next, Prompt: p, MaxNew: 1 + r.IntN(50)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		inFlight := e.plan() != nil
		for range r.IntN(4) {
			id := next - batch.ID(r.IntN(int(min(next, 60))+1))
			before := len(e.out[id])
			e.apply(e.p.Cancel(id))
			if outs := e.out[id]; len(outs) > before && outs[len(outs)-1].Kind == batch.KindCancelled {
				cancelled++
			}
		}
		if inFlight {
			for _, o := range e.commit() {
				if o.Kind == batch.KindCancelled {
					cancelled++
				}
			}
		}
		e.now++
		if next%64 == 0 {
			e.check()
		}
	}
	e.run()
	n := e.p.Totals()
	t.Logf("%d cancels of %d sequences: %+v", cancelled, next, n)
	if n.Preemptions < 100 || n.Evictions < 100 || n.CachedTokens == 0 {
		t.Errorf("the cancels meet too little: %+v", n)
	}
	e.empty()
}

// Prefixes that running sequences use need no sequence ids of their own: as many run as there are ids.
func TestCachedPrefixesYieldTheirIDs(t *testing.T) {
	cfg := batch.Config{PageTokens: 4, KVPages: 200, Sequences: 6, MaxBatch: 6, BatchTokens: 400, ChunkTokens: 400, ContextTokens: 64, PrefixCache: true, CacheOutput: true}
	e := newEngine(t, cfg)
	prompt := func(i int) []int32 {
		p := tokens(20)
		for k := range p {
			p[k] += int32(i) << 8
		}
		return p
	}
	id := batch.ID(0)
	for round := range 4 {
		for i := range 6 {
			id++
			if err := e.addSequence(batch.Sequence{ID: id, Prompt: prompt(i), MaxNew: 10}); err != nil {
				t.Fatal(err)
			}
		}
		e.step()
		if u := e.p.Usage(); u.Running != 6 || u.Waiting != 0 {
			t.Errorf("round %d: %+v", round, u)
		}
		e.run()
	}
	if n := e.p.Totals(); n.CachedTokens == 0 {
		t.Errorf("the prefixes were not used: %+v", n)
	}
	e.empty()
}

func TestAddRefusesTheImpossible(t *testing.T) {
	e := newEngine(t, small())
	for i, c := range []struct {
		name           string
		prompt, maxNew int
		want           error
	}{
		{"fills all of the cache", 60, 4, nil},
		{"one token more", 60, 5, batch.ErrSequence},
		{"no room for output", 64, 1, batch.ErrSequence},
		{"no prompt", 0, 4, batch.ErrSequence},
		{"no output", 4, 0, batch.ErrSequence},
		{"largest int", 4, int(^uint(0) >> 1), batch.ErrSequence},
	} {
		if err := e.add(batch.ID(100+i), c.prompt, c.maxNew); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := e.add(100, 4, 4); !errors.Is(err, batch.ErrKnown) {
		t.Errorf("known id: %v", err)
	}
	e.run()
	if o := e.end(100); o.Kind != batch.KindLength {
		t.Errorf("the one that fills the cache ended with %v: %v", o.Kind, o.Err)
	}
}

func TestCommitOfForeignRowsFailsTheBatchOnly(t *testing.T) {
	e := newEngine(t, small())
	for id := batch.ID(1); id <= 2; id++ {
		if err := e.add(id, 3, 3); err != nil {
			t.Fatal(err)
		}
	}
	e.plan()
	if err := e.add(3, 3, 3); err != nil {
		t.Fatal(err)
	}
	e.apply(e.p.Commit(make([]batch.Row, 1), e.now))
	e.check()
	for id := batch.ID(1); id <= 2; id++ {
		if o := e.end(id); !errors.Is(o.Err, batch.ErrCommit) {
			t.Errorf("%d: %+v", id, o)
		}
	}
	e.run()
	if o := e.end(3); o.Kind != batch.KindLength {
		t.Errorf("3: %+v", o)
	}
}

func TestConfigNamesTheKey(t *testing.T) {
	cfg := small()
	cfg.BatchTokens = 3
	if _, err := batch.New(cfg); !errors.Is(err, batch.ErrConfig) {
		t.Fatalf("batch smaller than its decodes: %v", err)
	}
	def := batch.DefaultConfig()
	if err := def.Validate(); err != nil {
		t.Fatal(err)
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
