package kv

import "fmt"

var _ Allocator = (*Paged)(nil)

// Paged hands out pages one by one and shares them by counting references. See Allocator for the calls.
type Paged struct {
	ledger
	refs   []int32  // by page: tables that list it, and holds
	held   []int32  // by page: holds
	free   []PageID // a stack
	shared int      // pages with refs > 1
	high   int      // no used page is at or above it; Stats lowers it
}

// NewPaged returns an allocator of that many pages, all free, or ErrConfig.
func NewPaged(pageTokens, pages int) (*Paged, error) {
	l, err := newLedger(pageTokens, pages)
	if err != nil {
		return nil, err
	}
	p := &Paged{ledger: l, refs: make([]int32, pages), held: make([]int32, pages), free: make([]PageID, pages)}
	for i := range p.free {
		p.free[i] = PageID(pages - 1 - i)
	}
	return p, nil
}

// fresh takes the page on top of the stack, which the caller knows is there.
func (p *Paged) fresh() PageID {
	last := len(p.free) - 1
	id := p.free[last]
	p.free = p.free[:last]
	p.refs[id] = 1
	p.high = max(p.high, int(id)+1)
	return id
}

// ref adds a reference to a page that is in use.
func (p *Paged) ref(id PageID) {
	p.refs[id]++
	if p.refs[id] == 2 {
		p.shared++
	}
}

// unref takes a reference away, and frees the page with the last one.
func (p *Paged) unref(id PageID) {
	p.refs[id]--
	switch p.refs[id] {
	case 1:
		p.shared--
	case 0:
		p.free = append(p.free, id)
		p.used--
	}
}

// inUse returns ErrPages unless all pages are referred to.
func (p *Paged) inUse(pages []PageID) error {
	for _, id := range pages {
		if id < 0 || int(id) >= len(p.refs) || p.refs[id] == 0 {
			return fmt.Errorf("%w: %d", ErrPages, id)
		}
	}
	return nil
}

// Need implements Allocator.
func (p *Paged) Need(t *Table, tokens int) int {
	if tokens <= t.tokens {
		return 0
	}
	want := p.pagesFor(tokens)
	n := max(0, want-len(t.pages))
	for _, id := range t.pages[min(t.tokens/p.pageTokens, len(t.pages)):min(want, len(t.pages))] {
		if p.refs[id] > 1 {
			n++
		}
	}
	return n
}

// Reserve implements Allocator.
func (p *Paged) Reserve(t *Table, tokens int) error {
	if err := p.usable(t, tokens); err != nil {
		return err
	}
	n := p.Need(t, tokens)
	if n == 0 {
		return nil
	}
	if n > len(p.free) {
		return ErrNoPages // bare: it is an ordinary answer, which must not allocate
	}
	p.enter(t)
	p.take(n)
	want := p.pagesFor(tokens)
	for i := t.tokens / p.pageTokens; i < min(want, len(t.pages)); i++ {
		if old := t.pages[i]; p.refs[old] > 1 {
			t.pages[i] = p.fresh()
			p.unref(old)
			p.copies++
		}
	}
	for len(t.pages) < want {
		t.pages = append(t.pages, p.fresh())
		p.reserved++
	}
	return nil
}

// Fill implements Allocator.
func (p *Paged) Fill(t *Table, tokens int) error {
	if err := p.usable(t, tokens); err != nil {
		return err
	}
	if tokens < t.tokens || tokens > len(t.pages)*p.pageTokens {
		return fmt.Errorf("%w: %d tokens into %d pages that hold %d", ErrTable, tokens, len(t.pages), t.tokens)
	}
	if tokens == t.tokens {
		return nil
	}
	for _, id := range t.pages[t.tokens/p.pageTokens : p.pagesFor(tokens)] {
		if p.refs[id] > 1 {
			return fmt.Errorf("%w: page %d is shared, reserve again", ErrTable, id)
		}
	}
	p.filled += tokens - t.tokens
	t.tokens = tokens
	return nil
}

