package gbm_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/predictor/gbm"
	"pgregory.net/rapid"
)

// naive is boosting by the book: every split of every leaf is tried on the rows themselves, without bins, histograms or
// subtraction. It has no constraints and no sampling.
type naive struct {
	base  float64
	trees []*naiveNode
}

type naiveNode struct {
	rows        []int
	feature     int
	threshold   float32
	left, right *naiveNode // nil in a leaf
	value       float64
}

func (n *naiveNode) leaf(x []float32) *naiveNode {
	for n.left != nil {
		if x[n.feature] <= n.threshold {
			n = n.left
		} else {
			n = n.right
		}
	}
	return n
}

func (n naive) predict(x []float32) float64 {
	sum := n.base
	for _, tree := range n.trees {
		sum += tree.leaf(x).value
	}
	return sum
}

func naiveWeight(d gbm.Data, row int) float64 {
	if d.Weights == nil {
		return 1
	}
	return d.Weights[row]
}

func naiveQuantile(d gbm.Data, rows []int, values []float64, level float64) float64 {
	sorted := slices.Clone(rows)
	slices.SortFunc(sorted, func(a, b int) int {
		if values[a] < values[b] {
			return -1
		}
		return 1
	})
	total, sum := 0.0, 0.0
	for _, row := range rows {
		total += naiveWeight(d, row)
	}
	for _, row := range sorted {
		sum += naiveWeight(d, row)
		if sum >= level*total {
			return values[row]
		}
	}
	return values[sorted[len(sorted)-1]]
}

// score returns G²/(W+L2) of rows and W.
func naiveScore(d gbm.Data, rows []int, residual []float64, p gbm.Params) (score, weight float64) {
	var gradient float64
	for _, row := range rows {
		w := naiveWeight(d, row)
		weight += w
		if residual[row] <= 0 {
			gradient += w
		}
	}
	gradient -= p.Level * weight
	return gradient * gradient / (weight + p.L2), weight
}

// part returns the best split of a node as an inner node, and its gain; nil if there is none.
func naivePart(d gbm.Data, n *naiveNode, residual []float64, p gbm.Params) (best *naiveNode, bestGain float64) {
	before, weight := naiveScore(d, n.rows, residual, p)
	for f, column := range d.Columns {
		var values []float32
		for _, row := range n.rows {
			values = append(values, column[row])
		}
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			var left, right []int
			for _, row := range n.rows {
				if column[row] <= v {
					left = append(left, row)
				} else {
					right = append(right, row)
				}
			}
			if min(len(left), len(right)) < p.MinRows {
				continue
			}
			sl, _ := naiveScore(d, left, residual, p)
			sr, _ := naiveScore(d, right, residual, p)
			if gain := sl + sr - before; gain > 1e-9*weight && gain > bestGain*(1+1e-9) {
				// The threshold is midway to the next value of any row, as all rows have a say in the bins.
				next := float32(math.Inf(1))
				for _, other := range column {
					if other > v {
						next = min(next, other)
					}
				}
				best = &naiveNode{feature: f, threshold: (v + next) / 2, left: &naiveNode{rows: left}, right: &naiveNode{rows: right}}
				bestGain = gain
			}
		}
	}
	return best, bestGain
}

func naiveTrain(d gbm.Data, p gbm.Params) naive {
	residual := slices.Clone(d.Labels)
	all := make([]int, d.Rows())
	for row := range all {
		all[row] = row
	}
	n := naive{base: naiveQuantile(d, all, residual, p.Level)}
	for row := range residual {
		residual[row] -= n.base
	}
	for range p.Rounds {
		root := &naiveNode{rows: all}
		leaves := []*naiveNode{root}
		for len(leaves) < p.Leaves {
			k, bestGain := -1, 0.0
			var best *naiveNode
			for i, l := range leaves {
				if s, gain := naivePart(d, l, residual, p); s != nil && gain > bestGain*(1+1e-9) {
					k, best, bestGain = i, s, gain
				}
			}
			if k < 0 {
				break
			}
			l := leaves[k]
			best.rows, *l = l.rows, *best
			l.rows = nil
			leaves[k] = l.left
			leaves = append(leaves, l.right)
		}
		if len(leaves) == 1 {
			break
		}
		for _, l := range leaves {
			weight := 0.0
			for _, row := range l.rows {
				weight += naiveWeight(d, row)
			}
			// A residual of exactly zero is common: the shrinking is rounded as the code rounds it.
			l.value = p.LearningRate * (naiveQuantile(d, l.rows, residual, p.Level) * (weight / (weight + p.L2)))
		}
		for _, l := range leaves {
			for _, row := range l.rows {
				residual[row] -= l.value
			}
		}
		n.trees = append(n.trees, root)
	}
	return n
}

