package kvtest

import (
	"fmt"
	"slices"

	"github.com/cadence-slo/cadence/worker/kv"
)

var _ kv.Allocator = (*Paged)(nil)

// Paged is kv.Paged, naively.
type Paged struct {
	pageTokens, pages int
	free              []kv.PageID        // a stack
	tables            map[*kv.Table]bool // that have pages
	held              map[kv.PageID]int  // holds
	peak              int
	copies            int64
}

// NewPaged returns an allocator of that many pages, all free.
func NewPaged(pageTokens, pages int) *Paged {
	p := &Paged{pageTokens: pageTokens, pages: pages, tables: map[*kv.Table]bool{}, held: map[kv.PageID]int{}}
	for id := pages - 1; id >= 0; id-- {
		p.free = append(p.free, kv.PageID(id))
	}
	return p
}

// Held returns the pages that are held, ascending, one that is held twice two times.
func (p *Paged) Held() []kv.PageID {
	var out []kv.PageID
	for id := range kv.PageID(p.pages) {
		for range p.held[id] {
			out = append(out, id)
		}
	}
	return out
}

// refs counts what refers to a page.
func (p *Paged) refs(id kv.PageID) int {
	n := p.held[id]
	for t := range p.tables {
		for _, other := range t.Pages() {
			if other == id {
				n++
			}
		}
	}
	return n
}

// set gives a table its new content.
func (p *Paged) set(t *kv.Table, pages []kv.PageID, tokens int) {
	t.Assign(pages, tokens)
	if len(pages) > 0 {
		p.tables[t] = true
	} else {
		delete(p.tables, t)
	}
	p.peak = max(p.peak, p.pages-len(p.free))
}

// collect frees those of the pages that nothing refers to any more, so that the first will be handed out first.
func (p *Paged) collect(pages []kv.PageID) {
	for i, id := range slices.Backward(pages) {
		if p.refs(id) == 0 && !slices.Contains(pages[:i], id) {
			p.free = append(p.free, id)
		}
	}
}

func (p *Paged) pop() kv.PageID {
	id := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return id
}

func (p *Paged) inUse(pages []kv.PageID) error {
	for _, id := range pages {
		if p.refs(id) == 0 {
			return kv.ErrPages
		}
	}
	return nil
}

// PageTokens implements kv.Allocator.
func (p *Paged) PageTokens() int { return p.pageTokens }

// stale lists the places in t of the pages that Reserve replaces.
func (p *Paged) stale(t *kv.Table, tokens int) []int {
	var out []int
	for i, id := range t.Pages() {
		first, end := i*p.pageTokens, (i+1)*p.pageTokens
		if end > t.Tokens() && first < tokens && tokens > t.Tokens() && p.refs(id) > 1 {
			out = append(out, i)
		}
	}
	return out
}

// Need implements kv.Allocator.
func (p *Paged) Need(t *kv.Table, tokens int) int {
	n := len(p.stale(t, tokens))
	for have := len(t.Pages()); have*p.pageTokens < tokens; have++ {
		n++
	}
	return n
}

// Reserve implements kv.Allocator.
func (p *Paged) Reserve(t *kv.Table, tokens int) error {
	if tokens < 0 {
		return kv.ErrTable
	}
	if p.Need(t, tokens) > len(p.free) {
		return kv.ErrNoPages
	}
	pages := slices.Clone(t.Pages())
	for _, i := range p.stale(t, tokens) {
		pages[i] = p.pop()
		p.copies++
	}
	for len(pages)*p.pageTokens < tokens {
		pages = append(pages, p.pop())
	}
	p.set(t, pages, t.Tokens())
	return nil
}

// Fill implements kv.Allocator.
func (p *Paged) Fill(t *kv.Table, tokens int) error {
	if tokens < t.Tokens() || tokens > len(t.Pages())*p.pageTokens || len(p.stale(t, tokens)) > 0 {
		return kv.ErrTable
	}
	p.set(t, slices.Clone(t.Pages()), tokens)
	return nil
}

// Share implements kv.Allocator.
func (p *Paged) Share(t *kv.Table, pages []kv.PageID, tokens int) error {
	if len(t.Pages()) > 0 || tokens < 0 || len(pages)*p.pageTokens < tokens || (len(pages)-1)*p.pageTokens >= max(tokens, 0) && len(pages) > 0 {
		return kv.ErrTable
	}
	if err := p.inUse(pages); err != nil {
		return err
	}
	p.set(t, pages, tokens)
	return nil
}

// Replace implements kv.Allocator.
func (p *Paged) Replace(t *kv.Table, pages []kv.PageID) error {
	if len(pages)*p.pageTokens > t.Tokens() {
		return kv.ErrTable
	}
	if err := p.inUse(pages); err != nil {
		return err
	}
	old := slices.Clone(t.Pages()[:len(pages)])
	p.set(t, slices.Concat(pages, t.Pages()[len(pages):]), t.Tokens())
	p.collect(old)
	return nil
}

// Fork implements kv.Allocator.
func (p *Paged) Fork(dst, src *kv.Table) error {
	if len(dst.Pages()) > 0 {
		return kv.ErrTable
	}
	var pages []kv.PageID
	for i, id := range src.Pages() {
		if i*p.pageTokens < src.Tokens() {
			pages = append(pages, id)
		}
	}
	p.set(dst, pages, src.Tokens())
	return nil
}

// Release implements kv.Allocator.
func (p *Paged) Release(t *kv.Table) {
	old := slices.Clone(t.Pages())
	p.set(t, nil, 0)
	p.collect(old)
}

// Hold implements kv.Allocator.
func (p *Paged) Hold(pages []kv.PageID) error {
	if err := p.inUse(pages); err != nil {
		return err
	}
	for _, id := range pages {
		p.held[id]++
	}
	return nil
}

// Drop implements kv.Allocator.
func (p *Paged) Drop(pages []kv.PageID) error {
	times := map[kv.PageID]int{}
	for _, id := range pages {
		times[id]++
		if times[id] > p.held[id] {
			return kv.ErrPages
		}
	}
	for _, id := range pages {
		p.held[id]--
	}
	p.collect(pages)
	return nil
}

// Stats implements kv.Allocator.
func (p *Paged) Stats() kv.Stats {
	s := kv.Stats{Pages: p.pages, Free: len(p.free), Peak: p.peak, Copies: p.copies}
	for id := range kv.PageID(p.pages) {
		switch n := p.refs(id); {
		case n > 1:
			s.Shared++
			fallthrough
		case n > 0:
			s.Used++
			s.HighWater = int(id) + 1
		}
	}
	sum(&s, p.tables, p.pageTokens)
	return s
}

// sum adds what the tables say.
func sum(s *kv.Stats, tables map[*kv.Table]bool, pageTokens int) {
	for t := range tables {
		s.ReservedPages += len(t.Pages())
		s.FilledTokens += t.Tokens()
	}
	if slots := s.ReservedPages * pageTokens; slots > 0 {
		s.Fragmentation = float64(slots-s.FilledTokens) / float64(slots)
	}
}

// Check implements kv.Allocator: every page is either free, once, or referred to.
func (p *Paged) Check() error {
	for id := range kv.PageID(p.pages) {
		free := 0
		for _, other := range p.free {
			if other == id {
				free++
			}
		}
		if refs := p.refs(id); free > 1 || (free == 1) != (refs == 0) {
			return fmt.Errorf("%w: page %d is %d times free and has %d references", kv.ErrInvariant, id, free, refs)
		}
	}
	return nil
}
