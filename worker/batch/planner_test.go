package batch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/batch"
)

var errRow = errors.New("row")

// tb is what testing.TB and rapid.T have in common.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// engine drives a Planner the way a worker does, and checks what a backend would see.
type engine struct {
	t     tb
	p     *batch.Planner
	now   time.Duration
	cells map[batch.SeqID]int // tokens in each sequence's cells
	owner map[batch.SeqID]batch.ID
	out   map[batch.ID][]batch.Outcome
	fail  map[batch.ID]bool
	stop  map[batch.ID]int // stops with this token index
	last  *batch.Batch
}

func newEngine(t tb, cfg batch.Config) *engine {
	t.Helper()
	p, err := batch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &engine{t: t, p: p, cells: map[batch.SeqID]int{}, owner: map[batch.SeqID]batch.ID{},
		out: map[batch.ID][]batch.Outcome{}, fail: map[batch.ID]bool{}, stop: map[batch.ID]int{}}
}

func (e *engine) add(id batch.ID, prompt, maxNew int) error {
	return e.p.Add(batch.Sequence{ID: id, Prompt: tokens(prompt), MaxNew: maxNew}, e.now)
}

func tokens(n int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = int32(i)
	}
	return t
}

func (e *engine) check() {
	e.t.Helper()
	if err := e.p.Check(); err != nil {
		e.t.Fatal(err)
	}
	pages := 0
	for _, n := range e.cells {
		c := e.p.Config()
		pages += c.Pages(n)
	}
	if c := e.p.Config(); pages > c.KVPages {
		e.t.Fatalf("the backend holds %d pages of %d", pages, c.KVPages)
	}
	if u := e.p.Usage(); u.UsedPages != pages {
		e.t.Fatalf("used pages %d, the backend holds %d", u.UsedPages, pages)
	}
}

func (e *engine) apply(outs []batch.Outcome) {
	e.t.Helper()
	for _, o := range outs {
		e.out[o.ID] = append(e.out[o.ID], o)
		if o.Kind.Ended() && o.Seq >= 0 {
			delete(e.cells, o.Seq)
			delete(e.owner, o.Seq)
		}
	}
}

// plan checks the limits of a step and fills the backend's cells.
func (e *engine) plan() *batch.Batch {
	e.t.Helper()
	cfg := e.p.Config()
	b := e.p.Plan(e.now)
	e.last = b
	if b == nil {
		return nil
	}
	n, seen := 0, map[batch.SeqID]bool{}
	for i := range b.Entries {
		x := &b.Entries[i]
		n += len(x.Tokens)
		if seen[x.Seq] {
			e.t.Fatalf("step %d has sequence id %d twice", b.Step, x.Seq)
		}
		seen[x.Seq] = true
		if len(x.Tokens) > cfg.ChunkTokens {
			e.t.Fatalf("chunk of %d tokens", len(x.Tokens))
		}
		if x.Start {
			if at, ok := e.owner[x.Seq]; ok {
				e.t.Fatalf("sequence id %d given to %d while %d holds it", x.Seq, x.ID, at)
			}
			e.owner[x.Seq] = x.ID
		} else if e.owner[x.Seq] != x.ID {
			e.t.Fatalf("sequence id %d belongs to %d, used by %d", x.Seq, e.owner[x.Seq], x.ID)
		}
		if int(x.Pos) != e.cells[x.Seq] {
			e.t.Fatalf("sequence %d continues at %d, its cells hold %d", x.ID, x.Pos, e.cells[x.Seq])
		}
		e.cells[x.Seq] += len(x.Tokens)
	}
	if n > cfg.BatchTokens || len(b.Entries) > cfg.MaxBatch {
		e.t.Fatalf("step %d has %d tokens in %d entries", b.Step, n, len(b.Entries))
	}
	if whole := b.Slice(0, len(b.Entries)); whole.PrefillTokens != b.PrefillTokens || whole.Decodes != b.Decodes || whole.ContextTokens != b.ContextTokens {
		e.t.Fatalf("step %d sums to %+v, its entries to %+v", b.Step, b, whole)
	}
	if n != b.PrefillTokens+b.Decodes {
		e.t.Fatalf("step %d has %d tokens, says %d + %d", b.Step, n, b.PrefillTokens, b.Decodes)
	}
	return b
}

func (e *engine) commit() []batch.Outcome {
	e.t.Helper()
	rows := make([]batch.Row, len(e.last.Entries))
	for i := range e.last.Entries {
		x := &e.last.Entries[i]
		if e.fail[x.ID] {
			rows[i].Err = errRow
			continue
		}
		if x.Sample {
			rows[i].Token = token(x.ID, int(x.Pos)+len(x.Tokens))
			at, ok := e.stop[x.ID]
			rows[i].Stop = ok && at == e.generated(x.ID)
		}
	}
	outs := e.p.Commit(rows, e.now)
	e.apply(outs)
	e.last = nil
	return outs
}

func (e *engine) generated(id batch.ID) int { return len(e.out[id]) }

// token is what the test's model says: it names its sequence and position.
func token(id batch.ID, pos int) int32 { return int32(id)<<16 | int32(pos) }

// step runs one step, and reports whether there was one.
func (e *engine) step() bool {
	e.t.Helper()
	if e.plan() == nil {
		return false
	}
	e.now += time.Millisecond
	e.commit()
	e.check()
	return true
}

func (e *engine) run() {
	e.t.Helper()
	for n := 0; e.step(); n++ {
		if n > 1_000_000 {
			e.t.Fatal("does not end")
		}
	}
}

func (e *engine) end(id batch.ID) batch.Outcome {
	e.t.Helper()
	outs := e.out[id]
	if len(outs) == 0 || !outs[len(outs)-1].Kind.Ended() {
		e.t.Fatalf("sequence %d has not ended: %+v", id, outs)
	}
	return outs[len(outs)-1]
}

func small() batch.Config {
	return batch.Config{PageTokens: 4, KVPages: 16, Sequences: 4, MaxBatch: 4, BatchTokens: 8, ChunkTokens: 6, ContextTokens: 64}
}

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
	if u := e.p.Usage(); u != (batch.Usage{FreeSequences: 4, FreePages: 16}) {
		t.Errorf("not empty: %+v", u)
	}
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
