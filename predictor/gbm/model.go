package gbm

import (
	"math"
	"slices"
)

// Model is a fitted quantile. It does not change and is safe for concurrent use.
//
// The nodes of all trees lie in one array, tree after tree. A leaf is a node that leads to itself, so that several trees can
// be walked in step until all walks stand.
type Model struct {
	level, base float64
	roots       []int // per tree, rising
	nodes       []node
	values      []float64 // per node; what a leaf adds, learning rate included
	rows        []uint32  // per node; training rows of a leaf, those drawn for the tree
	low, high   []float32 // per feature; range in training
	gain        []float64 // per feature
	signs       []int8    // per feature; as Params.Monotone
}

type node struct {
	threshold float32 // +Inf in a leaf: nothing is above
	feature   uint16
	skip      uint16 // how far ahead the left child is, which the right child follows; 0 is a leaf
}

var leafNode = node{threshold: float32(math.Inf(1))}

// next returns the place of the node that x goes to from node k, k itself in a leaf.
func next(nodes []node, k int, x []float32) int {
	n := nodes[k]
	right := 0
	if x[n.feature] > n.threshold {
		right = 1
	}
	return k + int(n.skip) + right
}

// Level returns the quantile that was fitted, inside (0, 1).
func (m *Model) Level() float64 { return m.level }

// Features returns how many features an input has.
func (m *Model) Features() int { return len(m.low) }

// Trees returns the number of trees.
func (m *Model) Trees() int { return len(m.roots) }

// Range returns the least and the largest value of a feature, [0, Features), in training.
func (m *Model) Range(feature int) (low, high float32) { return m.low[feature], m.high[feature] }

// Sign returns the constraint that a feature, [0, Features), was fitted with, as in Params.Monotone. Every tree keeps it.
func (m *Model) Sign(feature int) int8 { return m.signs[feature] }

// Importance returns the gain of each feature's splits as a share of all gain. All are 0 if nothing was split.
func (m *Model) Importance() []float64 {
	share := slices.Clone(m.gain)
	var total float64
	for _, g := range share {
		total += g
	}
	for f := range share {
		if total > 0 {
			share[f] /= total
		}
	}
	return share
}

// Predict returns the quantile at x, in the label's unit. NaN goes left everywhere, as −Inf does; whether x is like what the
// model was fitted on is for Supported to say. An x with another number of features gets NaN.
func (m *Model) Predict(x []float32) float64 {
	if len(x) != len(m.low) {
		return math.NaN()
	}
	sum, roots := m.base, m.roots
	for ; len(roots) >= 4; roots = roots[4:] {
		at := [4]int(roots)
		walk(m.nodes, x, &at)
		for _, k := range at {
			sum += m.values[k]
		}
	}
	for _, root := range roots {
		sum += m.values[m.leaf(root, x)]
	}
	return sum
}

// Occupancy returns the harmonic mean of the training rows in the leaves that x reaches, one per tree: the noise of leaf
// values goes with the mean of 1/rows. 0 if x has another number of features, +Inf without trees.
func (m *Model) Occupancy(x []float32) float64 {
	if len(x) != len(m.low) {
		return 0
	}
	if len(m.roots) == 0 {
		return math.Inf(1)
	}
	sum, roots := 0.0, m.roots
	for ; len(roots) >= 4; roots = roots[4:] {
		at := [4]int(roots)
		walk(m.nodes, x, &at)
		for _, k := range at {
			sum += 1 / float64(m.rows[k])
		}
	}
	for _, root := range roots {
		sum += 1 / float64(m.rows[m.leaf(root, x)])
	}
	return float64(len(m.roots)) / sum
}

// Supported says whether x is like what the model was fitted on: every feature within its range in training, and an
// occupancy of at least minRows. A feature that was constant in training may have any finite value: the model knows nothing of it, as
// of whatever is no feature. outside is the first feature that is not within its range, or −1.
func (m *Model) Supported(x []float32, minRows float64) (ok bool, outside int) {
	if len(x) != len(m.low) {
		return false, -1
	}
	for f, v := range x {
		if !(v >= m.low[f] && v <= m.high[f]) && (m.low[f] < m.high[f] || v-v != 0) {
			return false, f
		}
	}
	return minRows <= 0 || m.Occupancy(x) >= minRows, -1
}

