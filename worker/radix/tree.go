package radix

import (
	"fmt"
	"slices"

	"github.com/cadence-slo/cadence/worker/kv"
)

// index names a node by its place in Tree.nodes; 0 is no node.
type index int32

// child is an entry of a node's list of children.
type child struct {
	hash uint64 // of the child's first page
	at   index
}

// node is an edge and what hangs below it. Nodes and their slices are used again. A scope's root has no edge.
type node struct {
	parent     index
	prev, next index // in the list of candidates, which is circular through nodes[0]
	gen        uint32
	own, pins  int32    // pins of this node; of this node and all below
	owner      kv.SeqID // of a leaf
	source     kv.SeqID // the lowest owner here and below
	start, end int      // tokens before the edge, and with it
	used       int64    // the clock's time of the last use
	tokens     []int32
	pages      []kv.PageID
	children   []child
	scope      string // of a root
}

var _ Cache = (*Tree)(nil)

// Tree is the prefix tree. It is owned by one goroutine; the zero value is not usable, see New. See Cache for the
// calls.
type Tree struct {
	pageTokens int
	clock      int64
	nodes      []node  // nodes[0] is the head of the list of candidates: unpinned leaves, least recently used first
	free       []index // nodes that are not in use
	scopes     map[string]index
	owned      []index  // by sequence id: the leaf that it owns
	cached     []uint64 // by page id, a bit: the page is in the tree
	stats      Stats
}

// New returns an empty tree over pages of that many tokens, or ErrConfig.
func New(pageTokens int) (*Tree, error) {
	if pageTokens < 1 {
		return nil, fmt.Errorf("%w: pages of %d tokens", ErrConfig, pageTokens)
	}
	return &Tree{pageTokens: pageTokens, nodes: make([]node, 1, 64), scopes: make(map[string]index)}, nil
}

// hash mixes the tokens of one page. What it finds is verified, so it only needs to be quick.
func hash(page []int32) uint64 {
	const odd = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	h := uint64(len(page))
	for ; len(page) >= 2; page = page[2:] {
		h = (h ^ uint64(uint32(page[0])) ^ uint64(page[1])<<32) * odd
		h ^= h >> 32
	}
	if len(page) > 0 {
		h = (h ^ uint64(uint32(page[0]))) * odd
	}
	return h
}

