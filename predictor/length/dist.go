package length

// Dist is a distribution over how many tokens are left: N points in ascending order, whose probabilities sum to 1.
type Dist struct {
	N      int
	Tokens [Bins + 1]float64 // > 0
	Prob   [Bins + 1]float64
}

// room is how many tokens are left to generate at most, and how many were, in range.
func room(done, limit int32) (from, to int32) {
	from = min(max(done, 0), Longest-1)
	return from, min(max(limit, from+1), Longest)
}

// Remaining fills d with what is left of an answer of a class that has done tokens and may have up to limit in all. At a
// limit that is not above done one token is left.
func (t *Table) Remaining(of, done, limit int32, d *Dist) {
	c := t.of(of)
	done, limit = room(done, limit)
	k, end := float64(done), float64(limit)
	b, last := bin(done+1), bin(limit)
	alive := c.above(b, k)
	d.N = 0
	left := 1.0
	for ; alive > 0 && b <= last; b++ {
		// Of the bin's lengths those in (k, end); the rest of the mass at the end is the cap's.
		lo, hi := max(k, c.from[b]), min(end-1, c.to[b])
		if hi <= lo {
			continue
		}
		p := c.reach[b] * c.hazard[b] * (hi - lo) / (c.to[b] - c.from[b]) / alive
		if p <= 0 {
			continue
		}
		p = min(p, left)
		d.Tokens[d.N], d.Prob[d.N] = max((lo+hi+1)/2-k, 1), p
		left -= p
		d.N++
	}
	if end-k >= 1 {
		d.Tokens[d.N], d.Prob[d.N] = end-k, left
		d.N++
	}
}

// Mean is the mean of Remaining's distribution.
func (d *Dist) Mean() float64 {
	m := 0.0
	for i := range d.N {
		m += d.Tokens[i] * d.Prob[i]
	}
	return m
}

// Mean is the mean number of tokens left.
func (t *Table) Mean(of, done, limit int32) float64 {
	var d Dist
	t.Remaining(of, done, limit, &d)
	return d.Mean()
}

// Quantile is the number of tokens left that is exceeded with probability 1-p, in [1, limit-done].
func (t *Table) Quantile(of, done, limit int32, p float64) float64 {
	q := [1]float64{p}
	c := t.of(of)
	done, limit = room(done, limit)
	c.quantiles(done, limit, q[:])
	return q[0]
}

// Spread fills to with the quantiles of equal steps: the i-th of n is at (i+½)/n.
func (t *Table) Spread(of, done, limit int32, to []float64) {
	for i := range to {
		to[i] = (float64(i) + 0.5) / float64(len(to))
	}
	c := t.of(of)
	done, limit = room(done, limit)
	c.quantiles(done, limit, to)
}

// quantiles replaces each of the ascending probabilities by its quantile.
func (c *class) quantiles(done, limit int32, p []float64) {
	k, end := float64(done), float64(limit)
	b, last := bin(done+1), bin(limit)
	alive := c.above(b, k)
	for i, x := range p {
		if x < 0 {
			x = 0
		}
		goal := alive * (1 - x)
		for b < last && c.reach[b+1] > goal {
			b++
		}
		if c.reach[b+1] > goal {
			p[i] = end - k // beyond the cap
			continue
		}
		at := c.from[b] + c.slope[b]*(c.reach[b]-goal)
		n := float64(int64(at))
		if n < at-1e-9 {
			n++
		}
		if n -= k; n < 1 {
			n = 1
		} else if n > end-k {
			n = end - k
		}
		p[i] = n
	}
}