// gridData draws rows with values on a small grid, so that bins lose nothing.
func gridData(t *rapid.T, rng *rand.Rand, weighted bool) gbm.Data {
	rows := rapid.IntRange(2, 60).Draw(t, "rows")
	grid := rapid.IntRange(2, 20).Draw(t, "grid")
	d := gbm.Data{Columns: make([][]float32, rapid.IntRange(1, 4).Draw(t, "features"))}
	for row := range rows {
		label := 0.3 * rng.NormFloat64()
		for f := range d.Columns {
			v := rng.IntN(grid)
			d.Columns[f] = append(d.Columns[f], float32(v))
			label += float64(f%3-1) * float64(v) / float64(grid)
		}
		d.Labels = append(d.Labels, label)
		if weighted {
			d.Weights = append(d.Weights, float64(1+row%4))
		}
	}
	return d
}

// TestNaive holds trees and their sums against the naive implementation, on the rows and between them.
func TestNaive(t *testing.T) {
	trees := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		d := gridData(t, rng, rapid.Bool().Draw(t, "weighted"))
		p := gbm.DefaultParams(rng.Float64()*0.98 + 0.01)
		p.Rounds = rapid.IntRange(1, 4).Draw(t, "rounds")
		p.Leaves = rapid.IntRange(2, 8).Draw(t, "leaves")
		p.MinRows = rapid.IntRange(1, 6).Draw(t, "min rows")
		p.L2 = rapid.SampledFrom([]float64{0, 1.7}).Draw(t, "L2")
		p.LearningRate = rapid.SampledFrom([]float64{0.1, 0.3, 1}).Draw(t, "rate")
		m, _, err := gbm.Train(d, gbm.Data{}, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := naiveTrain(d, p)
		if m.Trees() != len(n.trees) {
			t.Fatalf("%d trees, naive %d", m.Trees(), len(n.trees))
		}
		trees += m.Trees()
		check := func(x []float32) {
			if got, want := m.Predict(x), n.predict(x); math.Abs(got-want) > 1e-9 {
				t.Fatalf("at %v: %v, naive %v", x, got, want)
			}
		}
		for row := range d.Rows() {
			check(rowOf(d, row))
		}
		for range 20 {
			x := make([]float32, len(d.Columns))
			for f := range x {
				x[f] = rng.Float32()*24 - 2
			}
			check(x)
		}
	})
	if trees == 0 {
		t.Error("no tree was ever grown")
	}
}

// TestWeightsAreDuplicates: a row of weight w is w rows, where rows per leaf do not matter.
func TestWeightsAreDuplicates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		d := gridData(t, rng, true)
		repeated := gbm.Data{Columns: make([][]float32, len(d.Columns))}
		for row, w := range d.Weights {
			for range int(w) {
				repeated.Labels = append(repeated.Labels, d.Labels[row])
				for f := range d.Columns {
					repeated.Columns[f] = append(repeated.Columns[f], d.Columns[f][row])
				}
			}
		}
		p := gbm.DefaultParams(rng.Float64()*0.98 + 0.01)
		p.Rounds, p.Leaves, p.MinRows, p.L2 = 5, 6, 1, 0.5
		a, ha, err := gbm.Train(d, repeated, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, hb, err := gbm.Train(repeated, d, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for row := range d.Rows() {
			x := rowOf(d, row)
			if got, want := a.Predict(x), b.Predict(x); math.Abs(got-want) > 1e-12 {
				t.Fatalf("row %d: %v with weights, %v repeated", row, got, want)
			}
		}
		for k := range ha.Train {
			if math.Abs(ha.Train[k]-hb.Train[k]) > 1e-12 || math.Abs(ha.Train[k]-ha.Validation[k]) > 1e-12 {
				t.Fatalf("round %d: loss %v with weights, %v repeated, %v held out", k, ha.Train[k], hb.Train[k], ha.Validation[k])
			}
		}
	})
}
