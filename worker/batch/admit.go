package batch

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/worker/radix"
)

// Wake returns when Plan will have something to do though nothing else happens: a static batch that is not full starts
// then. It is false if only an Add can change anything.
func (p *Planner) Wake() (at time.Duration, ok bool) {
	if p.cfg.Mode != Static || len(p.order) > 0 || p.waiting.len() == 0 {
		return 0, false
	}
	at = math.MaxInt64
	for r := range p.waiting {
		if q := &p.waiting[r]; q.n > 0 {
			at = min(at, q.head().addedAt+p.cfg.StaticWait)
		}
	}
	return at, true
}

// admit moves sequences from the head of the waiting list to free slots for as long as they fit, or others give way to them.
func (p *Planner) admit(now time.Duration) {
	if p.cfg.Mode == Static {
		if len(p.order) > 0 {
			return
		}
		if at, ok := p.Wake(); ok && now < at && p.waiting.len() < p.cfg.MaxBatch {
			return
		}
	}
	for {
		q, r := p.next(now)
		switch {
		case q == nil:
			return
		case len(p.free) > 0 && p.start(q.head(), r):
			q.pop()
		case !p.yield(q.head(), r, now): // no overtaking: the head would starve
			return
		}
	}
}

// peak is how many pages a waiting sequence can come to hold.
func (p *Planner) peak(w *waiter) int { return p.cfg.Pages(len(w.Prompt) - w.generated + w.MaxNew) }

// start gives a waiting sequence a slot, a sequence id, what the cache has of it, and pages for all that it prefills and
// one token more (the whole of it, if allocation is contiguous). It reports false, and leaves the sequence where it is,
// if there is not enough of something.
func (p *Planner) start(w *waiter, r rank) bool {
	promise := p.peak(w)
	if p.promised+promise > p.cfg.Promises() {
		return false
	}
	i := p.free[len(p.free)-1]
	s := &p.slots[i]
	tokens := slices.Grow(s.tokens[:0], len(w.Prompt)-w.generated+w.MaxNew) // no growth while it runs
	*s = slot{Sequence: w.Sequence, tokens: append(tokens, w.Prompt...), table: s.table, promised: promise,
		rank: r, prefill: len(w.Prompt), generated: w.generated, preempts: w.preempts, cached: w.cached, begun: w.begun,
		addedAt: w.addedAt, startedAt: w.startedAt, firstAt: w.firstAt, lastAt: w.lastAt}
	s.Prompt = nil
	// If the very prefix that it found is in its way, and nobody runs who will make room, it does without.
	if !p.occupy(s, true) && (len(p.order) > 0 || !p.occupy(s, false)) {
		return false
	}
	p.totals.WastedTokens += uint64(max(0, w.lost-s.fed))
	p.free = p.free[:len(p.free)-1]
	p.order = append(p.order, i)
	p.known[s.ID] = place(i)
	p.promised += promise
	s.running = true
	return true
}

// occupy finds cells for a sequence that starts, with what the cache has of it if that is wanted, or undoes what it did.
func (p *Planner) occupy(s *slot, cached bool) bool {
	whole := len(s.tokens) + 1
	if p.cfg.Contiguous {
		whole = len(s.tokens) - s.generated + s.MaxNew
	}
	use, pinned := 0, 0
	if cached {
		use, pinned = p.find(s)
	}
	if s.seq = p.takeID(); s.seq < 0 {
		p.unpin(s)
		return false
	}
	shared := p.cfg.Pages(use)
	// What the sequence takes in this step, and room for everyone who runs to go on.
	need := p.cfg.Pages(whole) - use/p.cfg.PageTokens
	spare := 0
	if p.promised > 0 && p.cfg.Overcommit > 1 {
		spare = len(p.order)
	}
	if !p.makeRoom(need + spare) {
		p.unpin(s)
		p.ids = append(p.ids, s.seq)
		return false
	}
	if use > 0 {
		if err := p.pages.Share(&s.table, p.match[:shared], use); err != nil {
			p.broken(err)
			p.unpin(s)
			p.ids = append(p.ids, s.seq)
			return false
		}
		p.moves = append(p.moves, Move{Kind: MoveCopy, Src: p.lookup(s, shared*p.cfg.PageTokens).Source, Dst: s.seq, Tokens: use})
	}
	if err := p.pages.Reserve(&s.table, whole); err != nil { // contiguous: no run is long enough
		p.pages.Release(&s.table)
		if use > 0 {
			p.moves = append(p.moves, Move{Kind: MoveTrim, Dst: s.seq})
		}
		p.unpin(s)
		p.ids = append(p.ids, s.seq)
		return false
	}
	if use < pinned { // it computes the last token of a page itself: the cached one may go, and is not this sequence's to hand on
		p.repin(s, use/p.cfg.PageTokens*p.cfg.PageTokens)
	}
	p.runs[s.seq] = true
	s.fed = use
	if s.cached < 0 {
		s.cached = use
		p.totals.PromptTokens += uint64(len(s.tokens) - s.generated)
		p.totals.CachedTokens += uint64(use)
	}
	return true
}

// find looks a sequence's tokens up in the cache and pins what it found. It returns how many of them need not be
// computed, one at least must, for its logits, and how many it pinned. The pages are in p.match.
func (p *Planner) find(s *slot) (use, pinned int) {
	if p.cache == nil {
		return 0, 0
	}
	m := p.lookup(s, len(s.tokens))
	if use = min(m.Tokens, len(s.tokens)-1); use == 0 {
		return 0, 0
	}
	ref, err := p.cache.Pin(m, m.Tokens)
	if err != nil {
		p.broken(err)
		return 0, 0
	}
	s.pin, s.pinned = ref, true
	return use, m.Tokens
}

