package radix_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
)

const pageTokens = 4

// fixture is a tree of pages of 4 tokens that is checked after every call.
type fixture struct {
	*radix.Tree
	t    *testing.T
	next kv.PageID
}

func newFixture(t *testing.T) *fixture {
	tree, err := radix.New(pageTokens)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{Tree: tree, t: t}
}

func (f *fixture) check() {
	f.t.Helper()
	if err := f.Check(); err != nil {
		f.t.Fatal(err)
	}
}

// path spells pages as letters: every page of "aab" is one letter four times.
func path(letters string) []int32 {
	var out []int32
	for _, l := range letters {
		out = append(out, l, l, l, l)
	}
	return out
}

func (f *fixture) match(letters string) radix.Match {
	f.t.Helper()
	m := f.Match("", path(letters), nil)
	f.check()
	return m
}

// insert caches a path for seq, with the cached pages where there are some and new ones behind.
func (f *fixture) insert(letters string, seq kv.SeqID) radix.Inserted {
	f.t.Helper()
	pages := f.match(letters).Pages
	for len(pages) < len(letters) {
		pages = append(pages, f.next)
		f.next++
	}
	in, err := f.Insert("", path(letters), pages, seq)
	if err != nil {
		f.t.Fatal(err)
	}
	f.check()
	return in
}

func (f *fixture) pin(letters string, pages int) radix.Ref {
	f.t.Helper()
	ref, err := f.Pin(f.match(letters), pages*pageTokens)
	if err != nil {
		f.t.Fatal(err)
	}
	f.check()
	return ref
}

func (f *fixture) unpin(refs ...radix.Ref) {
	f.t.Helper()
	for _, ref := range refs {
		if err := f.Unpin(ref); err != nil {
			f.t.Fatal(err)
		}
		f.check()
	}
}

// evict expects the leaf of seq with that many pages, of whose path so many stay.
func (f *fixture) evict(seq kv.SeqID, pages, keep int) {
	f.t.Helper()
	e, ok := f.Evict()
	f.check()
	if !ok || e.Seq != seq || len(e.Pages) != pages || e.Keep != keep*pageTokens {
		f.t.Fatalf("evicted %v %+v, expected %d pages of sequence %d, %d stay", ok, e, pages, seq, keep)
	}
}

func (f *fixture) noEvict() {
	f.t.Helper()
	if e, ok := f.Evict(); ok {
		f.t.Fatalf("evicted %+v", e)
	}
}

func (f *fixture) owns(seq kv.SeqID, pages int) {
	f.t.Helper()
	n, ok := f.Owned(seq)
	if n != pages*pageTokens || ok != (pages > 0) {
		f.t.Fatalf("sequence %d owns %d tokens (%v), expected %d pages", seq, n, ok, pages)
	}
}

func TestMatchFindsWholePages(t *testing.T) {
	f := newFixture(t)
	if m := f.match("abc"); m.Tokens != 0 || m.Source != radix.NoSeq || len(m.Pages) != 0 {
		t.Fatalf("%+v in an empty tree", m)
	}
	f.insert("abc", 5)
	for letters, want := range map[string]int{"abc": 3, "abcd": 3, "abx": 2, "ab": 2, "x": 0, "": 0} {
		m := f.match(letters)
		if m.Tokens != want*pageTokens || !slices.Equal(m.Pages, []kv.PageID{0, 1, 2}[:want]) {
			t.Errorf("%q: %+v", letters, m)
		}
		if want > 0 && m.Source != 5 {
			t.Errorf("%q: source %d", letters, m.Source)
		}
	}
	// A page that is there in part does not count, on either side.
	if m := f.Match("", path("abc")[:7], nil); m.Tokens != 4 {
		t.Errorf("7 tokens match %d", m.Tokens)
	}
	half := path("abc")
	half[6] = 'x'
	if m := f.Match("", half, []kv.PageID{9}); m.Tokens != 4 || !slices.Equal(m.Pages, []kv.PageID{9, 0}) {
		t.Errorf("%+v", m)
	}
	if m := f.Match("tenant", path("abc"), nil); m.Tokens != 0 {
		t.Error("a prefix crosses scopes")
	}
}

