package kv_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/worker/kv"
)

const pageTokens = 4

// fixture is an allocator of pages of 4 tokens that is checked after every call.
type fixture struct {
	kv.Allocator
	t *testing.T
}

func paged(t *testing.T, pages int) fixture {
	return fixture{allocators(t, pageTokens, pages)["paged"], t}
}

func contiguous(t *testing.T, pages int) fixture {
	return fixture{allocators(t, pageTokens, pages)["contiguous"], t}
}

// ok expects a call to have worked.
func (f fixture) ok(err error) {
	f.t.Helper()
	f.is(err, nil)
}

// is expects a call to have returned an error.
func (f fixture) is(err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) {
		f.t.Fatalf("%v, expected %v", err, want)
	}
	f.check()
}

func (f fixture) check() {
	f.t.Helper()
	if err := f.Check(); err != nil {
		f.t.Fatal(err)
	}
}

func (f fixture) pages(t *kv.Table, want ...kv.PageID) {
	f.t.Helper()
	if !slices.Equal(t.Pages(), want) {
		f.t.Fatalf("pages %v, expected %v", t.Pages(), want)
	}
}

// filled reserves and fills.
func (f fixture) filled(tokens int) *kv.Table {
	f.t.Helper()
	t := new(kv.Table)
	f.ok(f.Reserve(t, tokens))
	f.ok(f.Fill(t, tokens))
	return t
}

func TestPagesComeBackInTheOrderOfTheTable(t *testing.T) {
	f := paged(t, 8)
	a, b := f.filled(10), f.filled(4)
	f.pages(a, 0, 1, 2)
	f.pages(b, 3)
	f.Release(a)
	f.check()
	f.pages(a)
	f.pages(f.filled(16), 0, 1, 2, 4)
	f.Release(a) // empty: nothing
	f.check()
}

func TestReserveIsAllOrNothing(t *testing.T) {
	for name, a := range allocators(t, pageTokens, 4) {
		f := fixture{a, t}
		x := f.filled(9)
		before := f.Stats()
		f.is(f.Reserve(x, 17), kv.ErrNoPages)
		f.is(f.Reserve(new(kv.Table), 5), kv.ErrNoPages)
		if f.Stats() != before || len(x.Pages()) != 3 {
			t.Errorf("%s: %+v became %+v", name, before, f.Stats())
		}
		if n := f.Need(x, 17); n != 2 {
			t.Errorf("%s: needs %d", name, n)
		}
		f.ok(f.Reserve(x, 16))
		f.ok(f.Reserve(x, 3)) // takes nothing away
		f.pages(x, 0, 1, 2, 3)
		f.is(f.Reserve(x, -1), kv.ErrTable)
		f.is(f.Fill(x, 17), kv.ErrTable)
		f.is(f.Fill(x, 8), kv.ErrTable)
		f.ok(f.Fill(x, 9))
		f.ok(f.Fill(x, 16))
	}
}

func TestForkCopiesThePageThatIsWritten(t *testing.T) {
	f := paged(t, 8)
	a := f.filled(10)
	f.ok(f.Reserve(a, 20)) // more than is filled: not shared
	f.pages(a, 0, 1, 2, 3, 4)
	b := new(kv.Table)
	f.ok(f.Fork(b, a))
	f.pages(b, 0, 1, 2)
	if s := f.Stats(); s.Shared != 3 || s.Used != 5 || s.FilledTokens != 20 || s.ReservedPages != 8 {
		t.Errorf("%+v", s)
	}
	// Neither writes before it reserved.
	f.is(f.Fill(a, 11), kv.ErrTable)
	f.is(f.Fill(b, 11), kv.ErrTable)
	if n := f.Need(b, 13); n != 2 {
		t.Errorf("needs %d", n)
	}
	f.ok(f.Reserve(b, 13))
	f.pages(b, 0, 1, 5, 6)
	if n := f.Need(a, 11); n != 0 {
		t.Errorf("the other needs %d, it is alone", n)
	}
	f.ok(f.Fill(a, 11))
	f.ok(f.Fill(b, 13))
	if s := f.Stats(); s.Copies != 1 || s.Shared != 2 {
		t.Errorf("%+v", s)
	}
	f.is(f.Fork(b, a), kv.ErrTable)
	f.is(f.Fork(a, a), kv.ErrTable)
	f.Release(a)
	f.check()
	f.pages(b, 0, 1, 5, 6)
	if s := f.Stats(); s.Free != 4 || s.HighWater != 7 || s.Peak != 7 {
		t.Errorf("%+v", s)
	}
}

func TestCopyOnWriteNeedsAPage(t *testing.T) {
	f := paged(t, 2)
	a := f.filled(6)
	b := new(kv.Table)
	f.ok(f.Fork(b, a))
	f.is(f.Reserve(b, 7), kv.ErrNoPages)
	f.Release(a)
	f.ok(f.Reserve(b, 7))
	f.pages(b, 0, 1)
}

func TestSharedPrefixOutlivesItsAuthor(t *testing.T) {
	f := paged(t, 8)
	a := f.filled(8)
	f.ok(f.Hold(a.Pages()))
	b := new(kv.Table)
	f.ok(f.Share(b, a.Pages(), 8))
	f.Release(a)
	f.check()
	f.ok(f.Reserve(b, 9))
	f.pages(b, 0, 1, 2)
	f.ok(f.Drop([]kv.PageID{0, 1}))
	f.is(f.Drop([]kv.PageID{0}), kv.ErrPages)
	f.Release(b)
	f.check()
	if s := f.Stats(); s.Free != 8 || s.HighWater != 0 || s.Peak != 3 {
		t.Errorf("%+v", s)
	}
}

