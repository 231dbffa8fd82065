package batch

import (
	"errors"
	"fmt"
)

// ErrInvariant is returned by Check.
var ErrInvariant = errors.New("batch: invariant broken")

// Check verifies the package's invariants in O(sequences), for tests and for debugging a live engine.
func (p *Planner) Check() error {
	held := make([]bool, len(p.slots))
	hold := func(i int) error {
		if held[i] {
			return fmt.Errorf("%w: sequence id %d is held twice", ErrInvariant, i)
		}
		held[i] = true
		return nil
	}
	pages, known := p.pages, p.waiting.len()
	if p.pages < 0 {
		return fmt.Errorf("%w: %d free pages", ErrInvariant, p.pages)
	}
	for _, i := range p.free {
		if err := hold(i); err != nil {
			return err
		}
	}
	for _, i := range p.order {
		if err := hold(i); err != nil {
			return err
		}
		s := &p.slots[i]
		pages += s.pages
		known++
		switch {
		case p.known[s.id] != place(i):
			return fmt.Errorf("%w: sequence %d is in slot %d, known in %d", ErrInvariant, s.id, i, p.known[s.id])
		case s.fed > s.pages*p.cfg.PageTokens || s.generated > s.maxNew || len(s.tokens) > s.pages*p.cfg.PageTokens:
			return fmt.Errorf("%w: sequence %d holds %d of %d tokens in %d pages, generated %d of %d",
				ErrInvariant, s.id, s.fed, len(s.tokens), s.pages, s.generated, s.maxNew)
		case s.fed > len(s.tokens):
			return fmt.Errorf("%w: sequence %d fed %d of %d tokens", ErrInvariant, s.id, s.fed, len(s.tokens))
		}
	}
	switch {
	case pages != p.cfg.KVPages:
		return fmt.Errorf("%w: free and reserved pages are %d of %d", ErrInvariant, pages, p.cfg.KVPages)
	case len(p.free)+len(p.order) != p.cfg.Sequences:
		return fmt.Errorf("%w: %d free and %d held sequence ids of %d", ErrInvariant, len(p.free), len(p.order), p.cfg.Sequences)
	case len(p.order) > p.cfg.MaxBatch:
		return fmt.Errorf("%w: %d sequences run, at most %d may", ErrInvariant, len(p.order), p.cfg.MaxBatch)
	case known != len(p.known):
		return fmt.Errorf("%w: %d sequences are known, %d wait or run", ErrInvariant, len(p.known), known)
	}
	for k := range p.waiting.len() {
		if id := p.waiting.at(k).ID; p.known[id] != inWaiting {
			return fmt.Errorf("%w: sequence %d waits, known in slot %d", ErrInvariant, id, p.known[id])
		}
	}
	return nil
}