// PredictSupported is Predict and Supported in one walk. value is NaN unless ok.
func (m *Model) PredictSupported(x []float32, minRows float64) (value float64, ok bool) {
	if ok, _ := m.Supported(x, 0); !ok {
		return math.NaN(), false
	}
	value, few, roots := m.base, 0.0, m.roots
	for ; len(roots) >= 4; roots = roots[4:] {
		at := [4]int(roots)
		walk(m.nodes, x, &at)
		for _, k := range at {
			value += m.values[k]
			few += 1 / float64(m.rows[k])
		}
	}
	for _, root := range roots {
		k := m.leaf(root, x)
		value += m.values[k]
		few += 1 / float64(m.rows[k])
	}
	if minRows > 0 && len(m.roots) > 0 && float64(len(m.roots))/few < minRows {
		return math.NaN(), false
	}
	return value, true
}

// Loss returns the weighted mean pinball loss on data. Errors: those of Data.Check, and ErrShape.
func (m *Model) Loss(d Data) (float64, error) {
	if err := d.Check(); err != nil {
		return 0, err
	}
	if len(d.Columns) != len(m.low) {
		return 0, ErrShape
	}
	residual := make([]float64, d.Rows())
	for row, label := range d.Labels {
		prediction := m.base
		for _, root := range m.roots {
			prediction += m.values[m.leafOf(root, d.Columns, row)]
		}
		residual[row] = label - prediction
	}
	return meanLoss(m.level, residual, d.Weights), nil
}

// walk moves four places to the leaves that x ends in. Four walks hide each other's waits, and share the one branch that is
// hard to foresee.
func walk(nodes []node, x []float32, at *[4]int) {
	a, b, c, d := at[0], at[1], at[2], at[3]
	for {
		na, nb, nc, nd := next(nodes, a, x), next(nodes, b, x), next(nodes, c, x), next(nodes, d, x)
		if (na-a)|(nb-b)|(nc-c)|(nd-d) == 0 {
			break
		}
		a, b, c, d = na, nb, nc, nd
	}
	*at = [4]int{a, b, c, d}
}

// leaf returns the place of the leaf that x ends in.
func (m *Model) leaf(root int, x []float32) int {
	k := root
	for m.nodes[k].skip != 0 {
		k = next(m.nodes, k, x)
	}
	return k
}

// leafOf is leaf for a row of columns.
func (m *Model) leafOf(root int, columns [][]float32, row int) int {
	k := root
	for n := m.nodes[k]; n.skip != 0; n = m.nodes[k] {
		k += int(n.skip)
		if columns[n.feature][row] > n.threshold {
			k++
		}
	}
	return k
}

// monotone reports whether a tree keeps the signs: at each split on a feature with one, no leaf on the side that must not be higher is.
func (m *Model) monotone(tree int) bool {
	root, end := m.roots[tree], m.end(tree)
	n := end - root
	var low, high [2*maxLeaves - 1]float64 // of the leaves below
	for k := n - 1; k >= 0; k-- {          // children come after their parents
		x := &m.nodes[root+k]
		if x.skip == 0 {
			low[k], high[k] = m.values[root+k], m.values[root+k]
			continue
		}
		left, right := k+int(x.skip), k+int(x.skip)+1
		low[k], high[k] = min(low[left], low[right]), max(high[left], high[right])
		switch m.signs[x.feature] {
		case +1:
			if high[left] > low[right] {
				return false
			}
		case -1:
			if low[left] < high[right] {
				return false
			}
		}
	}
	return true
}

// end returns where the nodes of a tree end.
func (m *Model) end(tree int) int {
	if tree+1 < len(m.roots) {
		return m.roots[tree+1]
	}
	return len(m.nodes)
}

// appendLeaf appends a leaf and returns its place.
func (m *Model) appendLeaf(rows int) int {
	m.nodes = append(m.nodes, leafNode)
	m.values = append(m.values, 0)
	m.rows = append(m.rows, uint32(rows))
	return len(m.nodes) - 1
}

// keep drops all trees but the first n.
func (m *Model) keep(n int) {
	if n < len(m.roots) {
		m.nodes = m.nodes[:m.roots[n]]
	}
	m.roots, m.values, m.rows = m.roots[:n], m.values[:len(m.nodes)], m.rows[:len(m.nodes)]
}

// clip gives back what append reserved: models live long.
func (m *Model) clip() {
	m.roots, m.nodes = slices.Clone(m.roots), slices.Clone(m.nodes)
	m.values, m.rows = slices.Clone(m.values), slices.Clone(m.rows)
}
