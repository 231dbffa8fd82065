package radixtest

import (
	"fmt"
	"slices"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
)

var _ radix.Cache = (*Naive)(nil)

// node is one edge with its whole path from the root.
type node struct {
	id     uint64
	scope  string
	tokens []int32     // of the path
	pages  []kv.PageID // of the path
	start  int         // tokens before the edge
	owner  kv.SeqID
	own    int // pins
	used   int64
}

// Naive is radix.Tree, naively.
type Naive struct {
	pageTokens int
	nodes      []*node
	ids        uint64
	clock      int64
	sums       radix.Stats
}

// New returns an empty cache over pages of that many tokens.
func New(pageTokens int) *Naive { return &Naive{pageTokens: pageTokens} }

func prefix(long, short []int32) bool {
	return len(long) >= len(short) && slices.Equal(long[:len(short)], short)
}

// below lists n and the nodes whose path goes on from it.
func (c *Naive) below(n *node) []*node {
	var out []*node
	for _, m := range c.nodes {
		if m.scope == n.scope && prefix(m.tokens, n.tokens) {
			out = append(out, m)
		}
	}
	return out
}

func (c *Naive) leaf(n *node) bool { return len(c.below(n)) == 1 }

func (c *Naive) pins(n *node) int {
	sum := 0
	for _, m := range c.below(n) {
		sum += m.own
	}
	return sum
}

// longest returns the most tokens, in whole pages, that some path shares with tokens, and the node where they end.
func (c *Naive) longest(scope string, tokens []int32) (best int, at *node) {
	for _, n := range c.nodes {
		if n.scope != scope {
			continue
		}
		k := 0
		for k+c.pageTokens <= min(len(n.tokens), len(tokens)) && slices.Equal(n.tokens[k:k+c.pageTokens], tokens[k:k+c.pageTokens]) {
			k += c.pageTokens
		}
		if k > n.start && (k > best || at == nil) {
			best, at = k, n
		}
	}
	return best, at
}

// touch makes the nodes on a path the most recently used.
func (c *Naive) touch(scope string, tokens []int32) {
	c.clock++
	for _, n := range c.nodes {
		k := min(len(n.tokens), len(tokens))
		if n.scope == scope && n.start < len(tokens) && slices.Equal(n.tokens[:k], tokens[:k]) {
			n.used = c.clock
		}
	}
}

// Match implements radix.Cache.
func (c *Naive) Match(scope string, tokens []int32, dst []kv.PageID) radix.Match {
	m := radix.Match{Pages: dst, Source: radix.NoSeq}
	n, at := c.longest(scope, tokens)
	if n == 0 {
		return m
	}
	c.touch(scope, tokens[:n])
	m.Tokens, m.At = n, radix.Position(at.id)
	dst = append(dst, at.pages[:n/c.pageTokens]...)
	m.Pages = dst
	for _, o := range c.nodes {
		if o.scope == scope && o.owner >= 0 && prefix(o.tokens, tokens[:n]) && (m.Source < 0 || o.owner < m.Source) {
			m.Source = o.owner
		}
	}
	return m
}

// Peek implements radix.Cache.
func (c *Naive) Peek(scope string, tokens []int32) int {
	n, _ := c.longest(scope, tokens)
	return n
}

// end returns the node that ends after the first n tokens of the path of m, and splits one for it if there is none.
func (c *Naive) end(m *node, n int) *node {
	for _, o := range c.nodes {
		if o.scope != m.scope || !prefix(m.tokens, o.tokens[:min(n, len(o.tokens))]) || o.start >= n || len(o.tokens) < n {
			continue
		}
		if len(o.tokens) == n {
			return o
		}
		c.ids++
		head := &node{id: c.ids, scope: o.scope, tokens: o.tokens[:n], pages: o.pages[:n/c.pageTokens], start: o.start, owner: radix.NoSeq, used: o.used}
		o.start = n
		c.nodes = append(c.nodes, head)
		c.sums.Splits++
		return head
	}
	return nil
}

