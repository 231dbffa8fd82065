package radix

// Hashes appends to dst a hash of every cached prefix of whole pages, as many as there are pages, in no particular order: root
// gives that of a scope's empty prefix, extend that of a prefix and one page more. It takes time in proportion to the cached
// tokens, and changes nothing.
func (t *Tree) Hashes(root func(scope string) uint64, extend func(prefix uint64, page []int32) uint64, dst []uint64) []uint64 {
	for scope, at := range t.scopes {
		dst = t.hashes(at, root(scope), extend, dst)
	}
	return dst
}

// hashes does it for what lies below a node, whose own hash is given.
func (t *Tree) hashes(at index, prefix uint64, extend func(uint64, []int32) uint64, dst []uint64) []uint64 {
	for _, c := range t.nodes[at].children {
		h := prefix
		for edge := t.nodes[c.at].tokens; len(edge) > 0; edge = edge[t.pageTokens:] {
			h = extend(h, edge[:t.pageTokens])
			dst = append(dst, h)
		}
		dst = t.hashes(c.at, h, extend, dst)
	}
	return dst
}
