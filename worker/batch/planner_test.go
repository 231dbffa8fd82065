package batch_test

import (
	"errors"
	"math/rand/v2"
	"slices"
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

// sequence is what a backend's cells hold of one: shared cells have equal numbers.
type sequence struct {
	cells  []int
	tokens []int32
}

// engine drives a Planner the way a worker does, and checks what a backend would see.
type engine struct {
	t       tb
	p       *batch.Planner
	now     time.Duration
	seqs    map[batch.SeqID]*sequence
	refs    map[int]int // of cells
	next    int         // cell
	scopes  map[int]string
	owner   map[batch.SeqID]batch.ID
	text    map[batch.ID][]int32 // prompt and generated
	known   map[batch.ID]int     // tokens of text when it was last started
	begun   map[batch.ID]bool
	scope   map[batch.ID]string
	out     map[batch.ID][]batch.Outcome
	fail    map[batch.ID]bool
	wait    map[batch.ID]int // steps in which the backend has no token for it
	stop    map[batch.ID]int // stops with this token index
	last    *batch.Batch
	preempt int
	said    func(format string, args ...any) // hears of moves, if not nil
}

func newEngine(t tb, cfg batch.Config) *engine {
	t.Helper()
	p, err := batch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &engine{t: t, p: p, seqs: map[batch.SeqID]*sequence{}, refs: map[int]int{}, scopes: map[int]string{},
		owner: map[batch.SeqID]batch.ID{}, text: map[batch.ID][]int32{}, known: map[batch.ID]int{}, begun: map[batch.ID]bool{}, scope: map[batch.ID]string{},
		out: map[batch.ID][]batch.Outcome{}, fail: map[batch.ID]bool{}, wait: map[batch.ID]int{}, stop: map[batch.ID]int{}}
}

func (e *engine) add(id batch.ID, prompt, maxNew int) error {
	return e.addSequence(batch.Sequence{ID: id, Prompt: tokens(prompt), MaxNew: maxNew})
}

func (e *engine) addSequence(s batch.Sequence) error {
	err := e.p.Add(s, e.now)
	if err == nil {
		e.text[s.ID], e.scope[s.ID] = append([]int32(nil), s.Prompt...), s.Scope
	}
	return err
}

func tokens(n int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = int32(i)
	}
	return t
}

func (e *engine) seq(id batch.SeqID) *sequence {
	if e.seqs[id] == nil {
		e.seqs[id] = &sequence{}
	}
	return e.seqs[id]
}

func (e *engine) unref(cell int) {
	if e.refs[cell]--; e.refs[cell] == 0 {
		delete(e.refs, cell)
		delete(e.scopes, cell)
	}
}

// move does what a backend would.
func (e *engine) move() {
	e.t.Helper()
	for _, m := range e.p.Moves(nil) {
		dst := e.seq(m.Dst)
		if e.said != nil {
			switch m.Kind {
			case batch.MoveTrim:
				e.said("trim %d:%d", m.Dst, m.Tokens)
			case batch.MoveCopy:
				e.said("copy %d>%d:%d", m.Src, m.Dst, m.Tokens)
			case batch.MoveRebase:
				e.said("rebase %d>%d:%d", m.Src, m.Dst, m.Tokens)
			}
		}
		if m.Kind == batch.MoveTrim {
			for len(dst.cells) > m.Tokens {
				e.unref(dst.cells[len(dst.cells)-1])
				dst.cells = dst.cells[:len(dst.cells)-1]
			}
			dst.tokens = dst.tokens[:len(dst.cells)]
			continue
		}
		src := e.seq(m.Src)
		if len(src.cells) < m.Tokens || m.Kind == batch.MoveCopy && len(dst.cells) > 0 || m.Kind == batch.MoveRebase && len(dst.cells) < m.Tokens {
			e.t.Fatalf("move %+v from %d cells to %d", m, len(src.cells), len(dst.cells))
		}
		for i, cell := range src.cells[:m.Tokens] {
			e.refs[cell]++
			if m.Kind == batch.MoveCopy {
				dst.cells, dst.tokens = append(dst.cells, cell), append(dst.tokens, src.tokens[i])
				continue
			}
			if dst.tokens[i] != src.tokens[i] {
				e.t.Fatalf("move %+v of other tokens", m)
			}
			e.unref(dst.cells[i])
			dst.cells[i] = cell
		}
	}
}

func (e *engine) check() {
	e.t.Helper()
	e.move()
	if err := e.p.Check(); err != nil {
		e.t.Fatal(err)
	}
	c, u := e.p.Config(), e.p.Usage()
	if len(e.refs) > u.UsedPages*c.PageTokens || u.UsedPages > c.KVPages {
		e.t.Fatalf("the backend holds %d cells, the planner says %d pages of %d", len(e.refs), u.UsedPages, c.KVPages)
	}
}

