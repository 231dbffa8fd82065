package radix_test

import (
	"testing"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
)

// grown returns a tree of 64 prompts of n tokens that share 4 system prompts, three quarters of their length, and 64
// prompts of their own, with the boundaries that pins of other lengths left; and the first 64 prompts.
func grown(b testing.TB, n int) (*radix.Tree, [][]int32) {
	const size, prompts = 16, 128
	tree, err := radix.New(size)
	if err != nil {
		b.Fatal(err)
	}
	var all [][]int32
	next := kv.PageID(0)
	for i := range prompts {
		prompt := make([]int32, n)
		for k := range prompt {
			prompt[k] = int32(k*31+i*7919) % 151_936
			if i < 64 && k < n*3/4 {
				prompt[k] = int32(k*31+(i%4)*104_729) % 151_936
			}
		}
		all = append(all, prompt)
		m := tree.Match("tenant", prompt, nil)
		for len(m.Pages) < n/size {
			m.Pages = append(m.Pages, next)
			next++
		}
		in, err := tree.Insert("tenant", prompt, m.Pages, kv.SeqID(i))
		if err != nil {
			b.Fatal(err)
		}
		ref, err := tree.Pin(tree.Match("tenant", prompt, nil), n/size/4*size+i%3*size)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range []radix.Ref{in.Ref, ref} {
			if err := tree.Unpin(r); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := tree.Check(); err != nil {
		b.Fatal(err)
	}
	return tree, all[:64]
}

func benchmarkMatch(b *testing.B, n int) {
	tree, prompts := grown(b, n)
	pages := make([]kv.PageID, 0, n/16)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if m := tree.Match("tenant", prompts[i%64], pages); m.Tokens != n {
			b.Fatal(m.Tokens)
		}
		i++
	}
}

// A prompt of that many tokens, all of them cached, found in a tree of 128 prompts of that length.
//
//	go test -run '^$' -bench Match512 -benchmem ./worker/radix

func BenchmarkMatch128(b *testing.B)  { benchmarkMatch(b, 128) }
func BenchmarkMatch256(b *testing.B)  { benchmarkMatch(b, 256) }
func BenchmarkMatch512(b *testing.B)  { benchmarkMatch(b, 512) }
func BenchmarkMatch1024(b *testing.B) { benchmarkMatch(b, 1024) }
func BenchmarkMatch2048(b *testing.B) { benchmarkMatch(b, 2048) }

// What a cache costs one request of 512 tokens: match, pin, insert a new tail, unpin, and evict another request's.
func BenchmarkRequest512(b *testing.B) {
	tree, prompts := grown(b, 512)
	request := newRequest(b, tree, prompts)
	for range 1000 {
		request()
	}
	b.ReportAllocs()
	for b.Loop() {
		request()
	}
}

// newRequest returns a function that does what BenchmarkRequest512 says, and fails if anything is amiss.
func newRequest(b testing.TB, tree *radix.Tree, prompts [][]int32) func() {
	const size = 16
	pages := make([]kv.PageID, 0, 64)
	free := []kv.PageID{}
	for i := range 64 {
		free = append(free, kv.PageID(100_000+i))
	}
	seqs := []kv.SeqID{128}
	prompt := make([]int32, 512)
	serial := int32(0)
	return func() {
		serial++
		copy(prompt, prompts[serial%64])
		for k := 400; k < 512; k++ {
			prompt[k] = 200_000 + serial
		}
		m := tree.Match("tenant", prompt, pages)
		pinned, err := tree.Pin(m, m.Tokens)
		if err != nil {
			b.Fatal(err)
		}
		for len(m.Pages) < len(prompt)/size {
			for len(free) == 0 || len(seqs) == 0 {
				e, ok := tree.Evict()
				if !ok {
					b.Fatal("nothing to evict")
				}
				free = append(free, e.Pages...)
				if e.Keep == 0 {
					seqs = append(seqs, e.Seq)
				}
			}
			m.Pages = append(m.Pages, free[len(free)-1])
			free = free[:len(free)-1]
		}
		in, err := tree.Insert("tenant", prompt, m.Pages, seqs[len(seqs)-1])
		if err != nil || !in.Owner {
			b.Fatal(in, err)
		}
		seqs = seqs[:len(seqs)-1]
		if in.Freed >= 0 {
			seqs = append(seqs, in.Freed)
		}
		for _, r := range []radix.Ref{pinned, in.Ref} {
			if err := tree.Unpin(r); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	tree, prompts := grown(t, 512)
	request := newRequest(t, tree, prompts)
	for range 5000 { // every buffer at its size
		request()
	}
	if n := testing.AllocsPerRun(500, request); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
	pages, i := make([]kv.PageID, 0, 32), 0
	if n := testing.AllocsPerRun(500, func() {
		tree.Match("tenant", prompts[i%64], pages)
		i++
	}); n != 0 {
		t.Errorf("%v allocations a match", n)
	}
	if err := tree.Check(); err != nil {
		t.Error(err)
	}
}
