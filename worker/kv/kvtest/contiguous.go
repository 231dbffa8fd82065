package kvtest

import (
	"fmt"
	"slices"

	"github.com/cadence-slo/cadence/worker/kv"
)

var _ kv.Allocator = (*Contiguous)(nil)

// Contiguous is kv.Contiguous, naively.
type Contiguous struct {
	pageTokens, pages int
	tables            map[*kv.Table]bool // that have pages
	peak              int
}

// NewContiguous returns an allocator of that many pages, all free.
func NewContiguous(pageTokens, pages int) *Contiguous {
	return &Contiguous{pageTokens: pageTokens, pages: pages, tables: map[*kv.Table]bool{}}
}

// used says of every page whether a table lists it.
func (c *Contiguous) used() []bool {
	out := make([]bool, c.pages)
	for t := range c.tables {
		for _, id := range t.Pages() {
			out[id] = true
		}
	}
	return out
}

// PageTokens implements kv.Allocator.
func (c *Contiguous) PageTokens() int { return c.pageTokens }

// Need implements kv.Allocator.
func (c *Contiguous) Need(t *kv.Table, tokens int) int {
	n := 0
	for have := len(t.Pages()); have*c.pageTokens < tokens; have++ {
		n++
	}
	return n
}

// Reserve implements kv.Allocator.
func (c *Contiguous) Reserve(t *kv.Table, tokens int) error {
	n := c.Need(t, tokens)
	switch {
	case tokens < 0:
		return kv.ErrTable
	case n == 0:
		return nil
	}
	used := c.used()
	for first := range c.pages - n + 1 {
		if slices.Contains(used[first:first+n], true) {
			continue
		}
		if have := t.Pages(); len(have) > 0 && int(have[len(have)-1])+1 != first {
			continue
		}
		pages := slices.Clone(t.Pages())
		for k := range n {
			pages = append(pages, kv.PageID(first+k))
		}
		t.Assign(pages, t.Tokens())
		c.tables[t] = true
		c.peak = max(c.peak, c.Stats().Used)
		return nil
	}
	return kv.ErrNoPages
}

// Fill implements kv.Allocator.
func (c *Contiguous) Fill(t *kv.Table, tokens int) error {
	if tokens < t.Tokens() || tokens > len(t.Pages())*c.pageTokens {
		return kv.ErrTable
	}
	t.Assign(slices.Clone(t.Pages()), tokens)
	return nil
}

// Share implements kv.Allocator.
func (c *Contiguous) Share(_ *kv.Table, pages []kv.PageID, tokens int) error {
	if tokens != 0 {
		return kv.ErrSharing
	}
	return c.Hold(pages)
}

// Replace implements kv.Allocator.
func (c *Contiguous) Replace(_ *kv.Table, pages []kv.PageID) error { return c.Hold(pages) }

// Fork implements kv.Allocator.
func (c *Contiguous) Fork(_, src *kv.Table) error {
	if src.Tokens() > 0 {
		return kv.ErrSharing
	}
	return nil
}

// Hold implements kv.Allocator.
func (c *Contiguous) Hold(pages []kv.PageID) error {
	if len(pages) > 0 {
		return kv.ErrSharing
	}
	return nil
}

// Drop implements kv.Allocator.
func (c *Contiguous) Drop(pages []kv.PageID) error { return c.Hold(pages) }

// Release implements kv.Allocator.
func (c *Contiguous) Release(t *kv.Table) {
	t.Assign(nil, 0)
	delete(c.tables, t)
}

// Stats implements kv.Allocator.
func (c *Contiguous) Stats() kv.Stats {
	s := kv.Stats{Pages: c.pages, Peak: c.peak}
	longest, length := 0, 0
	for id, used := range c.used() {
		if used {
			s.Used++
			s.HighWater = id + 1
			length = 0
		} else {
			length++
			longest = max(longest, length)
		}
	}
	s.Free = s.Pages - s.Used
	if s.Free > 0 {
		s.ExternalFragmentation = 1 - float64(longest)/float64(s.Free)
	}
	sum(&s, c.tables, c.pageTokens)
	return s
}

// Check implements kv.Allocator: no page is in two tables, and every table is one run.
func (c *Contiguous) Check() error {
	listed := 0
	for t := range c.tables {
		listed += len(t.Pages())
		for k, id := range t.Pages() {
			if int(id) != int(t.Pages()[0])+k {
				return fmt.Errorf("%w: %v is not one run", kv.ErrInvariant, t.Pages())
			}
		}
	}
	if s := c.Stats(); listed != s.Used {
		return fmt.Errorf("%w: tables list %d pages, %d are used", kv.ErrInvariant, listed, s.Used)
	}
	return nil
}
