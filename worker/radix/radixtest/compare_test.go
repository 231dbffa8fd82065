package radixtest_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
)

// view is everything that can be seen of a world.
type view struct {
	kv     kv.Stats
	cache  radix.Stats
	nodes  []string
	owned  string
	tables string
}

// compare checks both worlds and compares all that can be seen of them.
func (d *driver) compare() {
	d.t.Helper()
	for i, w := range d.worlds {
		for _, err := range []error{w.kv.Check(), w.cache.Check()} {
			if err != nil {
				d.t.Fatalf("operation %d, world %d, after %s: %v", d.ops, i, d.lastWhat, err)
			}
		}
	}
	cached := map[kv.PageID]bool{}
	kept := map[*sequence]bool{}
	both(d, "state after "+d.lastWhat, func(w world, i int) view {
		v := view{kv: w.kv.Stats(), cache: w.cache.Stats()}
		w.cache.Walk(func(n radix.NodeView) bool {
			v.nodes = append(v.nodes, fmt.Sprint(n))
			for _, id := range n.Pages {
				cached[id] = true
			}
			for _, s := range d.running {
				if n.Scope == s.scope && len(n.Tokens) >= s.pinned && slices.Equal(n.Tokens[:s.pinned], s.tokens[:s.pinned]) {
					kept[s] = true
				}
			}
			return true
		})
		slices.Sort(v.nodes)
		var owned, tables strings.Builder
		for id := range kv.SeqID(d.seqs + 1) {
			n, ok := w.cache.Owned(id)
			fmt.Fprint(&owned, n, ok, " ")
		}
		for _, s := range d.running {
			fmt.Fprint(&tables, s.tables[i].Pages(), s.tables[i].Tokens(), " ")
		}
		v.owned, v.tables = owned.String(), tables.String()
		return v
	})
	held := d.held()
	if len(held) != len(cached) {
		d.t.Fatalf("operation %d, after %s: %d pages are held, %d cached", d.ops, d.lastWhat, len(held), len(cached))
	}
	for _, id := range held {
		if !cached[id] {
			d.t.Fatalf("operation %d, after %s: page %d is held and not cached", d.ops, d.lastWhat, id)
		}
	}
	for _, s := range d.running {
		if s.pinned > 0 && !kept[s] {
			d.t.Fatalf("operation %d, after %s: a pinned prefix of %d tokens is gone", d.ops, d.lastWhat, s.pinned)
		}
	}
}
