package batch

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrSequence is returned by Add for a sequence that can never run here: empty, or longer than Config.Longest.
	ErrSequence = errors.New("batch: impossible sequence")
	// ErrKnown is returned by Add for an ID that is waiting or running.
	ErrKnown = errors.New("batch: sequence is known already")
	// ErrCommit is returned inside the outcomes of a Commit whose rows do not fit the batch.
	ErrCommit = errors.New("batch: rows do not answer the batch")
)

// place says where a known sequence is.
type place int32

const inWaiting place = -1 // otherwise the index of its slot

// slot is a running sequence. Slots and their buffers are used again.
type slot struct {
	id        ID
	seq       SeqID
	tokens    []int32 // prompt and generated
	fed       int     // of tokens, in the KV cache
	generated int
	maxNew    int
	pages     int // reserved for the peak
	started   bool
	cancelled bool // while in flight; Commit ends it

	addedAt, startedAt, firstAt, lastAt time.Duration
}

// prefilling reports whether prompt tokens are left to feed.
func (s *slot) prefilling() bool { return s.fed < len(s.tokens)-1 || s.generated == 0 }

// Planner is the state machine. It is owned by one goroutine; the zero value is not usable, see New.
type Planner struct {
	cfg      Config
	known    map[ID]place
	waiting  queue
	slots    []slot // len = Sequences
	order    []int  // slots that run, in order of admission
	free     []int  // slots that do not run; a slot's index is its SeqID
	pages    int    // not reserved
	batch    Batch  // the one in flight, or the last
	inFlight bool   // between Plan and Commit
	member   []bool // len = Sequences: the slot is in the batch in flight
	outcomes []Outcome
}

// New returns an empty Planner, or ErrConfig.
func New(cfg Config) (*Planner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Planner{
		cfg:      cfg,
		known:    make(map[ID]place, 2*cfg.Sequences),
		slots:    make([]slot, cfg.Sequences),
		order:    make([]int, 0, cfg.Sequences),
		free:     make([]int, cfg.Sequences),
		pages:    cfg.KVPages,
		member:   make([]bool, cfg.Sequences),
		outcomes: make([]Outcome, 0, cfg.Sequences),
	}
	p.batch.Entries = make([]Entry, 0, cfg.MaxBatch)
	for i := range p.free { // LIFO: the lowest id is handed out first
		p.free[i] = cfg.Sequences - 1 - i
		p.slots[i].seq = SeqID(i)
	}
	return p, nil
}

// Config returns what the Planner was made with.
func (p *Planner) Config() Config { return p.cfg }

// Add puts a sequence at the end of the waiting list. It returns ErrKnown or ErrSequence.
func (p *Planner) Add(s Sequence, now time.Duration) error {
	if _, ok := p.known[s.ID]; ok {
		return fmt.Errorf("%w: %d", ErrKnown, s.ID)
	}
	switch longest := p.cfg.Longest(); {
	case len(s.Prompt) == 0:
		return fmt.Errorf("%w: no prompt", ErrSequence)
	case s.MaxNew < 1:
		return fmt.Errorf("%w: %d tokens to generate", ErrSequence, s.MaxNew)
	case len(s.Prompt) >= longest || s.MaxNew > longest-len(s.Prompt):
		return fmt.Errorf("%w: %d prompt and %d output tokens, at most %d fit", ErrSequence, len(s.Prompt), s.MaxNew, longest)
	}
	p.waiting.push(waiter{Sequence: s, addedAt: now})
	p.known[s.ID] = inWaiting
	return nil
}

// Cancel ends a sequence. The outcome is returned, or comes with the Commit if the sequence is in the batch in flight;
// an unknown id has none. The slice is valid until the next call.
func (p *Planner) Cancel(id ID) []Outcome {
	at, ok := p.known[id]
	if !ok {
		return nil
	}
	if p.inFlight && at != inWaiting && p.member[at] {
		p.slots[at].cancelled = true
		return nil
	}
	p.outcomes = p.outcomes[:0]
	if at == inWaiting {
		w := p.waiting.remove(id)
		delete(p.known, id)
		p.outcomes = append(p.outcomes, Outcome{ID: id, Kind: KindCancelled, Seq: -1, Added: w.addedAt})
	} else {
		p.end(int(at), KindCancelled, nil)
	}
	return p.outcomes
}

// Plan chooses the next step, or returns nil if there is nothing to do. Every Plan that returned a batch is answered
// by one Commit before the next.
func (p *Planner) Plan(now time.Duration) *Batch {
	if p.inFlight {
		return &p.batch
	}
	b := &p.batch
	b.Entries = b.Entries[:0]
	b.PrefillTokens, b.Decodes, b.ContextTokens = 0, 0, 0
	p.admit()

	// Decodes first: BatchTokens ≥ MaxBatch holds all of them, and one token at least for a sequence that prefills.
	for _, i := range p.order {
		if s := &p.slots[i]; !s.prefilling() {
			p.enter(i, 1, now)
		}
	}
	budget := p.cfg.BatchTokens - b.Decodes
	for _, i := range p.order {
		if s := &p.slots[i]; s.prefilling() && budget > 0 {
			n := min(len(s.tokens)-s.fed, p.cfg.ChunkTokens, budget)
			p.enter(i, n, now)
			budget -= n
		}
	}
	if len(b.Entries) == 0 {
		return nil
	}
	b.Step++
	p.inFlight = true
	return b
}