func TestOwnershipMovesWithLeaves(t *testing.T) {
	f := newFixture(t)
	if in := f.insert("ab", 0); !in.Owner || in.Freed != radix.NoSeq || !slices.Equal(in.Fresh, []kv.PageID{0, 1}) {
		t.Fatalf("%+v", in)
	}
	f.owns(0, 2)
	// The same path again: the owner stays, nothing is fresh.
	if in := f.insert("ab", 1); in.Owner || in.Freed != radix.NoSeq || len(in.Fresh) != 0 {
		t.Fatalf("%+v", in)
	}
	// Longer: the leaf becomes interior and its owner is free.
	if in := f.insert("abcd", 1); !in.Owner || in.Freed != 0 || !slices.Equal(in.Fresh, []kv.PageID{2, 3}) {
		t.Fatalf("%+v", in)
	}
	f.owns(0, 0)
	f.owns(1, 4)
	// Longer by the owner itself.
	if in := f.insert("abcde", 1); !in.Owner || in.Freed != radix.NoSeq {
		t.Fatalf("%+v", in)
	}
	// Shorter by the owner itself: it still holds the longer one.
	if in := f.insert("abc", 1); in.Owner || in.Freed != radix.NoSeq || len(in.Fresh) != 0 {
		t.Fatalf("%+v", in)
	}
	f.owns(1, 5)
	// Another branch inside an edge: both leaves have their owners.
	if in := f.insert("ax", 0); !in.Owner || in.Freed != radix.NoSeq {
		t.Fatalf("%+v", in)
	}
	f.owns(0, 2)
	f.owns(1, 5)
	if m := f.match("ab"); m.Source != 1 {
		t.Errorf("source of ab is %d", m.Source)
	}
	if m := f.match("a"); m.Source != 0 {
		t.Errorf("source of a is %d", m.Source)
	}
}

func TestInsertRefusesWhatCannotBe(t *testing.T) {
	f := newFixture(t)
	f.insert("abc", 0)
	f.insert("xy", 1)
	for name, c := range map[string]struct {
		tokens []int32
		pages  []kv.PageID
		seq    kv.SeqID
		want   error
	}{
		"part of a page":          {path("q")[:3], []kv.PageID{9}, 2, radix.ErrTokens},
		"too few pages":           {path("qr"), []kv.PageID{9}, 2, radix.ErrPages},
		"other pages":             {path("abq"), []kv.PageID{0, 9, 10}, 2, radix.ErrPages},
		"a page cached elsewhere": {path("abq"), []kv.PageID{0, 1, 3}, 2, radix.ErrPages},
		"a page twice":            {path("qr"), []kv.PageID{9, 9}, 2, radix.ErrPages},
		"no page":                 {path("q"), []kv.PageID{-1}, 2, radix.ErrPages},
		"no sequence":             {path("q"), []kv.PageID{9}, -1, radix.ErrOwner},
		"a second leaf":           {path("q"), []kv.PageID{9}, 1, radix.ErrOwner},
		"another leaf's path":     {path("abc"), []kv.PageID{0, 1, 2}, 1, radix.ErrOwner},
		"a branch of its own":     {path("abq"), []kv.PageID{0, 1, 9}, 0, radix.ErrOwner},
	} {
		before := f.Stats()
		if _, err := f.Insert("", c.tokens, c.pages, c.seq); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		f.check()
		if f.Stats() != before {
			t.Errorf("%s: something changed", name)
		}
	}
	if in, err := f.Insert("", nil, nil, 2); err != nil || in.Ref != 0 || in.Owner {
		t.Errorf("nothing: %+v, %v", in, err)
	}
}

