package radixtest_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/kv/kvtest"
	"github.com/cadence-slo/cadence/worker/radix"
	"github.com/cadence-slo/cadence/worker/radix/radixtest"
)

// world is one allocator and one cache; there are a fast and a naive one.
type world struct {
	kv    kv.Allocator
	cache radix.Cache
}

// sequence is a running one; what stands in pairs belongs to the fast and the naive world.
type sequence struct {
	seq      kv.SeqID
	scope    string
	tokens   []int32 // that the table holds
	tables   [2]kv.Table
	refs     [2][]radix.Ref
	pinned   int // tokens of its path that must stay cached
	inserted [2]radix.Ref
}

// driver turns bytes into operations of an engine, and does each in both worlds.
type driver struct {
	t        *testing.T
	input    []byte
	size     int // tokens of a page
	seqs     int
	worlds   [2]world
	held     func() []kv.PageID // of the naive allocator
	running  []*sequence
	prompts  [][]int32 // seen before
	matches  [2][]radix.Match
	ops      int
	reached  map[string]bool
	lastWhat string
}

// What a sequence of operations can reach.
const (
	prefixHit   = "prefix hit"
	copyOnWrite = "copy-on-write"
	eviction    = "eviction"
	edgeSplit   = "edge split"
	exhaustion  = "exhaustion"
	pinBlocked  = "pin-blocked eviction"
)

// next returns a number in [0, n) from the input; 0 at its end.
func (d *driver) next(n int) int {
	if len(d.input) == 0 {
		return 0
	}
	b := d.input[0]
	d.input = d.input[1:]
	return int(b) % n
}

// drive does what the input says, at most maxOps operations, and returns what was reached.
func drive(t *testing.T, input []byte) *driver {
	const maxOps = 300
	d := &driver{t: t, input: input, reached: map[string]bool{}}
	d.size = []int{4, 1, 2, 3, 16, 17}[d.next(6)]
	pages := 8 + d.next(24)
	d.seqs = 4 + d.next(8)
	fast, err := kv.NewPaged(d.size, pages)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := radix.New(d.size)
	if err != nil {
		t.Fatal(err)
	}
	naive := kvtest.NewPaged(d.size, pages)
	d.held = naive.Held
	d.worlds = [2]world{{fast, tree}, {naive, radixtest.New(d.size)}}
	for ; len(d.input) > 0 && d.ops < maxOps; d.ops++ {
		switch op := d.next(32); {
		case op < 9:
			d.admit()
		case op < 16:
			d.grow(d.pick())
		case op < 20:
			d.insert(d.pick())
		case op < 23:
			d.end(d.pick(), true)
		case op < 24:
			d.end(d.pick(), false)
		case op < 27:
			d.fork(d.pick())
		case op < 28:
			d.evict()
		case op < 29:
			d.fail(d.pick())
		case op < 30:
			d.pinOld()
		case op < 31:
			d.adopt(d.pick())
		default:
			d.misuse()
		}
		d.compare()
	}
	for len(d.running) > 0 {
		d.end(d.running[0], d.next(2) == 0)
		d.compare()
	}
	reached := maps.Clone(d.reached) // what follows would evict in every sequence
	for d.evict() {
		d.compare()
	}
	d.reached = reached
	if s := fast.Stats(); s.Used != 0 {
		t.Fatalf("%d pages are used when all has ended", s.Used)
	}
	return d
}

// pick chooses a running sequence; nil if there is none.
func (d *driver) pick() *sequence {
	if len(d.running) == 0 {
		return nil
	}
	return d.running[d.next(len(d.running))]
}

