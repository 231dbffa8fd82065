package gbm

import (
	"math"
	"math/rand/v2"
)

// grower holds what the trees of one training share. Its buffers are reused from tree to tree.
type grower struct {
	params   *Params
	data     binned
	weights  []float64
	residual []float64 // label − prediction
	over     []uint8   // 1 where the prediction is at or over the label

	order    []uint32 // rows of the tree; each leaf owns a range of it
	rest     []uint32 // rows that were not drawn
	scratch  []uint32
	points   []weighted
	features []int // features of the tree
	shuffled []int
	leaves   []leaf
	free     []*histogram
}

// leaf is a leaf of a tree that grows.
type leaf struct {
	node       int     // its place in the model
	first, end int     // range of order, half-open
	low, high  float64 // bounds of its value
	hist       *histogram
	best       split
}

func newGrower(p *Params, d Data) *grower {
	rows, features := d.Rows(), len(d.Columns)
	g := &grower{
		params: p, data: newBinned(d, p.Bins), weights: d.Weights,
		residual: make([]float64, rows), over: make([]uint8, rows),
		order: make([]uint32, 0, rows), scratch: make([]uint32, rows), points: make([]weighted, 0, rows),
		shuffled: make([]int, features), leaves: make([]leaf, 0, p.Leaves),
	}
	for f := range g.shuffled {
		g.shuffled[f] = f
	}
	return g
}

// draw chooses the rows and features of a tree.
func (g *grower) draw(rng *rand.Rand) {
	rows := len(g.residual)
	g.order, g.rest = g.order[:0], g.rest[:0]
	left := max(1, int(math.Ceil(g.params.RowFraction*float64(rows))))
	for row := range rows {
		// Selection sampling (Knuth, TAOCP 3.4.2, algorithm S) keeps the rows in order.
		if left == rows-row || rng.IntN(rows-row) < left {
			g.order = append(g.order, uint32(row))
			left--
		} else {
			g.rest = append(g.rest, uint32(row))
		}
	}
	n := max(1, int(math.Ceil(g.params.FeatureFraction*float64(len(g.shuffled)))))
	g.features = g.shuffled[:n]
	if n == len(g.shuffled) {
		return
	}
	for i := range n {
		k := i + rng.IntN(len(g.shuffled)-i)
		g.shuffled[i], g.shuffled[k] = g.shuffled[k], g.shuffled[i]
	}
}

// grow appends a tree to the model and moves the residuals of its rows. It returns false, and appends nothing, if no split
// is worth anything.
func (g *grower) grow(m *Model) bool {
	for row, r := range g.residual {
		g.over[row] = 0
		if r <= 0 {
			g.over[row] = 1
		}
	}
	trees := len(m.roots)
	m.roots = append(m.roots, m.appendLeaf(len(g.order)))
	root := leaf{node: m.roots[trees], end: len(g.order), low: math.Inf(-1), high: math.Inf(1), hist: g.takeHistogram()}
	root.hist.fill(g.data, g.order, g.over, g.weights)
	root.best = g.bestSplit(root.hist)
	g.leaves = append(g.leaves[:0], root)
	for len(g.leaves) < g.params.Leaves {
		k := g.richest()
		if k < 0 {
			break
		}
		g.split(m, k)
	}
	for i := range g.leaves {
		g.dropHistogram(&g.leaves[i])
	}
	if len(g.leaves) == 1 {
		m.keep(trees)
		return false
	}
	for i := range g.leaves {
		l := &g.leaves[i]
		value := g.params.LearningRate * g.value(l.first, l.end, l.low, l.high)
		m.values[l.node] = value
		for _, row := range g.order[l.first:l.end] {
			g.residual[row] -= value
		}
	}
	return true
}

// richest returns the leaf whose split gains most, or −1.
func (g *grower) richest() int {
	best := -1
	for i := range g.leaves {
		if gain := g.leaves[i].best.gain; gain > 0 && (best < 0 || better(gain, g.leaves[best].best.gain)) {
			best = i
		}
	}
	return best
}

// split parts leaf k as its best split says: the left child takes its place, the right one is appended.
func (g *grower) split(m *Model, k int) {
	parent := g.leaves[k]
	s := parent.best
	mid := g.partition(parent.first, parent.end, s)
	left := leaf{first: parent.first, end: mid, low: parent.low, high: parent.high}
	right := leaf{first: mid, end: parent.end, low: parent.low, high: parent.high}
	if sign := g.params.sign(s.feature); sign != 0 {
		vl, vr := g.value(left.first, left.end, left.low, left.high), g.value(right.first, right.end, right.low, right.high)
		// All of one side stays below the middle, all of the other above it, however they are split further. Where gradients and
		// quantiles disagree on the direction, both sides start at the middle.
		middle := vl + (vr-vl)/2
		if sign > 0 {
			left.high, right.low = middle, middle
		} else {
			left.low, right.high = middle, middle
		}
	}
	left.node = m.appendLeaf(left.end - left.first)
	right.node = m.appendLeaf(right.end - right.first)
	m.nodes[parent.node] = node{
		threshold: g.data.edges[s.feature][s.bin], feature: uint16(s.feature), skip: uint16(left.node - parent.node),
	}
	m.rows[parent.node] = 0
	m.gain[s.feature] += s.gain
	if len(g.leaves)+1 < g.params.Leaves && max(left.end-left.first, right.end-right.first) >= 2*g.params.MinRows {
		g.share(&parent, &left, &right)
	} else {
		g.dropHistogram(&parent)
	}
	g.leaves[k] = left
	g.leaves = append(g.leaves, right)
}

// share counts the smaller child, makes the parent's histogram that of the larger, and looks for their splits.
func (g *grower) share(parent, left, right *leaf) {
	small, large := left, right
	if right.end-right.first < left.end-left.first {
		small, large = right, left
	}
	small.hist, large.hist = g.takeHistogram(), parent.hist
	small.hist.fill(g.data, g.order[small.first:small.end], g.over, g.weights)
	large.hist.subtract(small.hist)
	small.best = g.bestSplit(small.hist)
	large.best = g.bestSplit(large.hist)
}

// partition moves the rows that go left before those that go right, keeps their order, and returns where the right begin.
func (g *grower) partition(first, end int, s split) int {
	mid, n := first, 0
	for _, row := range g.order[first:end] {
		// Both are written and one is kept: which way a row goes is a coin toss to the branch predictor.
		g.order[mid], g.scratch[n] = row, row
		goesRight := 0
		if g.data.bins[int(row)*g.data.features+s.feature] > s.bin {
			goesRight = 1
		}
		n += goesRight
		mid += 1 - goesRight
	}
	copy(g.order[mid:end], g.scratch[:n])
	return mid
}

// value returns what a leaf with these rows adds at a learning rate of 1.
func (g *grower) value(first, end int, low, high float64) float64 {
	points := g.points[:0]
	var total float64
	for _, row := range g.order[first:end] {
		w := weight(g.weights, int(row))
		points = append(points, weighted{g.residual[row], w})
		total += w
	}
	v := quantile(points, g.params.Level) * (total / (total + g.params.L2))
	return min(max(v, low), high)
}

func (g *grower) takeHistogram() *histogram {
	if n := len(g.free); n > 0 {
		h := g.free[n-1]
		g.free = g.free[:n-1]
		return h
	}
	return newHistogram(g.data.features, g.weights != nil)
}

func (g *grower) dropHistogram(l *leaf) {
	if l.hist != nil {
		g.free = append(g.free, l.hist)
		l.hist = nil
	}
}
