package kv_test

import (
	"testing"

	"github.com/cadence-slo/cadence/worker/kv"
)

// allocators makes one of each kind.
func allocators(t testing.TB, pageTokens, pages int) map[string]kv.Allocator {
	p, err := kv.NewPaged(pageTokens, pages)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kv.NewContiguous(pageTokens, pages)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]kv.Allocator{"paged": p, "contiguous": c}
}

// A table of 34 pages (a prompt of 500 tokens and 44 of output) reserved and released in a cache that others use too.
//
//	go test -run '^$' -bench AllocRelease34 -benchmem ./worker/kv
func BenchmarkAllocRelease34(b *testing.B) {
	for name, a := range allocators(b, 16, 4096) {
		b.Run(name, func(b *testing.B) {
			others := make([]kv.Table, 16)
			for i := range others {
				if err := a.Reserve(&others[i], 20*16+i*16); err != nil {
					b.Fatal(err)
				}
			}
			for i := 0; i < len(others); i += 2 {
				a.Release(&others[i])
			}
			var t kv.Table
			b.ReportAllocs()
			for b.Loop() {
				if err := a.Reserve(&t, 34*16); err != nil {
					b.Fatal(err)
				}
				a.Release(&t)
			}
		})
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for name, a := range allocators(t, 16, 256) {
		tables := make([]kv.Table, 8)
		cycle := func() {
			for i := range tables {
				if err := a.Reserve(&tables[i], 100+i*50); err != nil {
					t.Fatal(err)
				}
				if err := a.Fill(&tables[i], 100); err != nil {
					t.Fatal(err)
				}
			}
			if a.Reserve(&tables[0], 1<<20) == nil {
				t.Fatal("more than there is")
			}
			for _, i := range []int{3, 1, 7, 5, 0, 2, 6, 4} {
				a.Release(&tables[i])
			}
			if a.Stats().Used != 0 {
				t.Fatal("not all is free")
			}
		}
		cycle()
		if n := testing.AllocsPerRun(100, cycle); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