// Share implements Allocator.
func (p *Paged) Share(t *Table, pages []PageID, tokens int) error {
	if err := p.usable(t, tokens); err != nil {
		return err
	}
	if len(t.pages) > 0 || len(pages) != p.pagesFor(tokens) {
		return fmt.Errorf("%w: %d pages for %d tokens into a table of %d", ErrTable, len(pages), tokens, len(t.pages))
	}
	if err := p.inUse(pages); err != nil || len(pages) == 0 {
		return err
	}
	p.enter(t)
	for _, id := range pages {
		p.ref(id)
	}
	t.pages = append(t.pages, pages...)
	t.tokens = tokens
	p.reserved += len(pages)
	p.filled += tokens
	return nil
}

// Replace implements Allocator.
func (p *Paged) Replace(t *Table, pages []PageID) error {
	if err := p.usable(t, 0); err != nil {
		return err
	}
	if len(pages) > t.tokens/p.pageTokens {
		return fmt.Errorf("%w: %d pages for the %d full ones", ErrTable, len(pages), t.tokens/p.pageTokens)
	}
	if err := p.inUse(pages); err != nil {
		return err
	}
	for _, id := range pages { // first, for a page that moves inside the table
		p.ref(id)
	}
	for i := len(pages) - 1; i >= 0; i-- {
		p.unref(t.pages[i])
	}
	copy(t.pages, pages)
	return nil
}

// Fork implements Allocator.
func (p *Paged) Fork(dst, src *Table) error {
	if err := p.usable(src, 0); err != nil {
		return err
	}
	return p.Share(dst, src.pages[:p.pagesFor(src.tokens)], src.tokens)
}

// Release implements Allocator.
func (p *Paged) Release(t *Table) {
	if t.owner != &p.ledger {
		return
	}
	for i := len(t.pages) - 1; i >= 0; i-- {
		p.unref(t.pages[i])
	}
	p.leave(t)
}

// Hold implements Allocator.
func (p *Paged) Hold(pages []PageID) error {
	if err := p.inUse(pages); err != nil {
		return err
	}
	for _, id := range pages {
		p.ref(id)
		p.held[id]++
	}
	return nil
}

// Drop implements Allocator.
func (p *Paged) Drop(pages []PageID) error {
	for i, id := range pages {
		if id < 0 || int(id) >= len(p.held) || p.held[id] == 0 {
			for _, undo := range pages[:i] {
				p.held[undo]++
			}
			return fmt.Errorf("%w: %d is not held", ErrPages, id)
		}
		p.held[id]--
	}
	for i := len(pages) - 1; i >= 0; i-- {
		p.unref(pages[i])
	}
	return nil
}

// Stats implements Allocator.
func (p *Paged) Stats() Stats {
	for p.high > 0 && p.refs[p.high-1] == 0 {
		p.high--
	}
	s := p.stats(len(p.refs))
	s.Shared, s.HighWater = p.shared, p.high
	return s
}

// Check implements Allocator.
func (p *Paged) Check() error {
	if err := p.check(); err != nil {
		return err
	}
	refs := make([]int32, len(p.refs))
	copy(refs, p.held)
	for i, t := range p.tables {
		for _, id := range t.pages {
			if id < 0 || int(id) >= len(refs) {
				return fmt.Errorf("%w: table %d lists page %d", ErrInvariant, i, id)
			}
			refs[id]++
		}
	}
	used, shared := 0, 0
	for id, n := range refs {
		if n != p.refs[id] || p.held[id] < 0 {
			return fmt.Errorf("%w: page %d has %d references (%d holds), the books say %d", ErrInvariant, id, n, p.held[id], p.refs[id])
		}
		if n > 0 {
			used++
		}
		if n > 1 {
			shared++
		}
		if n > 0 && id >= p.high {
			return fmt.Errorf("%w: page %d is used, above the highest, %d", ErrInvariant, id, p.high-1)
		}
	}
	if used != p.used || shared != p.shared || used+len(p.free) != len(p.refs) {
		return fmt.Errorf("%w: %d pages used, %d shared, %d free of %d; the books say %d and %d",
			ErrInvariant, used, shared, len(p.free), len(p.refs), p.used, p.shared)
	}
	for _, id := range p.free {
		if refs[id] != 0 {
			return fmt.Errorf("%w: page %d is free twice or in use", ErrInvariant, id)
		}
		refs[id] = -1
	}
	return nil
}
