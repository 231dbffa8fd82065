package length

import (
	"errors"
	"fmt"
	"math"
)

// ErrTable is returned by Restore for a state that no table has; the message names the key.
var ErrTable = errors.New("length: invalid table")

const (
	// Bins is how many bins of lengths there are.
	Bins = 40
	// Longest is where lengths and caps end; longer ones count as it.
	Longest = 1 << 20

	trust = 1.0 // answers that the prior is worth
)

// edges[b] is the longest length in bin b; edges of one table are those of all.
var edges = func() (e [Bins]int32) {
	for b := range e {
		switch {
		case b < 7:
			e[b] = int32(b + 1)
		case b == Bins-1:
			e[b] = Longest
		default:
			e[b] = (e[b-1]*13 + 9) / 10
		}
	}
	return e
}()

// prior is the hazard of each bin when nothing was seen.
var prior = func() (h [Bins]float64) {
	above := func(k int32) float64 { return 1 / math.Sqrt(1+float64(k)/8) }
	for b := range h {
		h[b] = 1 - above(edges[b])/above(lower(b))
	}
	return h
}()

// lower is the longest length before bin b.
func lower(b int) int32 {
	if b == 0 {
		return 0
	}
	return edges[b-1]
}

// short is the bin of each short length.
var short = func() (s [1024]uint8) {
	b := 0
	for k := range s {
		for edges[b] < int32(k) {
			b++
		}
		s[k] = uint8(b)
	}
	return s
}()