func (c *Naive) byID(id uint64) *node {
	for _, n := range c.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// Pin implements radix.Cache.
func (c *Naive) Pin(m radix.Match, tokens int) (radix.Ref, error) {
	if tokens < 0 || tokens%c.pageTokens != 0 || tokens > m.Tokens {
		return 0, radix.ErrTokens
	}
	if tokens == 0 {
		return 0, nil
	}
	at := c.byID(uint64(m.At))
	if at == nil {
		return 0, radix.ErrStale
	}
	n := c.end(at, tokens)
	n.own++
	return radix.Ref(n.id), nil
}

// Unpin implements radix.Cache.
func (c *Naive) Unpin(ref radix.Ref) error {
	if ref == 0 {
		return nil
	}
	n := c.byID(uint64(ref))
	if n == nil || n.own == 0 {
		return radix.ErrRef
	}
	n.own--
	return nil
}

// Insert implements radix.Cache.
func (c *Naive) Insert(scope string, tokens []int32, pages []kv.PageID, seq kv.SeqID) (radix.Inserted, error) {
	in := radix.Inserted{Freed: radix.NoSeq}
	switch {
	case len(tokens)%c.pageTokens != 0:
		return in, radix.ErrTokens
	case len(pages)*c.pageTokens != len(tokens):
		return in, radix.ErrPages
	case seq < 0:
		return in, radix.ErrOwner
	case len(tokens) == 0:
		return in, nil
	}
	for _, n := range c.nodes {
		if n.owner == seq && (n.scope != scope || !prefix(n.tokens, tokens) && !prefix(tokens, n.tokens)) {
			return in, radix.ErrOwner
		}
	}
	n, at := c.longest(scope, tokens)
	k := n / c.pageTokens
	if at != nil && !slices.Equal(at.pages[:k], pages[:k]) {
		return in, radix.ErrPages
	}
	for i, id := range pages[k:] {
		if id < 0 || slices.Contains(pages[:k+i], id) {
			return in, radix.ErrPages
		}
		for _, o := range c.nodes {
			if slices.Contains(o.pages, id) {
				return in, radix.ErrPages
			}
		}
	}
	if at != nil {
		at = c.end(at, n)
	}
	if n < len(tokens) {
		in.Fresh = pages[k:]
		if at != nil && at.owner >= 0 {
			if at.owner != seq {
				in.Freed = at.owner
			}
			at.owner = radix.NoSeq
		}
		c.ids++
		at = &node{id: c.ids, scope: scope, tokens: slices.Clone(tokens), pages: slices.Clone(pages), start: n, owner: seq}
		c.nodes = append(c.nodes, at)
	}
	c.touch(scope, tokens)
	at.own++
	in.Ref, in.Owner = radix.Ref(at.id), at.owner == seq
	return in, nil
}

// Owned implements radix.Cache.
func (c *Naive) Owned(seq kv.SeqID) (tokens int, ok bool) {
	for _, n := range c.nodes {
		if seq >= 0 && n.owner == seq {
			return len(n.tokens), true
		}
	}
	return 0, false
}

// Adopt implements radix.Cache.
func (c *Naive) Adopt(ref radix.Ref, seq kv.SeqID) (former kv.SeqID, ok bool) {
	n := c.byID(uint64(ref))
	if _, owns := c.Owned(seq); n == nil || seq < 0 || owns || n.own == 0 || !c.leaf(n) {
		return radix.NoSeq, false
	}
	former, n.owner = n.owner, seq
	return former, true
}

// Evict implements radix.Cache.
func (c *Naive) Evict() (radix.Evicted, bool) {
	var oldest *node
	for _, n := range c.nodes {
		if c.leaf(n) && n.own == 0 && (oldest == nil || n.used < oldest.used) {
			oldest = n
		}
	}
	if oldest == nil {
		return radix.Evicted{Seq: radix.NoSeq}, false
	}
	return c.take(oldest), true
}

func (c *Naive) take(n *node) radix.Evicted {
	c.sums.Evictions++
	c.nodes = slices.DeleteFunc(c.nodes, func(o *node) bool { return o == n })
	out := radix.Evicted{Pages: n.pages[n.start/c.pageTokens:], Seq: n.owner}
	for _, o := range c.nodes {
		if o.scope == n.scope && slices.Equal(o.tokens, n.tokens[:n.start]) && c.leaf(o) {
			o.owner, out.Keep = n.owner, len(o.tokens)
		}
	}
	return out
}

// Remove implements radix.Cache.
func (c *Naive) Remove(ref radix.Ref) (radix.Evicted, bool, error) {
	none := radix.Evicted{Seq: radix.NoSeq}
	if err := c.Unpin(ref); err != nil || ref == 0 {
		return none, false, err
	}
	n := c.byID(uint64(ref))
	if !c.leaf(n) || n.own > 0 {
		return none, false, nil
	}
	return c.take(n), true, nil
}

// Stats implements radix.Cache.
func (c *Naive) Stats() radix.Stats {
	s := c.sums
	for _, n := range c.nodes {
		pages := (len(n.tokens) - n.start) / c.pageTokens
		s.Nodes++
		s.Pages += pages
		if c.leaf(n) {
			s.Leaves++
		}
		if c.pins(n) > 0 {
			s.PinnedPages += pages
		} else {
			s.EvictablePages += pages
		}
	}
	return s
}

// Walk implements radix.Cache.
func (c *Naive) Walk(visit func(radix.NodeView) bool) {
	for _, n := range c.nodes {
		v := radix.NodeView{Scope: n.scope, Tokens: n.tokens, Start: n.start, Pages: n.pages[n.start/c.pageTokens:], Owner: n.owner, Pins: c.pins(n)}
		if !visit(v) {
			return
		}
	}
}

// Check implements radix.Cache: every leaf has one owner, no interior node has one, and no id owns two leaves.
func (c *Naive) Check() error {
	owners := map[kv.SeqID]bool{}
	for _, n := range c.nodes {
		if c.leaf(n) != (n.owner >= 0) || owners[n.owner] {
			return fmt.Errorf("%w: node %d and owner %d", radix.ErrInvariant, n.id, n.owner)
		}
		if n.owner >= 0 {
			owners[n.owner] = true
		}
	}
	return nil
}
