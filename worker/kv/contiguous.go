package kv

import (
	"fmt"
	"slices"
)

// run is a stretch of neighbouring pages [first, first+pages).
type run struct{ first, pages int }

var _ Allocator = (*Contiguous)(nil)

// Contiguous gives each table one run of neighbouring pages: the first that is long enough. A table grows only into
// free pages that follow its own, so callers reserve a sequence's peak at once. It shares nothing: Share, Fork,
// Replace, Hold and Drop return ErrSharing, unless there is nothing to share. See Allocator for the calls.
type Contiguous struct {
	ledger
	pages int
	free  []run // by first page; no two are neighbours
}

// NewContiguous returns an allocator of that many pages, all free, or ErrConfig.
func NewContiguous(pageTokens, pages int) (*Contiguous, error) {
	l, err := newLedger(pageTokens, pages)
	if err != nil {
		return nil, err
	}
	return &Contiguous{ledger: l, pages: pages, free: []run{{0, pages}}}, nil
}

// Need implements Allocator. That many pages may be free and Reserve fail nevertheless, for want of a run.
func (c *Contiguous) Need(t *Table, tokens int) int {
	return max(0, c.pagesFor(max(0, tokens))-len(t.pages))
}

// Reserve implements Allocator.
func (c *Contiguous) Reserve(t *Table, tokens int) error {
	if err := c.usable(t, tokens); err != nil {
		return err
	}
	n := c.Need(t, tokens)
	if n == 0 {
		return nil
	}
	i := slices.IndexFunc(c.free, func(r run) bool {
		return r.pages >= n && (len(t.pages) == 0 || r.first == int(t.pages[0])+len(t.pages))
	})
	if i < 0 {
		return ErrNoPages
	}
	c.enter(t)
	c.take(n)
	c.reserved += n
	first := c.free[i].first
	c.free[i] = run{first + n, c.free[i].pages - n}
	if c.free[i].pages == 0 {
		c.free = slices.Delete(c.free, i, i+1)
	}
	for k := range n {
		t.pages = append(t.pages, PageID(first+k))
	}
	return nil
}

// Fill implements Allocator.
func (c *Contiguous) Fill(t *Table, tokens int) error {
	if err := c.usable(t, tokens); err != nil {
		return err
	}
	if tokens < t.tokens || tokens > len(t.pages)*c.pageTokens {
		return fmt.Errorf("%w: %d tokens into %d pages that hold %d", ErrTable, tokens, len(t.pages), t.tokens)
	}
	c.filled += tokens - t.tokens
	t.tokens = tokens
	return nil
}

// Share implements Allocator: ErrSharing unless there is nothing to share.
func (c *Contiguous) Share(_ *Table, pages []PageID, tokens int) error {
	if tokens != 0 {
		return ErrSharing
	}
	return none(pages)
}

// Replace implements Allocator: ErrSharing unless there is nothing to replace.
func (c *Contiguous) Replace(_ *Table, pages []PageID) error { return none(pages) }

// Fork implements Allocator: ErrSharing unless src holds nothing.
func (c *Contiguous) Fork(_, src *Table) error {
	if src.tokens != 0 {
		return ErrSharing
	}
	return nil
}

// Hold implements Allocator: ErrSharing unless there is nothing to hold.
func (c *Contiguous) Hold(pages []PageID) error { return none(pages) }

// Drop implements Allocator: ErrSharing unless there is nothing to drop.
func (c *Contiguous) Drop(pages []PageID) error { return none(pages) }

func none(pages []PageID) error {
	if len(pages) > 0 {
		return ErrSharing
	}
	return nil
}

// Release implements Allocator.
func (c *Contiguous) Release(t *Table) {
	if t.owner != &c.ledger {
		return
	}
	r := run{int(t.pages[0]), len(t.pages)}
	c.used -= r.pages
	c.leave(t)
	i, _ := slices.BinarySearchFunc(c.free, r.first, func(f run, first int) int { return f.first - first })
	if i < len(c.free) && c.free[i].first == r.first+r.pages {
		r.pages += c.free[i].pages
		c.free = slices.Delete(c.free, i, i+1)
	}
	if i > 0 && c.free[i-1].first+c.free[i-1].pages == r.first {
		c.free[i-1].pages += r.pages
		return
	}
	c.free = slices.Insert(c.free, i, r)
}

// Stats implements Allocator. It looks at every free run.
func (c *Contiguous) Stats() Stats {
	s := c.stats(c.pages)
	longest := 0
	for _, r := range c.free {
		longest = max(longest, r.pages)
	}
	if s.Free > 0 {
		s.ExternalFragmentation = 1 - float64(longest)/float64(s.Free)
	}
	s.HighWater = c.pages
	if last := len(c.free) - 1; last >= 0 && c.free[last].first+c.free[last].pages == c.pages {
		s.HighWater = c.free[last].first
	}
	return s
}

// Check implements Allocator.
func (c *Contiguous) Check() error {
	if err := c.check(); err != nil {
		return err
	}
	taken := make([]bool, c.pages)
	take := func(id int) error {
		if id < 0 || id >= c.pages || taken[id] {
			return fmt.Errorf("%w: page %d is not there or in two runs", ErrInvariant, id)
		}
		taken[id] = true
		return nil
	}
	for i, t := range c.tables {
		for k, id := range t.pages {
			if int(id) != int(t.pages[0])+k {
				return fmt.Errorf("%w: table %d is not one run", ErrInvariant, i)
			}
			if err := take(int(id)); err != nil {
				return err
			}
		}
	}
	free, end := 0, -1
	for _, r := range c.free {
		if r.pages < 1 || r.first <= end {
			return fmt.Errorf("%w: free runs are out of order at page %d", ErrInvariant, r.first)
		}
		end = r.first + r.pages
		free += r.pages
		for k := range r.pages {
			if err := take(r.first + k); err != nil {
				return err
			}
		}
	}
	if free+c.used != c.pages || c.used != c.reserved {
		return fmt.Errorf("%w: %d pages free, %d used, %d reserved of %d", ErrInvariant, free, c.used, c.reserved, c.pages)
	}
	return nil
}