func TestHoldsAreAllOrNothing(t *testing.T) {
	f := paged(t, 4)
	a := f.filled(8)
	f.is(f.Hold([]kv.PageID{0, 2}), kv.ErrPages)
	f.is(f.Hold([]kv.PageID{0, -1}), kv.ErrPages)
	f.is(f.Hold([]kv.PageID{4}), kv.ErrPages)
	f.ok(f.Hold([]kv.PageID{0}))
	f.is(f.Drop([]kv.PageID{0, 0}), kv.ErrPages)
	f.is(f.Drop([]kv.PageID{0, 9}), kv.ErrPages)
	f.ok(f.Drop([]kv.PageID{0}))
	b := new(kv.Table)
	f.is(f.Share(b, []kv.PageID{0, 3}, 8), kv.ErrPages)
	f.is(f.Share(b, []kv.PageID{0}, 8), kv.ErrTable)
	f.is(f.Share(b, []kv.PageID{0, 1}, 4), kv.ErrTable)
	f.is(f.Share(a, []kv.PageID{0}, 4), kv.ErrTable)
	f.ok(f.Share(b, nil, 0))
	f.ok(f.Share(b, []kv.PageID{0, 1}, 5))
}

func TestReplaceGivesUpDuplicates(t *testing.T) {
	f := paged(t, 8)
	a, b := f.filled(8), f.filled(10)
	f.pages(b, 2, 3, 4)
	f.is(f.Replace(b, []kv.PageID{0, 1, 4}), kv.ErrTable) // the third is not full
	f.is(f.Replace(b, []kv.PageID{0, 7}), kv.ErrPages)
	f.ok(f.Replace(b, []kv.PageID{0, 1}))
	f.pages(b, 0, 1, 4)
	if s := f.Stats(); s.Free != 5 || s.Shared != 2 || s.FilledTokens != 18 {
		t.Errorf("%+v", s)
	}
	f.ok(f.Replace(b, []kv.PageID{0, 1})) // the same again
	f.pages(f.filled(8), 2, 3)
	f.Release(a)
	f.check()
	f.pages(b, 0, 1, 4)
}

func TestTablesStayWithTheirAllocator(t *testing.T) {
	for name, a := range allocators(t, pageTokens, 4) {
		f, g := fixture{a, t}, fixture{allocators(t, pageTokens, 4)[name], t}
		x := f.filled(4)
		g.is(g.Reserve(x, 8), kv.ErrTable)
		g.is(g.Fill(x, 4), kv.ErrTable)
		g.Release(x)
		f.pages(x, 0)
		f.Release(x)
		g.ok(g.Reserve(x, 8))
	}
}

func TestContiguousTakesTheFirstRunThatFits(t *testing.T) {
	f := contiguous(t, 10)
	a, b, c := f.filled(8), f.filled(12), f.filled(4)
	f.pages(c, 5)
	f.Release(a)
	f.check()
	d := f.filled(12)
	f.pages(d, 6, 7, 8)
	if s := f.Stats(); s.Free != 3 || s.HighWater != 9 || math.Abs(s.ExternalFragmentation-1.0/3) > 1e-9 {
		t.Errorf("%+v", s)
	}
	f.is(f.Reserve(new(kv.Table), 12), kv.ErrNoPages) // three are free, in two runs
	e := f.filled(3)
	f.pages(e, 0)
	f.ok(f.Reserve(e, 5)) // its neighbour is free
	f.pages(e, 0, 1)
	f.is(f.Reserve(e, 9), kv.ErrNoPages) // now it is not
	f.ok(f.Reserve(d, 16))
	f.pages(d, 6, 7, 8, 9)
	if s := f.Stats(); s.Free != 0 || s.HighWater != 10 || s.ExternalFragmentation != 0 {
		t.Errorf("%+v", s)
	}
	f.Release(c)
	f.Release(e)
	f.Release(b) // joins both neighbours
	f.check()
	f.pages(f.filled(24), 0, 1, 2, 3, 4, 5)
}

func TestContiguousSharesNothing(t *testing.T) {
	f := contiguous(t, 4)
	a, b := f.filled(4), new(kv.Table)
	for _, err := range []error{f.Share(b, a.Pages(), 4), f.Replace(a, a.Pages()), f.Fork(b, a), f.Hold(a.Pages()), f.Drop(a.Pages())} {
		f.is(err, kv.ErrSharing)
	}
	for _, err := range []error{f.Share(b, nil, 0), f.Replace(a, nil), f.Fork(b, new(kv.Table)), f.Hold(nil), f.Drop(nil)} {
		f.ok(err)
	}
}

func TestFragmentation(t *testing.T) {
	for name, a := range allocators(t, pageTokens, 8) {
		f := fixture{a, t}
		if s := f.Stats(); s.Fragmentation != 0 || s.ExternalFragmentation != 0 {
			t.Errorf("%s: %+v in an empty cache", name, s)
		}
		x := f.filled(6)
		f.ok(f.Reserve(x, 16))
		if s := f.Stats(); s.Fragmentation != 10.0/16 || s.ReservedPages != 4 || s.FilledTokens != 6 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range [][2]int{{0, 1}, {1, 0}, {16, 1 << 27}, {-1, -1}} {
		if _, err := kv.NewPaged(c[0], c[1]); !errors.Is(err, kv.ErrConfig) {
			t.Errorf("%v: %v", c, err)
		}
		if _, err := kv.NewContiguous(c[0], c[1]); !errors.Is(err, kv.ErrConfig) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