// bin is where a length > 0 falls; 0 is in the first.
func bin(k int32) int {
	if k >= 0 && int(k) < len(short) {
		return int(short[k])
	}
	lo, hi := 0, Bins-1
	for lo < hi {
		if mid := (lo + hi) / 2; edges[mid] < k {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// class is one class's table. What reading needs is derived when it learns.
type class struct {
	Counts
	reach  [Bins + 1]float64 // probability to be longer than the bins before
	hazard [Bins]float64
	from   [Bins]float64 // lengths of the bin are spread evenly over (from, to]
	to     [Bins]float64
	slope  [Bins]float64 // tokens for each probability in the bin
}

// Counts is what a class has seen, by bin: weights of answers that were at risk there and that ended there, and the sums of the
// latter's lengths and squared lengths.
type Counts struct {
	Risk, Ended, Tokens, Squares [Bins]float64
}

// State is all that a Table knows, to be stored.
type State struct {
	HalfLife float64  // see New
	Classes  []Counts // by class
}

// Table is a distribution of lengths for each class. The zero value has none, and answers with the prior.
type Table struct {
	halfLife float64
	keep     float64 // of a weight, per observation
	classes  []class
}

// unseen answers for classes that a table does not have.
var unseen = func() (c class) {
	c.derive()
	return c
}()

// New returns a table of so many classes that has seen nothing. An observation's weight halves every halfLife observations of its
// class; 0 or less: never.
func New(classes int, halfLife float64) *Table {
	t := &Table{halfLife: max(0, halfLife), keep: 1, classes: make([]class, max(0, classes))}
	if halfLife > 0 {
		t.keep = math.Exp2(-1 / halfLife)
	}
	for i := range t.classes {
		t.classes[i] = unseen
	}
	return t
}

// Classes is how many classes the table has.
func (t *Table) Classes() int { return len(t.classes) }

// Observe adds an answer of so many tokens; cut: its cap ended it there. A class that the table does not have, or no tokens,
// changes nothing.
func (t *Table) Observe(of, tokens int32, cut bool) {
	if of < 0 || int(of) >= len(t.classes) || tokens < 1 {
		return
	}
	c := &t.classes[of]
	tokens = min(tokens, Longest)
	if t.keep < 1 {
		for b := range Bins {
			c.Risk[b] *= t.keep
			c.Ended[b] *= t.keep
			c.Tokens[b] *= t.keep
			c.Squares[b] *= t.keep
		}
	}
	at := bin(tokens)
	for b := range at {
		c.Risk[b]++
	}
	if cut {
		c.Risk[at] += float64(tokens-lower(at)) / float64(edges[at]-lower(at))
	} else {
		x := float64(tokens)
		c.Risk[at]++
		c.Ended[at]++
		c.Tokens[at] += x
		c.Squares[at] += x * x
	}
	c.derive()
}

// Weight is what the answers of a class that were observed weigh together; 0 of a class that the table does not have.
func (t *Table) Weight(of int32) float64 { return t.of(of).Risk[0] }

// Borrow adds what a state knows of the classes whose own answers weigh less than few, weighing at most as much as most answers, and
// reports whether it added anything. A state of one class knows of the answers of all; else classes that either does not have stay as they
// are. ErrTable; nothing has changed then.
func (t *Table) Borrow(s State, few, most float64) (added bool, err error) {
	if _, err := Restore(s); err != nil {
		return false, err
	}
	for i := range t.classes {
		k := i
		if len(s.Classes) == 1 {
			k = 0
		}
		if k >= len(s.Classes) {
			break
		}
		c, o := &t.classes[i], &s.Classes[k]
		if c.Risk[0] >= few || !(o.Risk[0] > 0) {
			continue
		}
		part := min(1, most/o.Risk[0])
		for b := range Bins {
			c.Risk[b] += part * o.Risk[b]
			c.Ended[b] += part * o.Ended[b]
			c.Tokens[b] += part * o.Tokens[b]
			c.Squares[b] += part * o.Squares[b]
		}
		c.derive()
		added = true
	}
	return added, nil
}

// derive brings up to date what follows from the counts.
func (c *class) derive() {
	c.reach[0] = 1
	for b := range Bins {
		c.hazard[b] = min(1, (c.Ended[b]+trust*prior[b])/(c.Risk[b]+trust))
		c.reach[b+1] = c.reach[b] * (1 - c.hazard[b])
		// Mean and variance of the lengths in the bin; the prior's are of an even spread.
		lo, hi := float64(lower(b)), float64(edges[b])
		seen, own := c.Ended[b], trust*prior[b]
		mid := (lo + 1 + hi) / 2
		mean := (c.Tokens[b] + own*mid) / (seen + own)
		spread := trust * (hi - lo) * (hi - lo) / 12
		if seen > 0 {
			of := c.Tokens[b] / seen
			spread += max(0, c.Squares[b]-of*c.Tokens[b])
		}
		half := math.Sqrt(3*spread/(seen+trust)) + 0.25
		// A length k stands for (k-1, k].
		half = min(max(half, 0.5), mean-0.5-lo+1e-9, hi-mean+0.5+1e-9)
		half = max(half, 0.5)
		c.from[b] = max(lo, mean-0.5-half)
		c.to[b] = min(hi, mean-0.5+half)
		c.slope[b] = (c.to[b] - c.from[b]) / max(c.reach[b]*c.hazard[b], 1e-300)
	}
}

// passed is the part of bin b's lengths that are at most k.
func (c *class) passed(b int, k float64) float64 {
	return min(1, max(0, (k-c.from[b])/(c.to[b]-c.from[b])))
}

// above is the probability of a length above k, of which bin b is the bin.
func (c *class) above(b int, k float64) float64 {
	return c.reach[b] * (1 - c.hazard[b]*c.passed(b, k))
}

// of returns a class's table.
func (t *Table) of(i int32) *class {
	if i < 0 || int(i) >= len(t.classes) {
		return &unseen
	}
	return &t.classes[i]
}

// State returns a copy of what the table knows.
func (t *Table) State() State {
	s := State{HalfLife: t.halfLife, Classes: make([]Counts, len(t.classes))}
	for i := range t.classes {
		s.Classes[i] = t.classes[i].Counts
	}
	return s
}

// Restore returns the table of a state, or ErrTable.
func Restore(s State) (*Table, error) {
	if !(s.HalfLife >= 0) || math.IsInf(s.HalfLife, 0) {
		return nil, fmt.Errorf("%w: half-life is %v, allowed: 0 and more", ErrTable, s.HalfLife)
	}
	t := New(len(s.Classes), s.HalfLife)
	for i := range s.Classes {
		c := &t.classes[i]
		c.Counts = s.Classes[i]
		for b := range Bins {
			lo, hi := float64(lower(b)+1), float64(edges[b])
			r, e, k, q := c.Risk[b], c.Ended[b], c.Tokens[b], c.Squares[b]
			const slack = 1 + 1e-9
			if !(r >= 0 && r <= 1e15 && e >= 0 && e <= r*slack && k >= e*lo/slack && k <= e*hi*slack && q >= k*lo/slack && q <= k*hi*slack) {
				return nil, fmt.Errorf("%w: class %d, bin %d: %v at risk, %v ended, tokens %v, squares %v", ErrTable, i, b, r, e, k, q)
			}
		}
		c.derive()
	}
	return t, nil
}
