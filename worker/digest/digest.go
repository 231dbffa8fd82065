package digest

import (
	"math/bits"

	"github.com/cadence-slo/cadence/schema"
)

const (
	// bitsPerPrefix and hashes make about 0.9 % false positives: (1 - e^(-7/10))^7, and a little for double hashing.
	bitsPerPrefix = 10
	hashes        = 7
)

// Odd numbers without a pattern whose highest bit is set: no two token ids cancel them.
const (
	first  = 0xa0761d6478bd642f
	second = 0xe7037ed1a0b428db
	third  = 0x8ebc6af09c88c6e3
)

// fold multiplies to 128 bits and folds them (as wyhash does).
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// mix is SplitMix64's output function.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// pair packs two token ids.
func pair(a, b int32) uint64 { return uint64(uint32(a)) | uint64(uint32(b))<<32 }

// Root returns the hash of the empty prefix in a scope: what its first page extends.
func Root(key uint64, scope string) uint64 {
	h := mix(key ^ first)
	for i := range len(scope) {
		h = fold(h^uint64(scope[i]), second)
	}
	return mix(h ^ uint64(len(scope)))
}

// Extend returns the hash of a prefix with one page more.
func Extend(prefix uint64, page []int32) uint64 {
	h := prefix + uint64(len(page))*third
	for ; len(page) >= 4; page = page[4:] {
		h = fold(pair(page[0], page[1])^second, pair(page[2], page[3])^h)
	}
	switch len(page) {
	case 3:
		h = fold(pair(page[0], page[1])^second, pair(page[2], 0)^h)
	case 2:
		h = fold(pair(page[0], page[1])^second, h^first)
	case 1:
		h = fold(pair(page[0], 0)^second, h^first)
	}
	return h ^ h>>32 ^ third
}

// Build returns the digest of a set of prefixes, by their hashes under the key, in any order; it keeps none of the slice. shared
// says that all of them have the scope "", for every tenant to use. pageTokens is at least 1.
func Build(key uint64, pageTokens int, shared bool, prefixes []uint64) *schema.PrefixDigest {
	d := &schema.PrefixDigest{Key: key, PageTokens: int32(pageTokens), Shared: shared, Hashes: hashes, Bits: []byte{}}
	if len(prefixes) == 0 {
		return d
	}
	d.Bits = make([]byte, (len(prefixes)*bitsPerPrefix+7)/8)
	n := uint64(len(d.Bits)) * 8
	for _, h := range prefixes {
		at, step := mix(h), mix(h^third)|1
		for range hashes {
			bit, _ := bits.Mul64(at, n)
			d.Bits[bit/8] |= 1 << (bit % 8)
			at += step
		}
	}
	return d
}

// has reports whether a prefix may be among those of Build. The filter is not empty.
func has(filter []byte, count int32, h uint64) bool {
	n := uint64(len(filter)) * 8
	at, step := mix(h), mix(h^third)|1
	for range count {
		bit, _ := bits.Mul64(at, n)
		if filter[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
		at += step
	}
	return true
}

// Cached returns how many of a prompt's first tokens probably need not be computed at the digest's worker, for a request of the
// tenant: whole pages, and at least one token less than the prompt, whose logits are wanted (see batch.Planner.Cached). A nil
// digest, or one that is not valid, tells of nothing: 0. It allocates nothing.
func Cached(d *schema.PrefixDigest, tenant string, prompt []int32) int {
	if d == nil || d.PageTokens < 1 || d.Hashes < 1 || len(d.Bits) == 0 {
		return 0
	}
	if d.Shared {
		tenant = ""
	}
	page := int(d.PageTokens)
	h, n := Root(d.Key, tenant), 0
	for ; len(prompt)-n >= page; n += page {
		if h = Extend(h, prompt[n:n+page]); !has(d.Bits, d.Hashes, h) {
			break
		}
	}
	return max(0, min(n, len(prompt)-1))
}
