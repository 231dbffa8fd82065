package digest_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/digest"
	"pgregory.net/rapid"
)

// hashes returns those of all prefixes of whole pages.
func hashes(key uint64, scope string, page int, tokens []int32) (all []uint64) {
	h := digest.Root(key, scope)
	for ; len(tokens) >= page; tokens = tokens[page:] {
		h = digest.Extend(h, tokens[:page])
		all = append(all, h)
	}
	return all
}

// oracle is how many tokens of the prompt an exact set of prefixes has.
func oracle(page int, prefixes [][]int32, prompt []int32) int {
	longest := 0
	for _, p := range prefixes {
		n := 0
		for n+page <= min(len(p), len(prompt)) && slices.Equal(p[n:n+page], prompt[n:n+page]) {
			n += page
		}
		longest = max(longest, n)
	}
	return max(0, min(longest, len(prompt)-1))
}

// What is cached is always found, to its last page, and what is found beyond it is rare.
func TestNeverAFalseNegative(t *testing.T) {
	beyond, asked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Uint64().Draw(t, "key")
		page := rapid.IntRange(1, 20).Draw(t, "page")
		shared := rapid.Bool().Draw(t, "shared")
		tokens := rapid.SliceOfN(rapid.Int32Range(0, 2), 0, 64) // few ids, so that prefixes meet
		scopes := map[string][][]int32{}
		var set []uint64
		for range rapid.IntRange(0, 12).Draw(t, "prefixes") {
			scope := rapid.SampledFrom([]string{"acme", "globex"}).Draw(t, "tenant")
			if shared {
				scope = ""
			}
			p := tokens.Draw(t, "prefix")
			scopes[scope] = append(scopes[scope], p)
			set = append(set, hashes(key, scope, page, p)...)
		}
		slices.Sort(set)
		set = slices.Compact(set) // a tree has each once
		d := digest.Build(key, page, shared, set)
		for range 8 {
			tenant := rapid.SampledFrom([]string{"acme", "globex", "nobody"}).Draw(t, "asks")
			prompt := tokens.Draw(t, "prompt")
			known := scopes[tenant]
			if shared {
				known = scopes[""]
			}
			got, want := digest.Cached(d, tenant, prompt), oracle(page, known, prompt)
			if got < want || got > max(0, len(prompt)-1) {
				t.Fatalf("%d of %d tokens, the set has %d", got, len(prompt), want)
			}
			asked++
			if got > want {
				beyond++
			}
		}
	})
	if beyond > asked/20 {
		t.Errorf("%d of %d answers were too high", beyond, asked)
	}
}

// fill returns a digest of n prefixes of one page each, and prompts of a page that are not in it.
func fill(n int, rng *rand.Rand) (d *schema.PrefixDigest, in, out [][]int32) {
	seen := map[[16]int32]bool{}
	draw := func() []int32 {
		for {
			var p [16]int32
			for k := range p {
				p[k] = rng.Int32N(152_000)
			}
			if !seen[p] {
				seen[p] = true
				return append(p[:], 0)
			}
		}
	}
	key := rng.Uint64()
	var set []uint64
	for range n {
		p := draw()
		in = append(in, p)
		set = append(set, digest.Extend(digest.Root(key, "acme"), p[:16]))
		out = append(out, draw())
	}
	return digest.Build(key, 16, false, set), in, out
}

func TestFalsePositives(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{64, 4096} {
		found, asked := 0, 0
		for range 20_480 / n {
			d, in, out := fill(n, rng)
			for _, p := range in {
				if digest.Cached(d, "acme", p) != 16 {
					t.Fatal("a cached page is not found")
				}
			}
			for _, p := range out {
				asked++
				if digest.Cached(d, "acme", p) != 0 {
					found++
				}
			}
			for _, p := range in[:64] {
				asked++
				if digest.Cached(d, "globex", p) != 0 {
					found++
				}
			}
		}
		// 0.9 % is expected; three standard deviations of 20,480 draws are 0.2 %.
		if rate := float64(found) / float64(asked); rate > 0.0115 || rate < 0.003 {
			t.Errorf("%d prefixes: %.2f %% false positives", n, 100*rate)
		}
	}
}

// Prompts that differ in one bit, in one place, have hashes without a pattern: each bit of the hash changes half of the time.
func TestAvalanche(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var flips [64]int
	const rounds = 4000
	for range rounds {
		page := make([]int32, 16)
		for k := range page {
			page[k] = rng.Int32N(1000)
		}
		root := digest.Root(rng.Uint64(), "acme")
		a := digest.Extend(root, page)
		page[rng.IntN(16)] ^= 1 << rng.IntN(17)
		b := digest.Extend(root, page)
		for bit := range flips {
			flips[bit] += int((a ^ b) >> bit & 1)
		}
	}
	for bit, n := range flips {
		if d := math.Abs(float64(n)/rounds - 0.5); d > 0.05 {
			t.Errorf("bit %d flips in %.1f %%", bit, 100*float64(n)/rounds)
		}
	}
}

func TestEveryPartOfAPrefixCounts(t *testing.T) {
	seen := map[uint64]string{}
	note := func(h uint64, what string) {
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", what, other)
		}
		seen[h] = what
	}
	for key := range uint64(4) {
		for _, scope := range []string{"", "a", "b", "ab", "ba", "\x00"} {
			root := digest.Root(key, scope)
			note(root, "root of "+scope)
			for size := 1; size <= 9; size++ {
				zero := make([]int32, size)
				h := digest.Extend(root, zero)
				note(h, "zeros in "+scope)
				note(digest.Extend(h, zero), "zeros twice in "+scope)
				for k := range zero {
					zero[k] = 7
					note(digest.Extend(root, zero), "a seven in "+scope)
					zero[k] = 0
				}
			}
		}
	}
}

func TestNothingToAsk(t *testing.T) {
	prompt := []int32{1, 2, 3, 4, 5}
	full := []byte{255, 255}
	for name, d := range map[string]*schema.PrefixDigest{
		"nil": nil, "empty": digest.Build(1, 2, false, nil), "no pages": {Bits: full, Hashes: 1}, "no hashes": {Bits: full, PageTokens: 2},
		"negative": {Bits: full, PageTokens: -1, Hashes: -1},
	} {
		if n := digest.Cached(d, "acme", prompt); n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
	all := &schema.PrefixDigest{Bits: full, PageTokens: 2, Hashes: 3}
	for n, want := range map[int]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 3, 5: 4} {
		if got := digest.Cached(all, "acme", prompt[:n]); got != want {
			t.Errorf("%d tokens: %d, want %d", n, got, want)
		}
	}
}

// A prompt of 2,048 tokens, all of them cached, in a digest of 4,096 pages:
//
//	go test -run '^$' -bench Cached -benchmem ./worker/digest
func BenchmarkCached2048(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	var set []uint64
	var prompts [][]int32
	for range 32 {
		p := make([]int32, 2048)
		for k := range p {
			p[k] = rng.Int32N(152_000)
		}
		prompts = append(prompts, p)
		set = append(set, hashes(7, "acme", 16, p)...)
	}
	d := digest.Build(7, 16, false, set)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if n := digest.Cached(d, "acme", prompts[i%32]); n != 2047 {
			b.Fatal(n)
		}
		i++
	}
}

// A digest of 4,096 pages from their hashes:
//
//	go test -run '^$' -bench Build -benchmem ./worker/digest
func BenchmarkBuild4096(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 8))
	set := make([]uint64, 4096)
	for i := range set {
		set[i] = rng.Uint64()
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(digest.Build(7, 16, false, set).Bits) == 0 {
			b.Fatal("empty")
		}
	}
}
