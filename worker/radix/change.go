package radix

import (
	"fmt"

	"github.com/cadence-slo/cadence/worker/kv"
)

// Insert implements Cache.
func (t *Tree) Insert(scope string, tokens []int32, pages []kv.PageID, seq kv.SeqID) (Inserted, error) {
	in := Inserted{Freed: NoSeq}
	if err := t.whole(len(tokens)); err != nil {
		return in, err
	}
	if len(pages) != len(tokens)/t.pageTokens {
		return in, fmt.Errorf("%w: %d for %d tokens", ErrPages, len(pages), len(tokens))
	}
	if seq < 0 {
		return in, fmt.Errorf("%w: %d", ErrOwner, seq)
	}
	if len(tokens) == 0 {
		return in, nil
	}
	root := t.scopes[scope]
	at, n := root, 0
	if root != 0 {
		at, n = t.find(root, tokens)
	}
	if err := t.mayOwn(seq, at, n, n < len(tokens)); err != nil {
		return in, err
	}
	for up := at; up != root; up = t.nodes[up].parent {
		u := &t.nodes[up]
		for i, id := range u.pages[:(min(n, u.end)-u.start)/t.pageTokens] {
			if k := u.start/t.pageTokens + i; pages[k] != id {
				return in, fmt.Errorf("%w: page %d is %d, cached is %d", ErrPages, k, pages[k], id)
			}
		}
	}
	fresh := pages[n/t.pageTokens:]
	if err := t.mark(fresh); err != nil {
		return in, err
	}
	// Nothing fails from here on.
	if root == 0 {
		root = t.newNode(0)
		t.nodes[root].scope = scope
		t.scopes[scope] = root
		at = root
	}
	if n < t.nodes[at].end {
		at = t.split(at, n)
	}
	if n < len(tokens) {
		in.Fresh = fresh
		if was := t.nodes[at].owner; was >= 0 {
			t.disown(at)
			if was != seq {
				in.Freed = was
			}
		}
		at = t.grow(at, tokens[n:], fresh, seq)
	}
	t.touch(at)
	in.Owner = t.nodes[at].owner == seq
	in.Ref = t.pin(at)
	return in, nil
}