// kind reduces an error to its sentinel.
func kind(err error) error {
	for _, s := range []error{kv.ErrNoPages, kv.ErrTable, kv.ErrPages, radix.ErrTokens, radix.ErrPages, radix.ErrOwner, radix.ErrStale, radix.ErrRef} {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

// both does one call in both worlds, and fails unless both give the same.
func both[R any](d *driver, what string, call func(w world, i int) R) R {
	d.t.Helper()
	d.lastWhat = what
	a, b := call(d.worlds[0], 0), call(d.worlds[1], 1)
	if !reflect.DeepEqual(a, b) {
		d.t.Fatalf("operation %d, %s: fast %+v, naive %+v", d.ops, what, a, b)
	}
	return a
}

// try is both for calls that return only an error.
func (d *driver) try(what string, call func(w world, i int) error) error {
	d.t.Helper()
	return both(d, what, func(w world, i int) error { return kind(call(w, i)) })
}

// must is try for calls that have to work.
func (d *driver) must(what string, call func(w world, i int) error) {
	d.t.Helper()
	if err := d.try(what, call); err != nil {
		d.t.Fatalf("operation %d, %s: %v", d.ops, what, err)
	}
}

// match looks tokens up.
func (d *driver) match(scope string, tokens []int32) (ms [2]radix.Match) {
	both(d, "match", func(w world, i int) radix.Match {
		before := w.cache.Peek(scope, tokens)
		m := w.cache.Match(scope, tokens, nil)
		if before != m.Tokens {
			d.t.Errorf("operation %d, world %d: peeked at %d tokens, found %d", d.ops, i, before, m.Tokens)
		}
		ms[i] = m
		m.At = 0
		m.Pages = append([]kv.PageID{}, m.Pages...)
		return m
	})
	d.matches = [2][]radix.Match{append(d.matches[0], ms[0]), append(d.matches[1], ms[1])}
	return ms
}

// freeSeq returns an id that neither runs nor owns a leaf, evicting for one if need be; -1 if there is none.
func (d *driver) freeSeq() kv.SeqID {
	for {
		for id := range kv.SeqID(d.seqs) {
			_, owns := d.worlds[0].cache.Owned(id)
			if !owns && !slices.ContainsFunc(d.running, func(s *sequence) bool { return s.seq == id }) {
				return id
			}
		}
		if !d.evict() {
			return -1
		}
	}
}

// prompt returns tokens of which some begin like earlier ones.
func (d *driver) prompt() []int32 {
	var out []int32
	if len(d.prompts) > 0 && d.next(4) > 0 {
		old := d.prompts[d.next(len(d.prompts))]
		out = append(out, old[:min(len(old), d.next(8)*d.size+d.next(2)*d.next(d.size))]...)
	}
	for range 1 + d.next(3*d.size) + d.size*d.next(4) {
		out = append(out, int32(d.next(2)))
	}
	d.prompts = append(d.prompts, out)
	return out
}

// room evicts until table has pages for tokens, and reports whether it has.
func (d *driver) room(what string, tables *[2]kv.Table, tokens int) bool {
	for {
		both(d, "need", func(w world, i int) int { return w.kv.Need(&tables[i], tokens) })
		copies := d.worlds[0].kv.Stats().Copies
		err := d.try(what, func(w world, i int) error { return w.kv.Reserve(&tables[i], tokens) })
		if d.worlds[0].kv.Stats().Copies > copies {
			d.reached[copyOnWrite] = true
		}
		if err == nil {
			return true
		}
		d.reached[exhaustion] = true
		d.compare()
		if !d.evict() {
			return false
		}
	}
}

// admit starts a sequence: match, pin, share, reserve.
func (d *driver) admit() {
	seq := d.freeSeq()
	if seq < 0 {
		return
	}
	s := &sequence{seq: seq, scope: []string{"", "", "", "tenant"}[d.next(4)]}
	prompt := d.prompt()
	ms := d.match(s.scope, prompt)
	use := min(ms[0].Tokens, (len(prompt)-1)/d.size*d.size)
	if !d.pin(s, ms, use) {
		return
	}
	d.must("share", func(w world, i int) error {
		return w.kv.Share(&s.tables[i], ms[i].Pages[:use/d.size], use)
	})
	if use > 0 {
		d.reached[prefixHit] = true
	}
	if !d.room("admit", &s.tables, len(prompt)) {
		d.release(s)
		return
	}
	d.must("fill", func(w world, i int) error { return w.kv.Fill(&s.tables[i], len(prompt)) })
	s.tokens = prompt
	d.running = append(d.running, s)
}

// pin protects tokens of a match for s.
func (d *driver) pin(s *sequence, ms [2]radix.Match, tokens int) bool {
	splits := d.worlds[0].cache.Stats().Splits
	err := d.try("pin", func(w world, i int) error {
		ref, err := w.cache.Pin(ms[i], tokens)
		if err == nil {
			s.refs[i] = append(s.refs[i], ref)
		}
		return err
	})
	if d.worlds[0].cache.Stats().Splits > splits {
		d.reached[edgeSplit] = true
	}
	if err == nil {
		s.pinned = max(s.pinned, tokens)
	}
	return err == nil
}

// release unpins and releases all of a sequence.
func (d *driver) release(s *sequence) {
	for k := range s.refs[0] {
		d.must("unpin", func(w world, i int) error { return w.cache.Unpin(s.refs[i][k]) })
	}
	_ = both(d, "release", func(w world, i int) error { w.kv.Release(&s.tables[i]); return nil })
}

// grow adds some generated tokens; without room, the sequence is preempted.
func (d *driver) grow(s *sequence) {
	if s == nil {
		return
	}
	n := 1 + d.next(2*d.size)
	if !d.room("grow", &s.tables, len(s.tokens)+n) {
		d.end(s, false)
		return
	}
	for range n {
		s.tokens = append(slices.Clip(s.tokens), int32(d.next(2)))
	}
	d.must("fill", func(w world, i int) error { return w.kv.Fill(&s.tables[i], len(s.tokens)) })
}

// insert caches the full pages of a sequence.
func (d *driver) insert(s *sequence) {
	if s == nil {
		return
	}
	full := len(s.tokens) / d.size * d.size
	ms := d.match(s.scope, s.tokens[:full])
	d.must("replace", func(w world, i int) error { return w.kv.Replace(&s.tables[i], ms[i].Pages) })
	splits := d.worlds[0].cache.Stats().Splits
	var done [2]radix.Inserted
	err := d.try("insert", func(w world, i int) error {
		in, err := w.cache.Insert(s.scope, s.tokens[:full], s.tables[i].Pages()[:full/d.size], s.seq)
		done[i] = in
		return err
	})
	if d.worlds[0].cache.Stats().Splits > splits {
		d.reached[edgeSplit] = true
	}
	if errors.Is(err, radix.ErrOwner) { // a fork left the path that its own id holds
		return
	} else if err != nil {
		d.t.Fatalf("operation %d, insert: %v", d.ops, err)
	}
	both(d, "inserted", func(_ world, i int) radix.Inserted {
		in := done[i]
		in.Ref = 0
		in.Fresh = append([]kv.PageID{}, in.Fresh...)
		return in
	})
	d.must("hold", func(w world, i int) error { return w.kv.Hold(done[i].Fresh) })
	for i := range s.refs {
		s.refs[i] = append(s.refs[i], done[i].Ref)
		s.inserted[i] = done[i].Ref
	}
	s.pinned = max(s.pinned, full)
}

// adopt makes a sequence the owner of what it pins, if that may be.
func (d *driver) adopt(s *sequence) {
	if s == nil || len(s.refs[0]) == 0 {
		return
	}
	k := d.next(len(s.refs[0]))
	type adopted struct {
		former kv.SeqID
		ok     bool
	}
	both(d, "adopt", func(w world, i int) adopted {
		former, ok := w.cache.Adopt(s.refs[i][k], s.seq)
		return adopted{former, ok}
	})
}

// end ends a sequence, after having cached it if it is to be.
func (d *driver) end(s *sequence, cache bool) {
	if s == nil {
		return
	}
	if cache {
		d.insert(s)
	}
	d.running = slices.DeleteFunc(d.running, func(o *sequence) bool { return o == s })
	d.release(s)
}

// fork starts a second sequence that shares all pages of s, the last one written in part included.
func (d *driver) fork(s *sequence) {
	if s == nil || len(s.tokens) == 0 {
		return
	}
	seq := d.freeSeq()
	if seq < 0 {
		return
	}
	f := &sequence{seq: seq, scope: s.scope, tokens: slices.Clip(s.tokens)}
	if ms := d.match(s.scope, s.tokens); !d.pin(f, ms, min(ms[0].Tokens, s.pinned)) {
		return
	}
	d.must("fork", func(w world, i int) error { return w.kv.Fork(&f.tables[i], &s.tables[i]) })
	d.running = append(d.running, f)
	d.compare()
	d.grow([]*sequence{s, f}[d.next(2)])
}

// evict takes one leaf out, and reports whether there was one.
func (d *driver) evict() bool {
	pages := d.worlds[0].cache.Stats().Pages
	var out [2]radix.Evicted
	ok := both(d, "evict", func(w world, i int) bool {
		e, ok := w.cache.Evict()
		out[i] = e
		return ok
	})
	if !ok {
		if pages > 0 {
			d.reached[pinBlocked] = true
		}
		return false
	}
	d.reached[eviction] = true
	d.evicted(out)
	return true
}

// evicted compares what was taken out, and drops its pages.
func (d *driver) evicted(out [2]radix.Evicted) {
	both(d, "evicted", func(_ world, i int) radix.Evicted {
		e := out[i]
		e.Pages = append([]kv.PageID{}, e.Pages...)
		return e
	})
	d.must("drop", func(w world, i int) error { return w.kv.Drop(out[i].Pages) })
}

// fail ends a sequence that inserted something, and takes that out again.
func (d *driver) fail(s *sequence) {
	if s == nil || s.inserted[0] == 0 {
		return
	}
	var out [2]radix.Evicted
	ok := both(d, "remove", func(w world, i int) bool {
		e, ok, err := w.cache.Remove(s.inserted[i])
		if err != nil {
			d.t.Fatal(err)
		}
		out[i] = e
		return ok
	})
	for i := range s.refs {
		k := slices.Index(s.refs[i], s.inserted[i])
		s.refs[i] = slices.Delete(s.refs[i], k, k+1)
	}
	s.pinned = 0
	if ok {
		d.evicted(out)
	}
	d.end(s, false)
}

// pinOld pins a match of earlier, which may be out of date, for a moment.
func (d *driver) pinOld() {
	if len(d.matches[0]) == 0 {
		return
	}
	k := d.next(len(d.matches[0]))
	tokens := d.next(d.matches[0][k].Tokens+2) / d.size * d.size
	var s sequence
	if d.pin(&s, [2]radix.Match{d.matches[0][k], d.matches[1][k]}, tokens) {
		d.compare()
		d.release(&s)
	}
}

// misuse makes calls that must be refused, alike and without effect.
func (d *driver) misuse() {
	tokens := make([]int32, d.size*(1+d.next(3)))
	for i := range tokens {
		tokens[i] = int32(d.next(2))
	}
	pages := []kv.PageID{}
	for range len(tokens)/d.size + d.next(2)*d.next(2) {
		pages = append(pages, kv.PageID(d.next(8))-1)
	}
	if s := d.pick(); s != nil && d.next(2) == 0 {
		switch d.next(5) {
		case 0:
			_ = d.try("share with a full table", func(w world, i int) error { return w.kv.Share(&s.tables[i], pages, len(tokens)) })
		case 1:
			_ = d.try("fill too much", func(w world, i int) error { return w.kv.Fill(&s.tables[i], len(s.tokens)+1+100*d.size) })
		case 2:
			_ = d.try("fill too little", func(w world, i int) error { return w.kv.Fill(&s.tables[i], len(s.tokens)-1) })
		case 3:
			_ = d.try("reserve too much", func(w world, i int) error { return w.kv.Reserve(&s.tables[i], 100*d.size) })
		default:
			_ = d.try("fork into itself", func(w world, i int) error { return w.kv.Fork(&s.tables[i], &s.tables[i]) })
		}
		return
	}
	if d.next(2) == 0 {
		_ = d.try("unpin nothing", func(w world, i int) error { return w.cache.Unpin(1 << 60) })
		_ = d.try("pin too much", func(w world, i int) error { _, err := w.cache.Pin(radix.Match{}, d.size); return err })
		return
	}
	// Any pages: most do not fit. What does fit goes out again.
	var done [2]radix.Inserted
	if d.try("insert anything", func(w world, i int) error {
		in, err := w.cache.Insert("", tokens, pages, kv.SeqID(d.seqs))
		done[i] = in
		return err
	}) != nil {
		return
	}
	both(d, "remove anything", func(w world, i int) string {
		if !done[i].Owner { // it was cached already
			return fmt.Sprint(w.cache.Unpin(done[i].Ref))
		}
		e, ok, err := w.cache.Remove(done[i].Ref)
		return fmt.Sprint(e, ok, err)
	})
}
