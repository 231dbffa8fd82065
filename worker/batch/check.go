package batch

import (
	"errors"
	"fmt"

	"github.com/cadence-slo/cadence/schema"
)

// ErrInvariant is returned by Check.
var ErrInvariant = errors.New("batch: invariant broken")

// Check verifies the invariants of the Planner, its pages and its prefix cache, in O(sequences + pages), for tests and for debugging a live
// engine.
func (p *Planner) Check() error {
	if err := errors.Join(p.fault, p.pages.Check(), p.checkSlots(), p.checkIDs()); err != nil {
		return err
	}
	return p.checkWaiting()
}

func (p *Planner) checkWaiting() error {
	dated, expiring := 0, 0
	count := func(s *Sequence) {
		if s.dated() {
			dated++
			if s.OnDeadline == schema.OnDeadlineCancel {
				expiring++
			}
		}
	}
	for r := range p.waiting {
		for k := range p.waiting[r].n {
			w := p.waiting[r].at(k)
			if p.known[w.ID] != inWaiting {
				return fmt.Errorf("%w: sequence %d waits, known in slot %d", ErrInvariant, w.ID, p.known[w.ID])
			}
			if rank(r) != demoted && rank(r) != w.rank() || rank(r) == demoted && !w.dated() {
				return fmt.Errorf("%w: sequence %d of priority %d waits in rank %d", ErrInvariant, w.ID, w.Priority, r)
			}
			count(&w.Sequence)
		}
	}
	for _, i := range p.order {
		count(&p.slots[i].Sequence)
	}
	if dated != p.dated || expiring != p.expiring {
		return fmt.Errorf("%w: %d sequences have a deadline and %d end by it, counted %d and %d", ErrInvariant, dated, expiring, p.dated, p.expiring)
	}
	return nil
}

func (p *Planner) checkSlots() error {
	promised, free := 0, make([]bool, len(p.slots))
	for _, i := range p.free {
		if free[i] || p.slots[i].running {
			return fmt.Errorf("%w: slot %d is free twice, or runs", ErrInvariant, i)
		}
		free[i] = true
	}
	for _, i := range p.order {
		s := &p.slots[i]
		promised += s.promised
		room := len(s.table.Pages()) * p.cfg.PageTokens
		switch {
		case free[i] || !s.running:
			return fmt.Errorf("%w: slot %d is in the order of those that run", ErrInvariant, i)
		case p.known[s.ID] != place(i):
			return fmt.Errorf("%w: sequence %d is in slot %d, known in %d", ErrInvariant, s.ID, i, p.known[s.ID])
		case s.fed > room || s.fed > len(s.tokens) || s.generated > s.MaxNew || s.table.Tokens() != s.fed:
			return fmt.Errorf("%w: sequence %d fed %d of %d tokens into %d pages (filled with %d), generated %d of %d",
				ErrInvariant, s.ID, s.fed, len(s.tokens), len(s.table.Pages()), s.table.Tokens(), s.generated, s.MaxNew)
		case len(s.table.Pages()) > s.promised:
			return fmt.Errorf("%w: sequence %d has %d pages, was promised %d", ErrInvariant, s.ID, len(s.table.Pages()), s.promised)
		}
	}
	switch {
	case promised != p.promised || promised > p.cfg.Promises():
		return fmt.Errorf("%w: %d pages are promised, counted %d, allowed %d", ErrInvariant, promised, p.promised, p.cfg.Promises())
	case len(p.free)+len(p.order) != len(p.slots):
		return fmt.Errorf("%w: %d free and %d running slots of %d", ErrInvariant, len(p.free), len(p.order), len(p.slots))
	case p.waiting.len()+len(p.order) != len(p.known):
		return fmt.Errorf("%w: %d sequences are known, %d wait, %d run", ErrInvariant, len(p.known), p.waiting.len(), len(p.order))
	}
	return nil
}

// checkIDs verifies that every sequence id is free, or of one running sequence, or of one cached leaf (or of both the
// latter).
func (p *Planner) checkIDs() error {
	held := make([]bool, p.cfg.Sequences)
	for _, id := range p.ids {
		if held[id] {
			return fmt.Errorf("%w: sequence id %d is free twice", ErrInvariant, id)
		}
		held[id] = true
	}
	for _, i := range p.order {
		id := p.slots[i].seq
		if held[id] || !p.runs[id] {
			return fmt.Errorf("%w: sequence id %d of a running sequence is held by another", ErrInvariant, id)
		}
		held[id] = true
	}
	leaves := 0
	for id := range held {
		owned := false
		if p.cache != nil {
			_, owned = p.cache.Owned(SeqID(id))
		}
		switch {
		case owned && held[id] && !p.runs[id]:
			return fmt.Errorf("%w: sequence id %d is free, and holds a cached prefix", ErrInvariant, id)
		case !owned && !held[id]:
			return fmt.Errorf("%w: nobody holds sequence id %d", ErrInvariant, id)
		case owned:
			leaves++
		}
	}
	if p.cache == nil {
		return nil
	}
	if n := p.cache.Stats().Leaves; n != leaves {
		return fmt.Errorf("%w: %d leaves are cached, %d sequence ids hold one", ErrInvariant, n, leaves)
	}
	return p.cache.Check()
}