func (e *engine) apply(outs []batch.Outcome) {
	e.t.Helper()
	for _, o := range outs {
		if o.Started < o.Added || o.First != 0 && o.First < o.Started || o.Last < o.First {
			if o.Seq >= 0 && e.begun[o.ID] {
				e.t.Fatalf("sequence %d has impossible times: %+v", o.ID, o)
			}
		}
		e.out[o.ID] = append(e.out[o.ID], o)
		if o.Kind.Ended() && o.Seq >= 0 {
			delete(e.owner, o.Seq)
		}
	}
}

// plan checks the limits of a step and fills the backend's cells.
func (e *engine) plan() *batch.Batch {
	e.t.Helper()
	cfg := e.p.Config()
	b := e.p.Plan(e.now)
	e.move()
	e.last = b
	if b == nil {
		return nil
	}
	e.preempt += len(b.Preempted)
	for _, x := range b.Preempted {
		for seq, id := range e.owner {
			if id == x.ID {
				delete(e.owner, seq)
			}
		}
		if x.Generated != e.generated(x.ID) {
			e.t.Fatalf("%d was preempted after %d tokens, it had %d", x.ID, x.Generated, e.generated(x.ID))
		}
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
			e.owner[x.Seq], e.known[x.ID], e.begun[x.ID] = x.ID, len(e.text[x.ID]), true
		} else if e.owner[x.Seq] != x.ID {
			e.t.Fatalf("sequence id %d belongs to %d, used by %d", x.Seq, e.owner[x.Seq], x.ID)
		}
		e.feed(x)
	}
	if cells := cfg.KVPages * cfg.PageTokens; len(e.refs) > cells {
		e.t.Fatalf("step %d fills %d cells of %d", b.Step, len(e.refs), cells)
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

// feed fills the cells of an entry, unless the backend will say that it has not, and verifies that all of them are this
// sequence's own text, and of its scope.
func (e *engine) feed(x *batch.Entry) {
	e.t.Helper()
	s, text := e.seq(x.Seq), e.text[x.ID]
	if int(x.Pos) != len(s.cells) {
		e.t.Fatalf("sequence %d continues at %d, its cells hold %d", x.ID, x.Pos, len(s.cells))
	}
	if e.wait[x.ID] > 0 && !e.fail[x.ID] {
		return
	}
	for _, token := range x.Tokens {
		e.next++
		e.refs[e.next], e.scopes[e.next] = 1, e.scope[x.ID]
		s.cells, s.tokens = append(s.cells, e.next), append(s.tokens, token)
	}
	if !slices.Equal(s.tokens, text[:len(s.tokens)]) {
		e.t.Fatalf("sequence %d reads %v, its text is %v", x.ID, s.tokens, text)
	}
	for _, cell := range s.cells {
		if e.scopes[cell] != e.scope[x.ID] {
			e.t.Fatalf("sequence %d of scope %q reads a cell of %q", x.ID, e.scope[x.ID], e.scopes[cell])
		}
	}
	if known := e.known[x.ID]; x.Prefill != (int(x.Pos) < known) || x.Prefill && int(x.Pos)+len(x.Tokens) > known {
		e.t.Fatalf("sequence %d feeds %d tokens at %d, knew %d when it started: prefill is %v", x.ID, len(x.Tokens), x.Pos, known, x.Prefill)
	}
	if x.Sample != (len(s.tokens) == len(text)) {
		e.t.Fatalf("sequence %d has %d of %d tokens fed, sample %v", x.ID, len(s.tokens), len(text), x.Sample)
	}
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
		if e.wait[x.ID] > 0 {
			e.wait[x.ID]--
			rows[i].Wait = true
			continue
		}
		if x.Sample {
			rows[i].Token = token(x.ID, int(x.Pos)+len(x.Tokens))
			at, ok := e.stop[x.ID]
			rows[i].Stop = ok && at == e.generated(x.ID)
			e.text[x.ID] = append(e.text[x.ID], rows[i].Token)
		}
	}
	outs := e.p.Commit(rows, e.now)
	e.apply(outs)
	e.last = nil
	e.move()
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

// empty fails unless everything was given back.
func (e *engine) empty() {
	e.t.Helper()
	c := e.p.Config()
	e.p.Flush()
	e.check()
	if u := e.p.Usage(); u != (batch.Usage{FreeSequences: c.Sequences, FreePages: c.KVPages}) {
		e.t.Fatalf("not empty: %+v", u)
	}
	if len(e.refs) != 0 {
		e.t.Fatalf("the backend holds %d cells", len(e.refs))
	}
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