// mayOwn returns ErrOwner if seq owns a leaf that is not on the path to insert, of which n tokens are cached, ending in
// node at. A leaf below the end of the path is on the longer path that seq holds, and stays as it is.
func (t *Tree) mayOwn(seq kv.SeqID, at index, n int, grows bool) error {
	if int(seq) >= len(t.owned) || t.owned[seq] == 0 {
		return nil
	}
	leaf := t.owned[seq]
	if grows && leaf == at && n == t.nodes[at].end {
		return nil
	}
	if !grows {
		for up := leaf; up != 0; up = t.nodes[up].parent {
			if up == at {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: %d owns another leaf", ErrOwner, seq)
}

// mark notes pages that come into the tree, all or none: ErrPages if one is in it already.
func (t *Tree) mark(pages []kv.PageID) error {
	for i, id := range pages {
		if id >= 0 {
			for int(id)/64 >= len(t.cached) {
				t.cached = append(t.cached, 0)
			}
		}
		if id < 0 || t.cached[id/64]&(1<<(id%64)) != 0 {
			t.unmark(pages[:i])
			return fmt.Errorf("%w: %d is cached elsewhere or no page", ErrPages, id)
		}
		t.cached[id/64] |= 1 << (id % 64)
	}
	return nil
}

func (t *Tree) unmark(pages []kv.PageID) {
	for _, id := range pages {
		t.cached[id/64] &^= 1 << (id % 64)
	}
}

// newNode returns a node without an edge below parent, which does not list it yet.
func (t *Tree) newNode(parent index) index {
	var at index
	if last := len(t.free) - 1; last >= 0 {
		at = t.free[last]
		t.free = t.free[:last]
	} else {
		at = index(len(t.nodes))
		t.nodes = append(t.nodes, node{})
	}
	n := &t.nodes[at]
	*n = node{parent: parent, gen: n.gen + 1, owner: NoSeq, source: NoSeq,
		tokens: n.tokens[:0], pages: n.pages[:0], children: n.children[:0]}
	return at
}

// recycle makes a node free. Its slices stay as they are until it is used again.
func (t *Tree) recycle(at index) {
	t.nodes[at].gen++
	t.nodes[at].scope = ""
	t.free = append(t.free, at)
}

// grow adds a leaf below parent, which owns nothing, and returns it. It is not pinned, and not listed: the caller pins.
func (t *Tree) grow(parent index, tokens []int32, pages []kv.PageID, seq kv.SeqID) index {
	at := t.newNode(parent)
	n, p := &t.nodes[at], &t.nodes[parent]
	n.start, n.end = p.end, p.end+len(tokens)
	n.tokens = append(n.tokens, tokens...)
	n.pages = append(n.pages, pages...)
	p.children = append(p.children, child{hash(tokens[:t.pageTokens]), at})
	t.stats.Nodes++
	t.stats.Pages += len(pages)
	t.own(at, seq)
	n.used = t.clock
	t.enlist(at)
	return at
}

// own makes seq the owner of the leaf at.
func (t *Tree) own(at index, seq kv.SeqID) {
	for int(seq) >= len(t.owned) {
		t.owned = append(t.owned, 0)
	}
	t.owned[seq] = at
	t.nodes[at].owner = seq
	t.stats.Leaves++
	t.updateSource(at)
}

// disown takes the owner of leaf at away, and the leaf off the list of candidates.
func (t *Tree) disown(at index) {
	n := &t.nodes[at]
	t.owned[n.owner] = 0
	n.owner = NoSeq
	t.stats.Leaves--
	if n.pins == 0 {
		t.unlist(at)
	}
}

// updateSource sets the source of at and of the nodes above it, for as long as it changes.
func (t *Tree) updateSource(at index) {
	for ; at != 0; at = t.nodes[at].parent {
		n := &t.nodes[at]
		lowest := n.owner
		for _, c := range n.children {
			if s := t.nodes[c.at].source; lowest < 0 || s >= 0 && s < lowest {
				lowest = s
			}
		}
		if lowest == n.source {
			return
		}
		n.source = lowest
	}
}

// split cuts the edge of at after tokens tokens of its path, and returns the node that ends there, which is new.
func (t *Tree) split(at index, tokens int) index {
	head := t.newNode(t.nodes[at].parent)
	h, n := &t.nodes[head], &t.nodes[at]
	cut := tokens - n.start
	h.start, h.end, h.pins, h.used, h.source = n.start, tokens, n.pins, n.used, n.source
	h.tokens = append(h.tokens, n.tokens[:cut]...)
	h.pages = append(h.pages, n.pages[:cut/t.pageTokens]...)
	n.start, n.parent = tokens, head
	n.tokens = append(n.tokens[:0], n.tokens[cut:]...)
	n.pages = append(n.pages[:0], n.pages[cut/t.pageTokens:]...)
	h.children = append(h.children, child{hash(n.tokens[:t.pageTokens]), at})
	siblings := t.nodes[h.parent].children
	for i := range siblings {
		if siblings[i].at == at {
			siblings[i].at = head // the first page, and so the hash, is the same
		}
	}
	t.stats.Nodes++
	t.stats.Splits++
	return head
}

// Evict implements Cache.
func (t *Tree) Evict() (Evicted, bool) {
	if at := t.nodes[0].next; at != 0 {
		return t.take(at), true
	}
	return Evicted{Seq: NoSeq}, false
}

// Remove implements Cache.
func (t *Tree) Remove(ref Ref) (Evicted, bool, error) {
	if ref == 0 {
		return Evicted{Seq: NoSeq}, false, nil
	}
	at, err := t.unpin(ref)
	if err != nil || t.nodes[at].owner < 0 || t.nodes[at].pins > 0 {
		return Evicted{Seq: NoSeq}, false, err
	}
	return t.take(at), true, nil
}

// Adopt implements Cache.
func (t *Tree) Adopt(ref Ref, seq kv.SeqID) (former kv.SeqID, ok bool) {
	at := t.resolve(uint64(ref))
	if _, owns := t.Owned(seq); at == 0 || seq < 0 || owns || t.nodes[at].own == 0 || t.nodes[at].owner < 0 {
		return NoSeq, false
	}
	former = t.nodes[at].owner
	t.disown(at)
	t.own(at, seq)
	return former, true
}

// take takes an unpinned leaf out. Its parent, if it has no other child and is no root, becomes a leaf of the same
// owner, who holds its cells too; a root without children goes.
func (t *Tree) take(at index) Evicted {
	parent, seq := t.nodes[at].parent, t.nodes[at].owner
	out := Evicted{Pages: t.nodes[at].pages, Seq: seq}
	t.disown(at)
	t.unmark(out.Pages)
	t.stats.Nodes--
	t.stats.Pages -= len(out.Pages)
	t.stats.Evictions++
	t.recycle(at)
	p := &t.nodes[parent]
	for i, c := range p.children {
		if c.at == at {
			last := len(p.children) - 1
			p.children[i] = p.children[last]
			p.children = p.children[:last]
			break
		}
	}
	switch {
	case len(p.children) > 0:
		t.updateSource(parent)
	case p.parent == 0:
		delete(t.scopes, p.scope)
		t.recycle(parent)
	default:
		out.Keep = p.end
		t.own(parent, seq)
		if p.pins == 0 {
			t.enlist(parent)
		}
	}
	return out
}
