package radix

import (
	"fmt"
	"slices"

	"github.com/cadence-slo/cadence/worker/kv"
)

// Walk implements Cache.
func (t *Tree) Walk(visit func(NodeView) bool) {
	var path []int32
	var down func(scope string, at index) bool
	down = func(scope string, at index) bool {
		n := &t.nodes[at]
		path = append(path[:n.start], n.tokens...)
		if n.parent != 0 && !visit(NodeView{Scope: scope, Tokens: path, Start: n.start, Pages: n.pages, Owner: n.owner, Pins: int(n.pins)}) {
			return false
		}
		for _, c := range n.children {
			if !down(scope, c.at) {
				return false
			}
		}
		return true
	}
	for scope, root := range t.scopes {
		if !down(scope, root) {
			return
		}
	}
}

// check is what one verification has seen so far.
type check struct {
	t      *Tree
	seen   map[index]bool
	pages  map[kv.PageID]bool
	pinned int
	leaves int
	listed int // unpinned leaves
}

// Check implements Cache.
func (t *Tree) Check() error {
	c := check{t: t, seen: map[index]bool{}, pages: map[kv.PageID]bool{}}
	for scope, root := range t.scopes {
		if n := &t.nodes[root]; n.scope != scope || n.parent != 0 || n.end != 0 || len(n.children) == 0 {
			return fmt.Errorf("%w: root of scope %q", ErrInvariant, scope)
		}
		if err := c.node(root); err != nil {
			return err
		}
	}
	for _, at := range t.free {
		if at == 0 || c.seen[at] || t.nodes[at].gen%2 != 0 {
			return fmt.Errorf("%w: node %d is free and in use", ErrInvariant, at)
		}
		c.seen[at] = true
	}
	if len(c.seen) != len(t.nodes)-1 {
		return fmt.Errorf("%w: %d nodes of %d are free or in use", ErrInvariant, len(c.seen), len(t.nodes)-1)
	}
	s := t.Stats()
	nodes := len(c.seen) - len(t.free) - len(t.scopes)
	if nodes != s.Nodes || c.leaves != s.Leaves || len(c.pages) != s.Pages || c.pinned != s.PinnedPages {
		return fmt.Errorf("%w: %d nodes, %d leaves, %d pages, %d pinned; the books say %+v", ErrInvariant, nodes, c.leaves, len(c.pages), c.pinned, s)
	}
	owners, marked := 0, 0
	for seq, at := range t.owned {
		if at != 0 {
			owners++
			if t.nodes[at].owner != kv.SeqID(seq) {
				return fmt.Errorf("%w: sequence %d owns node %d, which is owned by %d", ErrInvariant, seq, at, t.nodes[at].owner)
			}
		}
	}
	for id := range len(t.cached) * 64 {
		if t.cached[id/64]&(1<<(id%64)) != 0 {
			marked++
		}
	}
	if owners != c.leaves || marked != len(c.pages) {
		return fmt.Errorf("%w: %d owners of %d leaves, %d marks of %d pages", ErrInvariant, owners, c.leaves, marked, len(c.pages))
	}
	return t.checkList(c.listed)
}

// node verifies at and all below it.
func (c *check) node(at index) error {
	t, n := c.t, &c.t.nodes[at]
	root := n.parent == 0
	leaf := len(n.children) == 0 && !root
	bad := func(what string) error { return fmt.Errorf("%w: node %d %s", ErrInvariant, at, what) }
	if c.seen[at] {
		return bad("is in two places")
	}
	c.seen[at] = true
	switch {
	case n.gen%2 != 1:
		return bad("is in use and free")
	case leaf != (n.owner >= 0):
		return bad(fmt.Sprintf("has owner %d and %d children", n.owner, len(n.children)))
	case leaf && (int(n.owner) >= len(t.owned) || t.owned[n.owner] != at):
		return bad("is not what its owner owns")
	case len(n.tokens) != n.end-n.start || len(n.tokens) != len(n.pages)*t.pageTokens || !root && len(n.pages) == 0:
		return bad(fmt.Sprintf("has %d tokens and %d pages in [%d, %d)", len(n.tokens), len(n.pages), n.start, n.end))
	case n.used > t.clock:
		return bad("was used in the future")
	}
	for _, id := range n.pages {
		if c.pages[id] || id < 0 || t.cached[id/64]&(1<<(id%64)) == 0 {
			return bad(fmt.Sprintf("has page %d, which is in two places or not marked", id))
		}
		c.pages[id] = true
	}
	if leaf {
		c.leaves++
		if n.pins == 0 {
			c.listed++
		}
	}
	if n.pins > 0 {
		c.pinned += len(n.pages)
	}
	pins, source := n.own, n.owner
	for i, ch := range n.children {
		k := &t.nodes[ch.at]
		if k.parent != at || k.start != n.end || len(k.tokens) < t.pageTokens || ch.hash != hash(k.tokens[:t.pageTokens]) {
			return bad(fmt.Sprintf("does not fit its child %d", ch.at))
		}
		if k.used > n.used && !root {
			return bad(fmt.Sprintf("was used before its child %d", ch.at))
		}
		for _, other := range n.children[:i] {
			if slices.Equal(t.nodes[other.at].tokens[:t.pageTokens], k.tokens[:t.pageTokens]) {
				return bad(fmt.Sprintf("has two children with the page of %d", ch.at))
			}
		}
		pins += k.pins
		if source < 0 || k.source >= 0 && k.source < source {
			source = k.source
		}
		if err := c.node(ch.at); err != nil {
			return err
		}
	}
	if pins != n.pins || n.own < 0 {
		return bad(fmt.Sprintf("has %d pins, %d of them its own; with its children's they are %d", n.pins, n.own, pins))
	}
	if source != n.source {
		return bad(fmt.Sprintf("has source %d instead of %d", n.source, source))
	}
	return nil
}

// checkList verifies the list of candidates, which has want entries.
func (t *Tree) checkList(want int) error {
	count, prev := 0, index(0)
	for at := t.nodes[0].next; at != 0; prev, at = at, t.nodes[at].next {
		n := &t.nodes[at]
		count++
		switch {
		case count > want:
			return fmt.Errorf("%w: more than %d candidates", ErrInvariant, want)
		case n.gen%2 != 1 || n.owner < 0 || n.pins > 0 || n.prev != prev:
			return fmt.Errorf("%w: candidate %d is no unpinned leaf or badly linked", ErrInvariant, at)
		case prev != 0 && t.nodes[prev].used >= n.used:
			return fmt.Errorf("%w: candidate %d was used before %d", ErrInvariant, at, prev)
		}
	}
	if count != want || t.nodes[0].prev != prev {
		return fmt.Errorf("%w: %d candidates of %d unpinned leaves", ErrInvariant, count, want)
	}
	return nil
}
