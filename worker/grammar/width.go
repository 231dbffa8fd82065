package grammar

import "slices"

// A grammar sampler follows every way in which the text so far can be read. Where alternatives begin alike there are
// several, each of them again where such alternatives are nested: without a bound, a schema of two lines could fill the
// memory of an engine that others use. width bounds them from above; alternatives that differ from the first character,
// or in the first property of objects, count as one.

// narrow refuses a schema that is wider than MaxStates.
func (c *compiler) narrow() error {
	w := &widths{c: c, refs: map[*node]int{}, flat: map[*node][]*node{}}
	for _, target := range c.named {
		w.known(target)
	}
	for rounds := 0; ; rounds++ {
		w.grown = false
		most := w.of(c.root)
		for i := 0; i < len(w.order); i++ { // which may grow meanwhile
			target := w.order[i]
			now := w.of(target)
			w.grown = w.grown || now > w.refs[target]
			w.refs[target] = now
			most = max(most, now)
		}
		switch {
		case most > MaxStates || rounds == 1000:
			return w.at.fail("the alternatives begin alike, and what follows would have to be read in more than %d ways:"+
				" let each begin with a required property of another name or another const", MaxStates)
		case !w.grown:
			return nil
		}
	}
}

type widths struct {
	c     *compiler
	refs  map[*node]int     // of what schemas lead to by $ref or alternatives, as far as is known
	order []*node           // the same schemas, as they were found: what is reported must not depend on chance
	grown bool              // one of them, since it was last set
	at    *node             // the first of the widest alternatives that begin alike
	most  int               // their width
	flat  map[*node][]*node // leaves of alternatives
}

// known returns the width of an alternative as far as is known: it may lead back to where it stands.
func (w *widths) known(n *node) int {
	if w.refs[n] == 0 {
		w.refs[n], w.order = 1, append(w.order, n)
		w.grown = true
	}
	return w.refs[n]
}

// of returns the width of a schema that has been compiled.
func (w *widths) of(n *node) int {
	if n.kind != object {
		return 1
	}
	if v := n.get("$ref"); v != nil {
		target, err := w.c.resolve(v)
		if err != nil {
			return 1
		}
		return w.known(target)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if v := n.get(key); v != nil {
			return w.alternatives(v)
		}
	}
	most := 1
	for _, v := range parts(n) {
		most = max(most, w.of(v))
	}
	return most
}

// parts are the schemas in a schema of which a sentence contains one at a time.
func parts(n *node) []*node {
	var all []*node
	if v := n.get("allOf"); v != nil {
		all = append(all, v.items...)
	}
	if v := n.get("properties"); v != nil {
		for _, m := range v.members {
			all = append(all, m.value)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if v := n.get(key); v != nil {
			all = append(all, v)
		}
	}
	return all
}

func (w *widths) alternatives(v *node) int {
	leaves, known := w.flat[v]
	if !known {
		w.leaves(v.items, &leaves, map[*node]bool{})
		w.flat[v] = leaves
	}
	if len(leaves) > MaxAlternatives {
		w.alike(v, MaxStates+1)
		return MaxStates + 1
	}
	most := 1
	for _, kind := range []string{"object", "array", "string"} {
		var alike []*node
		for _, leaf := range leaves {
			if w.maybe(leaf, kind) {
				alike = append(alike, leaf)
			}
		}
		sum := 0
		for _, leaf := range alike {
			width := w.known(leaf)
			sum += width
			most = max(most, width)
		}
		if len(alike) > 1 && !(kind == "object" && w.distinct(alike)) {
			w.alike(v, sum)
			most = max(most, sum)
		}
	}
	return most
}

// alike notes the width of alternatives that begin alike.
func (w *widths) alike(v *node, width int) {
	if width > w.most {
		w.at, w.most = v, width
	}
}

// leaves appends the schemas that alternatives come to, through references and alternatives in them; it stops when there
// are too many.
func (w *widths) leaves(schemas []*node, all *[]*node, seen map[*node]bool) {
	for _, n := range schemas {
		if len(*all) > MaxAlternatives {
			return
		}
		switch {
		case n.get("$ref") != nil:
			if target, err := w.c.resolve(n.get("$ref")); err == nil && !seen[target] {
				seen[target] = true
				w.leaves([]*node{target}, all, seen)
				delete(seen, target)
			}
		case n.get("anyOf") != nil:
			w.leaves(n.get("anyOf").items, all, seen)
		case n.get("oneOf") != nil:
			w.leaves(n.get("oneOf").items, all, seen)
		case n.get("allOf") != nil:
			w.leaves(n.get("allOf").items, all, seen)
		default:
			*all = append(*all, n)
		}
	}
}

// maybe reports whether an instance of a schema can be of that type. Constants are no concern: they end at once.
func (w *widths) maybe(n *node, kind string) bool {
	if n.get("const") != nil || n.get("enum") != nil {
		return false
	}
	types, err := typesOf(n)
	if err != nil || types == nil {
		switch {
		case n.get("properties") != nil || n.get("required") != nil || n.get("additionalProperties") != nil:
			return kind == "object"
		case n.get("items") != nil:
			return kind == "array"
		}
		return true
	}
	return slices.Contains(types, kind)
}

// distinct reports whether the first property tells objects apart.
func (w *widths) distinct(objects []*node) bool {
	type lead struct {
		key    string
		values []string // nil: any
	}
	var leads []lead
	for _, n := range objects {
		properties, must := n.get("properties"), n.get("required")
		if properties == nil || len(properties.members) == 0 || must == nil {
			return false
		}
		first := properties.members[0]
		if !slices.ContainsFunc(must.items, func(name *node) bool { return name.text == first.key }) {
			return false
		}
		l := lead{key: first.key}
		if v := first.value.get("const"); v != nil {
			l.values = []string{string(v.appendJSON(nil))}
		} else if v := first.value.get("enum"); v != nil {
			for _, item := range v.items {
				l.values = append(l.values, string(item.appendJSON(nil)))
			}
		}
		for _, other := range leads {
			if other.key != l.key {
				continue
			}
			if other.values == nil || l.values == nil || slices.ContainsFunc(l.values, func(s string) bool { return slices.Contains(other.values, s) }) {
				return false
			}
		}
		leads = append(leads, l)
	}
	return true
}