func TestEvictionTrimsFromTheLeaves(t *testing.T) {
	f := newFixture(t)
	f.unpin(f.insert("abcd", 0).Ref)
	f.unpin(f.insert("abxy", 1).Ref)
	f.unpin(f.insert("q", 2).Ref)
	f.match("abcd") // 0 is used after 1, and ab after both
	f.evict(1, 2, 0)
	f.owns(1, 0)
	f.evict(2, 1, 0)
	f.evict(0, 2, 2)
	f.owns(0, 2)
	f.evict(0, 2, 0)
	f.owns(0, 0)
	f.noEvict()
	if s := f.Stats(); s.Nodes != 0 || s.Pages != 0 || s.Leaves != 0 || s.Evictions != 4 {
		t.Errorf("%+v", s)
	}
}

func TestPinProtectsExactlyWhatItNames(t *testing.T) {
	f := newFixture(t)
	f.unpin(f.insert("abcdef", 0).Ref)
	ref := f.pin("abcdef", 2)
	if s := f.Stats(); s.PinnedPages != 2 || s.EvictablePages != 4 || s.Splits != 1 {
		t.Fatalf("%+v", s)
	}
	f.evict(0, 4, 2)
	f.noEvict()
	f.owns(0, 2)
	again := f.pin("ab", 2)
	f.unpin(ref)
	f.noEvict()
	f.unpin(again)
	if err := f.Unpin(again); !errors.Is(err, radix.ErrRef) {
		t.Errorf("unpinned once too often: %v", err)
	}
	f.evict(0, 2, 0)
	if err := f.Unpin(ref); !errors.Is(err, radix.ErrRef) {
		t.Errorf("unpinned what is gone: %v", err)
	}
}

func TestPinAfterChanges(t *testing.T) {
	f := newFixture(t)
	f.unpin(f.insert("abcdef", 0).Ref)
	m := f.match("abcdef")
	if _, err := f.Pin(m, 7*pageTokens); !errors.Is(err, radix.ErrTokens) {
		t.Errorf("more than matched: %v", err)
	}
	if _, err := f.Pin(m, pageTokens+1); !errors.Is(err, radix.ErrTokens) {
		t.Errorf("part of a page: %v", err)
	}
	if ref, err := f.Pin(m, 0); err != nil || ref != 0 || f.Unpin(ref) != nil {
		t.Errorf("nothing: %v, %v", ref, err)
	}
	// Splits above the end of the match do not matter.
	f.unpin(f.insert("abx", 1).Ref, f.pin("abcdef", 4))
	for pages := 1; pages <= 6; pages++ {
		ref, err := f.Pin(m, pages*pageTokens)
		if err != nil {
			t.Fatal(err)
		}
		f.check()
		if s := f.Stats(); s.PinnedPages != pages {
			t.Errorf("%d pages pinned for %d", s.PinnedPages, pages)
		}
		f.unpin(ref)
	}
	// The node where the match ended goes.
	f.match("abx")
	for f.Stats().Pages > 3 {
		f.Evict()
		f.check()
	}
	if _, err := f.Pin(m, pageTokens); !errors.Is(err, radix.ErrStale) {
		t.Errorf("the end of the match is gone: %v", err)
	}
}

func TestRemoveTakesOutWhatNobodyNeeds(t *testing.T) {
	f := newFixture(t)
	first := f.insert("ab", 0).Ref
	second := f.insert("abcd", 1).Ref
	remove := func(ref radix.Ref, want bool) radix.Evicted {
		t.Helper()
		e, ok, err := f.Remove(ref)
		f.check()
		if err != nil || ok != want {
			t.Fatalf("removed %v, %v", ok, err)
		}
		return e
	}
	shared := f.pin("abcd", 4)
	remove(shared, false) // second still needs it
	if e := remove(second, true); e.Seq != 1 || e.Keep != 2*pageTokens || !slices.Equal(e.Pages, []kv.PageID{2, 3}) {
		t.Errorf("%+v", e)
	}
	f.owns(1, 2)
	if e := remove(first, true); e.Seq != 1 || e.Keep != 0 {
		t.Errorf("%+v", e)
	}
	if _, _, err := f.Remove(first); !errors.Is(err, radix.ErrRef) {
		t.Errorf("removed twice: %v", err)
	}
	remove(0, false)
}

func TestConfig(t *testing.T) {
	if _, err := radix.New(0); !errors.Is(err, radix.ErrConfig) {
		t.Error(err)
	}
}