// common returns how many leading tokens a and b share, in whole pages.
func (t *Tree) common(a, b []int32) int {
	n, i := min(len(a), len(b)), 0
	const block = 16
	for i+block <= n && *(*[block]int32)(a[i:]) == *(*[block]int32)(b[i:]) {
		i += block
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i - i%t.pageTokens
}

// child returns the child of at whose edge begins with the first page of rest, or 0.
func (t *Tree) child(at index, rest []int32) index {
	page := rest[:t.pageTokens]
	h := hash(page)
	for _, c := range t.nodes[at].children {
		if c.hash == h && slices.Equal(t.nodes[c.at].tokens[:t.pageTokens], page) {
			return c.at
		}
	}
	return 0
}

// find walks down from root along tokens and returns the last node that shares a page with them, and how many tokens
// are shared in all. The last node may be shared in part.
func (t *Tree) find(root index, tokens []int32) (at index, n int) {
	at = root
	for len(tokens)-n >= t.pageTokens {
		next := t.child(at, tokens[n:])
		if next == 0 {
			return at, n
		}
		at = next
		n += t.common(t.nodes[at].tokens, tokens[n:])
		if n < t.nodes[at].end {
			return at, n
		}
	}
	return at, n
}

// touch makes the path that ends in at the most recently used.
func (t *Tree) touch(at index) {
	t.clock++
	if n := &t.nodes[at]; n.owner >= 0 && n.pins == 0 {
		t.unlist(at)
		n.used = t.clock
		t.enlist(at)
	}
	for ; at != 0; at = t.nodes[at].parent {
		t.nodes[at].used = t.clock
	}
}

// Match implements Cache.
func (t *Tree) Match(scope string, tokens []int32, dst []kv.PageID) Match {
	none := Match{Pages: dst, Source: NoSeq}
	root := t.scopes[scope]
	if root == 0 {
		return none
	}
	at, n := t.find(root, tokens)
	if n == 0 {
		return none
	}
	t.touch(at)
	// Pages are written from the last to the first, on the way back to the root.
	base, pages := len(dst), n/t.pageTokens
	dst = slices.Grow(dst, pages)[:base+pages]
	for up := at; up != root; up = t.nodes[up].parent {
		copy(dst[base+t.nodes[up].start/t.pageTokens:], t.nodes[up].pages)
	}
	return Match{Tokens: n, Pages: dst, Source: t.nodes[at].source, At: Position(t.handle(at))}
}

// Peek implements Cache.
func (t *Tree) Peek(scope string, tokens []int32) int {
	root := t.scopes[scope]
	if root == 0 {
		return 0
	}
	_, n := t.find(root, tokens)
	return n
}

// handle names a node in use by its place and generation.
func (t *Tree) handle(at index) uint64 { return uint64(t.nodes[at].gen)<<32 | uint64(at) }

// resolve returns the node of a handle, or 0 if it is gone. Generations are odd in use and even when free.
func (t *Tree) resolve(h uint64) index {
	at := h & (1<<32 - 1)
	if at == 0 || at >= uint64(len(t.nodes)) || t.nodes[at].gen != uint32(h>>32) {
		return 0
	}
	return index(at)
}

// whole returns ErrTokens unless tokens are whole pages and not negative.
func (t *Tree) whole(tokens int) error {
	if tokens < 0 || tokens%t.pageTokens != 0 {
		return fmt.Errorf("%w: %d tokens in pages of %d", ErrTokens, tokens, t.pageTokens)
	}
	return nil
}

// Pin implements Cache.
func (t *Tree) Pin(m Match, tokens int) (Ref, error) {
	if err := t.whole(tokens); err != nil {
		return 0, err
	}
	if tokens > m.Tokens {
		return 0, fmt.Errorf("%w: %d tokens of %d matched", ErrTokens, tokens, m.Tokens)
	}
	if tokens == 0 {
		return 0, nil
	}
	at := t.resolve(uint64(m.At))
	if at == 0 || t.nodes[at].end < tokens {
		return 0, ErrStale
	}
	// The edge may have been split since, and its far end is what the match still names.
	for t.nodes[at].start >= tokens {
		at = t.nodes[at].parent
	}
	if tokens < t.nodes[at].end {
		at = t.split(at, tokens)
	}
	return t.pin(at), nil
}

func (t *Tree) pin(at index) Ref {
	ref := Ref(t.handle(at))
	t.nodes[at].own++
	if n := &t.nodes[at]; n.pins == 0 && n.owner >= 0 {
		t.unlist(at)
	}
	for ; at != 0; at = t.nodes[at].parent {
		n := &t.nodes[at]
		if n.pins == 0 {
			t.stats.PinnedPages += len(n.pages)
		}
		n.pins++
	}
	return ref
}

// Unpin implements Cache.
func (t *Tree) Unpin(ref Ref) error {
	if ref == 0 {
		return nil
	}
	_, err := t.unpin(ref)
	return err
}

func (t *Tree) unpin(ref Ref) (index, error) {
	at := t.resolve(uint64(ref))
	if at == 0 || t.nodes[at].own == 0 {
		return 0, fmt.Errorf("%w: %x", ErrRef, uint64(ref))
	}
	t.nodes[at].own--
	for up := at; up != 0; up = t.nodes[up].parent {
		n := &t.nodes[up]
		n.pins--
		if n.pins == 0 {
			t.stats.PinnedPages -= len(n.pages)
		}
	}
	if n := &t.nodes[at]; n.pins == 0 && n.owner >= 0 {
		t.enlist(at)
	}
	return at, nil
}

// Owned implements Cache.
func (t *Tree) Owned(seq kv.SeqID) (tokens int, ok bool) {
	if seq < 0 || int(seq) >= len(t.owned) || t.owned[seq] == 0 {
		return 0, false
	}
	return t.nodes[t.owned[seq]].end, true
}

// Stats implements Cache.
func (t *Tree) Stats() Stats {
	s := t.stats
	s.EvictablePages = s.Pages - s.PinnedPages
	return s
}

// enlist puts an unpinned leaf into the list of candidates, behind those that were used before it.
func (t *Tree) enlist(at index) {
	n := &t.nodes[at]
	prev := t.nodes[0].prev
	for prev != 0 && t.nodes[prev].used > n.used {
		prev = t.nodes[prev].prev
	}
	n.prev, n.next = prev, t.nodes[prev].next
	t.nodes[n.prev].next, t.nodes[n.next].prev = at, at
}

// unlist takes a leaf out of the list of candidates.
func (t *Tree) unlist(at index) {
	n := &t.nodes[at]
	t.nodes[n.prev].next, t.nodes[n.next].prev = n.next, n.prev
	n.prev, n.next = 0, 0
}
