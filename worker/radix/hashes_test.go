package radix_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
	"pgregory.net/rapid"
)

func root(scope string) uint64 { return uint64(len(scope)) + 1 }

func extend(prefix uint64, page []int32) uint64 {
	for _, token := range page {
		prefix = (prefix ^ uint64(uint32(token))) * 0x9E3779B97F4A7C15
		prefix ^= prefix >> 29
	}
	return prefix
}

// Whatever was inserted, split and evicted: the hashes are those of the prefixes that Walk shows, one for each page.
func TestHashesAreThoseOfTheTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, err := radix.New(pageTokens)
		if err != nil {
			t.Fatal(err)
		}
		page, seq := kv.PageID(0), kv.SeqID(0)
		for range rapid.IntRange(0, 20).Draw(t, "calls") {
			if rapid.IntRange(0, 3).Draw(t, "evict") == 0 {
				tree.Evict()
				continue
			}
			scope := rapid.SampledFrom([]string{"", "acme", "hooli!"}).Draw(t, "scope")
			tokens := path(rapid.StringMatching("[ab]{1,6}").Draw(t, "path"))
			pages := tree.Match(scope, tokens, nil).Pages
			for len(pages) < len(tokens)/pageTokens {
				pages = append(pages, page)
				page++
			}
			in, err := tree.Insert(scope, tokens, pages, seq)
			seq++
			if err != nil {
				t.Fatal(err)
			}
			if err := tree.Unpin(in.Ref); err != nil {
				t.Fatal(err)
			}
		}
		want := map[uint64]int{}
		tree.Walk(func(n radix.NodeView) bool {
			h := root(n.Scope)
			for at := 0; at < len(n.Tokens); at += pageTokens {
				if h = extend(h, n.Tokens[at:at+pageTokens]); at >= n.Start {
					want[h]++
				}
			}
			return true
		})
		got := map[uint64]int{}
		all := tree.Hashes(root, extend, []uint64{7})
		for _, h := range all[1:] {
			got[h]++
		}
		if all[0] != 7 || !maps.Equal(got, want) || len(all)-1 != tree.Stats().Pages {
			t.Fatalf("%d hashes of %d pages: %v, want %v", len(all)-1, tree.Stats().Pages, slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
		}
	})
}

// The hashes of a tree of 128 prompts of 2,048 tokens:
//
//	go test -run '^$' -bench Hashes -benchmem ./worker/radix
func BenchmarkHashes2048(b *testing.B) {
	tree, _ := grown(b, 2048)
	var dst []uint64
	b.ReportAllocs()
	for b.Loop() {
		dst = tree.Hashes(root, extend, dst[:0])
	}
	b.ReportMetric(float64(len(dst)), "pages")
}