// lookup matches the first tokens of a sequence; the pages are in p.match.
func (p *Planner) lookup(s *slot, tokens int) radix.Match {
	m := p.cache.Match(s.Scope, s.tokens[:min(tokens, len(s.tokens))], p.match[:0])
	p.match = m.Pages
	return m
}

func (p *Planner) unpin(s *slot) {
	if s.pinned {
		p.broken(p.cache.Unpin(s.pin))
		s.pinned = false
	}
}

// repin keeps the pin on the first tokens only.
func (p *Planner) repin(s *slot, tokens int) {
	old := s.pin
	s.pinned = false
	if tokens > 0 {
		m := p.lookup(s, tokens)
		ref, err := p.cache.Pin(m, tokens)
		p.broken(err)
		s.pin, s.pinned = ref, err == nil
	}
	p.broken(p.cache.Unpin(old))
}

// takeID returns a sequence id that nobody holds, at the expense of the cache if need be, or -1.
func (p *Planner) takeID() SeqID {
	for len(p.ids) == 0 {
		if p.cache == nil || !p.handOver() && !p.evict() {
			return -1
		}
	}
	id := p.ids[len(p.ids)-1]
	p.ids = p.ids[:len(p.ids)-1]
	return id
}

// handOver makes running sequences the owners of the prefixes that they use, so that the ids that hold these are free. It
// reports whether one is.
func (p *Planner) handOver() bool {
	for _, i := range p.order {
		if s := &p.slots[i]; s.pinned {
			if former, ok := p.cache.Adopt(s.pin, s.seq); ok {
				p.pass(former, 0)
			}
		}
		if len(p.ids) > 0 {
			return true
		}
	}
	return false
}

// makeRoom evicts until so many pages are free. If that cannot be, it evicts nothing.
func (p *Planner) makeRoom(pages int) bool {
	free := p.pages.Stats().Free
	if free >= pages {
		return true
	}
	if p.cache == nil || free+p.cache.Stats().EvictablePages < pages {
		return false
	}
	for p.pages.Stats().Free < pages {
		if !p.evict() {
			return false
		}
	}
	return true
}

// evict takes the least recently used leaf out of the cache.
func (p *Planner) evict() bool {
	e, ok := p.cache.Evict()
	if !ok {
		return false
	}
	p.totals.Evictions++
	p.broken(p.pages.Drop(e.Pages))
	p.pass(e.Seq, e.Keep)
	return true
}

// Flush empties the prefix cache, but for what running sequences use.
func (p *Planner) Flush() {
	for p.cache != nil && p.evict() {
	}
}

// pass is for a sequence id of the cache that keeps so many tokens there: with none it is free, unless it runs.
func (p *Planner) pass(id SeqID, keep int) {
	if id < 0 || p.runs[id] {
		return
	}
	p.moves = append(p.moves, Move{Kind: MoveTrim, Dst: id, Tokens: keep})
	if keep == 0 {
		p.ids = append(p.ids, id)
	}
}

// publish puts the full pages that a running sequence has computed into the cache. What another has put there meanwhile
// takes the place of its own. The sequence's own id owns the new leaf: nothing is copied.
func (p *Planner) publish(s *slot) {
	n := s.fed / p.cfg.PageTokens * p.cfg.PageTokens
	if p.cache == nil || n == 0 {
		return
	}
	tokens := s.tokens[:n]
	m := p.lookup(s, n)
	same := 0
	for own := s.table.Pages(); same < len(m.Pages) && own[same] == m.Pages[same]; same++ {
	}
	if same < len(m.Pages) {
		if err := p.pages.Replace(&s.table, m.Pages); err != nil {
			p.broken(err)
			return
		}
		p.moves = append(p.moves, Move{Kind: MoveRebase, Src: m.Source, Dst: s.seq, Tokens: m.Tokens})
		p.totals.RebasedTokens += uint64(m.Tokens - same*p.cfg.PageTokens)
	}
	in, err := p.cache.Insert(s.Scope, tokens, s.table.Pages()[:n/p.cfg.PageTokens], s.seq)
	if err != nil {
		p.broken(err)
		return
	}
	p.broken(p.pages.Hold(in.Fresh))
	p.unpin(s)
	s.pin, s.pinned = in.Ref, true
	p.pass(in.Freed, 0)
}

// broken notes that the pages or the cache refused what they must accept: their books and the Planner's differ. Err tells.
func (p *Planner) broken(err error) {
	if err != nil && p.fault == nil {
		p.fault = fmt.Errorf("%w: %w", ErrInvariant, err)
	}
}

// Err returns what broke the Planner's books, if anything did: then texts may be wrong, and the engine is not to be used
// any more.
func (p *Planner) Err() error { return p.fault }

// vacate gives back what slot i holds. Of a sequence that failed, the cache keeps nothing that is its alone.
func (p *Planner) vacate(i int, failed bool) {
	s := &p.slots[i]
	p.runs[s.seq] = false
	keep := 0
	if p.cache != nil {
		if _, owner := p.cache.Owned(s.seq); owner && failed && s.pinned {
			s.pinned = false
			e, ok, err := p.cache.Remove(s.pin)
			p.broken(err)
			if ok {
				p.broken(p.pages.Drop(e.Pages))
			}
		}
		p.unpin(s)
		keep, _ = p.cache.Owned(s.seq)
	}
	p.pass(s.seq, keep)
	p.pages.Release(&s.table)
	p.promised -= s.promised
	p.free = append(p.free, i)
	for k, at := range p.order {
		if at == i {
			p.order = append(p.order[:k], p.order[k+1:]...)
			break
		}
	}
	*s = slot{seq: -1, tokens: s.tokens[:0], table: s.table}
}
