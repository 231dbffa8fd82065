package gbm

// noise is more than rounding can add to a gain, as a share of it or, per weight of a leaf, of nothing: gains per weight lie in
// [0, 1).
const noise = 1e-10

// better says whether a gain is larger by more than rounding. Counts often tie, and the first must win on every processor.
func better(gain, best float64) bool { return gain > best*(1+noise) }

// split is the best way found to part a leaf; gain 0 is none.
type split struct {
	gain    float64
	feature int
	bin     uint8 // rows up to this bin go left
}

// bestSplit looks for the split of a leaf with the largest gain.
func (g *grower) bestSplit(h *histogram) split {
	var best split
	level, l2 := g.params.Level, g.params.L2
	for _, f := range g.features {
		edges := g.data.edges[f]
		if len(edges) == 0 {
			continue
		}
		var all cell
		for bin := range len(edges) + 1 {
			all = all.plus(h.cell(f, bin))
		}
		if all.rows < 2*g.params.MinRows {
			return split{}
		}
		parent := all.gradient(level)
		before := parent * parent / (all.weight + l2)
		sign := float64(g.params.sign(f))
		var left cell
		for bin := range edges {
			c := h.cell(f, bin)
			if c.rows == 0 {
				continue
			}
			left = left.plus(c)
			right := all.minus(left)
			if left.rows < g.params.MinRows {
				continue
			}
			if right.rows < g.params.MinRows {
				break
			}
			// Differences of sums of weights may leave less than nothing.
			if left.weight <= 0 || right.weight <= 0 {
				continue
			}
			gl, gr := left.gradient(level), right.gradient(level)
			sl, sr := gl/(left.weight+l2), gr/(right.weight+l2)
			if sign*(sr-sl) > 0 {
				continue
			}
			if gain := gl*sl + gr*sr - before; gain > noise*all.weight && better(gain, best.gain) {
				best = split{gain: gain, feature: f, bin: uint8(bin)}
			}
		}
	}
	return best
}
