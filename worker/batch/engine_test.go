package batch_test

import (
	"errors"
	"slices"
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
	gave    map[batch.ID]int                 // how often it gave way
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
		out: map[batch.ID][]batch.Outcome{}, fail: map[batch.ID]bool{}, wait: map[batch.ID]int{}, stop: map[batch.ID]int{}, gave: map[batch.ID]int{}}
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
		e.gave[x.ID]++
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
