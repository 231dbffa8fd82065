package radix

import (
	"errors"

	"github.com/cadence-slo/cadence/worker/kv"
)

var (
	// ErrConfig is returned by New for a page of less than one token.
	ErrConfig = errors.New("radix: invalid configuration")
	// ErrTokens is returned for a number of tokens that is negative, not a whole number of pages, or larger than what
	// was matched.
	ErrTokens = errors.New("radix: not whole pages of the prefix")
	// ErrPages is returned by Insert for pages that are not as many as the tokens fill, not those that are cached
	// already for the same prefix, or cached elsewhere.
	ErrPages = errors.New("radix: pages do not fit the tree")
	// ErrOwner is returned by Insert for a sequence id that is negative or owns a leaf that is not on the path.
	ErrOwner = errors.New("radix: sequence id cannot own the path")
	// ErrStale is returned by Pin if the node in which the match ended has been evicted or removed since.
	ErrStale = errors.New("radix: match is out of date")
	// ErrRef is returned for a Ref that is not pinned.
	ErrRef = errors.New("radix: not a pinned reference")
	// ErrInvariant is returned by Check.
	ErrInvariant = errors.New("radix: invariant broken")
)

// NoSeq stands for no sequence id.
const NoSeq kv.SeqID = -1

// Position is where a match ended. It is opaque; only the Cache that returned it understands it. 0 is nowhere.
type Position uint64

// Ref is one pin of a node. It is opaque; only the Cache that returned it understands it. 0 pins nothing, and every
// call takes it. A node that is pinned twice has two equal Refs, each to be unpinned once.
type Ref uint64

// Match is the longest cached prefix of some tokens.
type Match struct {
	Tokens int         // matched, whole pages
	Pages  []kv.PageID // the argument of Match with the pages of the prefix appended
	Source kv.SeqID    // the lowest id among those whose cells hold the prefix; NoSeq if Tokens is 0
	At     Position
}

// Inserted is what an insertion did.
type Inserted struct {
	// Ref pins the end of the path; 0 for no tokens.
	Ref Ref
	// Fresh are the pages that are new in the tree, in order, and which the caller Holds. They are a part of the
	// caller's own slice.
	Fresh []kv.PageID
	// Owner: the end of the path is a leaf, and the inserting sequence owns it (newly, or since before).
	Owner bool
	// Freed is the id that owned a leaf on the path which is interior now, and owns nothing any more; NoSeq if there
	// was none or if it is the inserting sequence itself.
	Freed kv.SeqID
}

// Evicted is a leaf that was taken out.
type Evicted struct {
	// Pages are the leaf's own, which the caller Drops. The slice is the tree's, valid until its next change.
	Pages []kv.PageID
	// Seq owned the leaf.
	Seq kv.SeqID
	// Keep is how many tokens Seq still holds for the tree: the path of the leaf's parent, which became a leaf and
	// which Seq owns now. 0: Seq owns nothing any more.
	Keep int
}

// Stats describes a tree at one moment, and sums since the beginning.
type Stats struct {
	Nodes          int // without the scopes' roots
	Leaves         int // = sequence ids that own one
	Pages          int
	PinnedPages    int // protected by a pin
	EvictablePages int // Pages - PinnedPages: what repeated eviction would give

	Splits    int64 // of edges
	Evictions int64 // of leaves, removals included
}

// NodeView is one node as Walk shows it. Its slices are valid during the visit.
type NodeView struct {
	Scope  string
	Tokens []int32     // of the whole path from the root
	Start  int         // where the node's own edge begins in Tokens
	Pages  []kv.PageID // of the edge only, len = (len(Tokens) - Start) / page tokens
	Owner  kv.SeqID    // NoSeq for an interior node
	Pins   int         // of the node and everything below
}

// Cache is a prefix cache: *Tree, or a simple one that it is compared with. It is owned by one goroutine. A call that
// returns an error has changed nothing, the logical clock included; Match and Walk return none.
type Cache interface {
	// Match finds the longest cached prefix of tokens in scope, in whole pages, and appends its pages to dst. It
	// changes nothing but the order of eviction. Callers look up more than once for a request: hit rates are theirs to count.
	Match(scope string, tokens []int32, dst []kv.PageID) Match
	// Peek returns how many tokens Match would find, and changes nothing.
	Peek(scope string, tokens []int32) int
	// Pin protects the first tokens tokens of a match, and no more, from eviction until Unpin. For 0 tokens it returns
	// the Ref 0. Errors: ErrTokens, ErrStale; the caller matches again after the latter.
	Pin(m Match, tokens int) (Ref, error)
	// Unpin ends one Pin or Insert. Errors: ErrRef.
	Unpin(ref Ref) error
	// Insert caches the prefix tokens, in whole pages, whose cells seq holds, and pins its end. pages are the pages of
	// all of it; for the part that is cached already they are the cached ones (see kv.Allocator.Replace). Both slices
	// stay the caller's. Errors: ErrTokens, ErrPages, ErrOwner.
	Insert(scope string, tokens []int32, pages []kv.PageID, seq kv.SeqID) (Inserted, error)
	// Owned returns how many tokens seq holds for the tree: the path of the leaf that it owns, if it owns one.
	Owned(seq kv.SeqID) (tokens int, ok bool)
	// Adopt makes seq, which holds the cells of the path that ref pins and owns nothing, the owner of its end, if that is a
	// leaf, and returns who owned it: that id is not needed any more. Otherwise it reports false.
	Adopt(ref Ref, seq kv.SeqID) (former kv.SeqID, ok bool)
	// Evict takes out the least recently used unpinned leaf, if there is one.
	Evict() (Evicted, bool)
	// Remove unpins ref and takes its node out, as Evict does, if it is an unpinned leaf then; otherwise it reports
	// false. Errors: ErrRef.
	Remove(ref Ref) (Evicted, bool, error)
	// Stats returns the tree's size and sums, in constant time.
	Stats() Stats
	// Walk shows every node, in no particular order, until visit returns false. visit must not use the Cache.
	Walk(visit func(NodeView) bool)
	// Check verifies the package's invariants in O(tokens), for tests and for debugging.
	Check() error
}
