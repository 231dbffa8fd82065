package radix_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
)

// A matched and pinned prefix stays, all of it and with the same pages, whatever else is inserted and evicted; what is
// not pinned goes.
func TestPinnedPrefixIsNeverEvicted(t *testing.T) {
	const pages, seqs, rounds = 64, 24, 2000
	f := newFixture(t)
	r := rand.New(rand.NewPCG(1, 2))
	alloc, err := kv.NewPaged(pageTokens, pages)
	if err != nil {
		t.Fatal(err)
	}
	type held struct {
		tokens []int32
		pages  []kv.PageID
		ref    radix.Ref
	}
	var pinned []held
	evict := func() bool {
		e, ok := f.Evict()
		if ok {
			if err := alloc.Drop(e.Pages); err != nil {
				t.Fatal(err)
			}
		}
		f.check()
		return ok
	}
	evictions := 0
	for range rounds {
		// Some pinned prefixes are let go.
		for len(pinned) > 4 || len(pinned) > 0 && r.IntN(3) == 0 {
			i := r.IntN(len(pinned))
			f.unpin(pinned[i].ref)
			pinned = slices.Delete(pinned, i, i+1)
		}
		letters := make([]byte, 1+r.IntN(12))
		for i := range letters {
			letters[i] = "ab"[r.IntN(2)]
		}
		prompt := path(string(letters))
		m := f.Match("", prompt, nil)
		keep := 0
		if m.Tokens > 0 {
			keep = (1 + r.IntN(m.Tokens/pageTokens)) * pageTokens
		}
		ref, err := f.Pin(m, keep)
		if err != nil {
			t.Fatal(err)
		}
		f.check()
		if keep > 0 {
			pinned = append(pinned, held{prompt[:keep], slices.Clone(m.Pages[:keep/pageTokens]), ref})
		}

		// Everything that can go does, or only what the prompt needs.
		var table kv.Table
		all := r.IntN(4) == 0
		for all || alloc.Need(&table, len(prompt)) > alloc.Stats().Free {
			if !evict() {
				break
			}
			evictions++
		}
		if s := f.Stats(); all && s.Pages != s.PinnedPages {
			t.Fatalf("%d pages are left, %d pinned", s.Pages, s.PinnedPages)
		}
		for _, p := range pinned {
			got := f.Match("", p.tokens, nil)
			if got.Tokens != len(p.tokens) || !slices.Equal(got.Pages, p.pages) {
				t.Fatalf("a pinned prefix of %d tokens in %v is %d tokens in %v", len(p.tokens), p.pages, got.Tokens, got.Pages)
			}
			if n, ok := f.Owned(got.Source); !ok || n < got.Tokens {
				t.Fatalf("source %d of %d tokens owns %d", got.Source, got.Tokens, n)
			}
		}

		// The prompt is cached in its turn.
		seq := kv.SeqID(0)
		for ; seq < seqs; seq++ {
			if _, ok := f.Owned(seq); !ok {
				break
			}
		}
		if seq == seqs || alloc.Reserve(&table, len(prompt)) != nil {
			continue
		}
		if err := alloc.Fill(&table, len(prompt)); err != nil {
			t.Fatal(err)
		}
		if err := alloc.Replace(&table, f.Match("", prompt, nil).Pages); err != nil {
			t.Fatal(err)
		}
		in, err := f.Insert("", prompt, table.Pages(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if err := alloc.Hold(in.Fresh); err != nil {
			t.Fatal(err)
		}
		f.unpin(in.Ref)
		alloc.Release(&table)
		if err := alloc.Check(); err != nil {
			t.Fatal(err)
		}
		if used, cached := alloc.Stats().Used, f.Stats().Pages; used != cached {
			t.Fatalf("%d pages are used, %d cached", used, cached)
		}
	}
	if evictions < rounds/4 {
		t.Errorf("only %d evictions: no pressure", evictions)
	}
}

// Walk shows every node once, and stops when it is told to.
func TestWalk(t *testing.T) {
	f := newFixture(t)
	f.unpin(f.insert("abcd", 0).Ref)
	f.insert("abxy", 1)
	nodes, tokens := 0, 0
	f.Walk(func(n radix.NodeView) bool {
		nodes++
		tokens += len(n.Tokens) - n.Start
		if len(n.Pages)*pageTokens != len(n.Tokens)-n.Start {
			t.Errorf("%+v", n)
		}
		return true
	})
	if nodes != 3 || tokens != 6*pageTokens {
		t.Errorf("%d nodes, %d tokens", nodes, tokens)
	}
	nodes = 0
	f.Walk(func(radix.NodeView) bool { nodes++; return false })
	if nodes != 1 {
		t.Errorf("%d nodes after the end", nodes)
	}
}

// Scopes that have lost all they cached leave nothing behind.
func TestEmptyScopesGo(t *testing.T) {
	f := newFixture(t)
	for i := range 100 {
		in, err := f.Insert(string(rune('a'+i)), path("abc"), []kv.PageID{0, 1, 2}, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.check()
		f.unpin(in.Ref)
		f.evict(0, 3, 0)
	}
	if m := f.Match("a", path("abc"), nil); m.Tokens != 0 {
		t.Errorf("%+v", m)
	}
}