// admit moves sequences from the head of the waiting list to free slots for as long as they fit.
func (p *Planner) admit() {
	for p.waiting.len() > 0 && len(p.order) < p.cfg.MaxBatch && len(p.free) > 0 {
		w := p.waiting.head()
		pages := p.cfg.Pages(len(w.Prompt) + w.MaxNew)
		if pages > p.pages {
			return // no overtaking: the head would starve
		}
		i := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		p.pages -= pages
		p.order = append(p.order, i)
		p.known[w.ID] = place(i)
		s := &p.slots[i]
		*s = slot{id: w.ID, seq: s.seq, tokens: append(s.tokens[:0], w.Prompt...), maxNew: w.MaxNew, pages: pages, addedAt: w.addedAt}
		p.waiting.pop()
	}
}

// enter adds n tokens of slot i to the batch.
func (p *Planner) enter(i, n int, now time.Duration) {
	s, b := &p.slots[i], &p.batch
	e := Entry{
		ID: s.id, Seq: s.seq, Pos: int32(s.fed), Tokens: s.tokens[s.fed : s.fed+n : s.fed+n],
		Sample: s.fed+n == len(s.tokens), Start: !s.started, Prefill: s.prefilling(), slot: i,
	}
	if !s.started {
		s.started, s.startedAt = true, now
	}
	if e.Prefill {
		b.PrefillTokens += n
	} else {
		b.Decodes++
	}
	b.ContextTokens += s.fed + n
	p.member[i] = true
	b.Entries = append(b.Entries, e)
}

// Commit applies the rows of the batch in flight, rows[i] for Entries[i], and tells what became of each sequence that
// got a token or ended. Rows that do not fit fail every sequence of the batch with ErrCommit. The slice is valid until
// the next call.
func (p *Planner) Commit(rows []Row, now time.Duration) []Outcome {
	if !p.inFlight {
		return nil
	}
	p.inFlight = false
	p.outcomes = p.outcomes[:0]
	fit := len(rows) == len(p.batch.Entries)
	for k := range p.batch.Entries {
		e := &p.batch.Entries[k]
		s := &p.slots[e.slot]
		p.member[e.slot] = false
		switch {
		case s.cancelled:
			p.end(e.slot, KindCancelled, nil)
		case !fit:
			p.end(e.slot, KindFailed, fmt.Errorf("%w: %d rows for %d entries", ErrCommit, len(rows), len(p.batch.Entries)))
		case rows[k].Err != nil:
			p.end(e.slot, KindFailed, rows[k].Err)
		default:
			s.fed += len(e.Tokens)
			if e.Sample {
				p.token(e.slot, &rows[k], now)
			}
		}
	}
	return p.outcomes
}

// token appends a generated token to slot i and reports it.
func (p *Planner) token(i int, r *Row, now time.Duration) {
	s := &p.slots[i]
	s.tokens = append(s.tokens, r.Token)
	s.generated++
	s.lastAt = now
	if s.generated == 1 {
		s.firstAt = now
	}
	kind := KindToken
	if r.Stop {
		kind = KindStop
	} else if s.generated == s.maxNew {
		kind = KindLength
	}
	if kind.Ended() {
		p.end(i, kind, nil)
	} else {
		p.report(s, kind, nil)
	}
}

// end reports the end of slot i's sequence and gives back what it held.
func (p *Planner) end(i int, kind Kind, err error) {
	s := &p.slots[i]
	p.report(s, kind, err)
	delete(p.known, s.id)
	p.pages += s.pages
	p.free = append(p.free, i)
	for k, at := range p.order {
		if at == i {
			p.order = append(p.order[:k], p.order[k+1:]...)
			break
		}
	}
	*s = slot{seq: s.seq, tokens: s.tokens[:0]}
}

func (p *Planner) report(s *slot, kind Kind, err error) {
	o := Outcome{ID: s.id, Kind: kind, Seq: s.seq, Index: s.generated, Err: err,
		Added: s.addedAt, Started: s.startedAt, First: s.firstAt, Last: s.lastAt}
	if kind == KindToken || kind == KindStop || kind == KindLength {
		o.Index--
		o.Token = s.tokens[len(s.tokens)-1]
	}
	p.outcomes = append(p.outcomes, o)
}

// Usage returns how full the engine is.
func (p *Planner) Usage() Usage {
	u := Usage{Running: len(p.order), Waiting: p.waiting.len(), FreeSequences: len(p.free), FreePages: p.pages}
	for _, i := range p.order {
		u.UsedPages += p.cfg.Pages(p.slots[i].fed)
	}
	return u
}
