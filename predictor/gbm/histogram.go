package gbm

// one is a row in a cell of counts; the low half counts the rows whose prediction is at or over the label.
const one = 1 << 32

// histogram sums, per feature and bin, the rows of a leaf. The gradient of the pinball loss has but two values, so that two
// counts say it all; they share a word.
type histogram struct {
	counts [][256]uint64
	sums   [][256]sums // nil without weights
}

// sums is the weight of rows, and of those whose prediction is at or over the label.
type sums struct{ weight, over float64 }

func newHistogram(features int, weighted bool) *histogram {
	h := &histogram{counts: make([][256]uint64, features)}
	if weighted {
		h.sums = make([][256]sums, features)
	}
	return h
}

// fill replaces what the histogram holds by the given rows.
func (h *histogram) fill(b binned, rows []uint32, over []uint8, weights []float64) {
	clear(h.counts)
	clear(h.sums)
	features := b.features
	for _, row := range rows {
		add := one | uint64(over[row])
		bins := b.bins[int(row)*features:][:features]
		counts := h.counts[:len(bins)]
		for f, bin := range bins {
			counts[f][bin] += add
		}
	}
	if h.sums == nil {
		return
	}
	for _, row := range rows {
		w := weights[row]
		o := w * float64(over[row])
		bins := b.bins[int(row)*features:][:features]
		all := h.sums[:len(bins)]
		for f, bin := range bins {
			s := &all[f][bin]
			s.weight += w
			s.over += o
		}
	}
}

// subtract takes another histogram's rows away: a parent's becomes that of the child that was not counted.
func (h *histogram) subtract(other *histogram) {
	for f := range h.counts {
		a, b := &h.counts[f], &other.counts[f]
		for i := range a {
			a[i] -= b[i]
		}
	}
	for f := range h.sums {
		a, b := &h.sums[f], &other.sums[f]
		for i := range a {
			a[i].weight -= b[i].weight
			a[i].over -= b[i].over
		}
	}
}

// cell is what a bin or a run of bins holds.
type cell struct {
	rows int
	sums
}

// cell returns one bin.
func (h *histogram) cell(feature, bin int) cell {
	n := h.counts[feature][bin]
	rows, over := int(n>>32), int(n&(one-1))
	if h.sums != nil {
		return cell{rows, h.sums[feature][bin]}
	}
	return cell{rows, sums{float64(rows), float64(over)}}
}

func (c cell) plus(d cell) cell {
	return cell{c.rows + d.rows, sums{c.weight + d.weight, c.over + d.over}}
}

func (c cell) minus(d cell) cell {
	return cell{c.rows - d.rows, sums{c.weight - d.weight, c.over - d.over}}
}

// gradient is the sum of the pinball loss's derivatives by the prediction: 1−level for a row at or over its label, −level
// for the others.
func (c cell) gradient(level float64) float64 { return c.over - level*c.weight }
