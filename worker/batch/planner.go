package batch

import (
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
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
	Sequence
	seq       SeqID
	tokens    []int32 // prompt and generated
	fed       int     // of tokens, in the KV cache
	prefill   int     // of tokens, known when it was admitted: the prompt, and what was generated before a preemption
	generated int
	promised  int // pages of the peak
	preempts  int
	cached    int
	table     kv.Table
	pin       radix.Ref
	pinned    bool
	running   bool
	started   bool // was in a batch since it was admitted
	begun     bool // was in a batch ever: startedAt is set
	cancelled bool // while in flight; Commit ends it
	rank      rank // as it was when the last step was planned

	addedAt, startedAt, firstAt, lastAt time.Duration
}

// prefilling reports whether tokens are left to feed that were known when it was admitted.
func (s *slot) prefilling() bool { return s.fed < s.prefill }

// Planner is the state machine. It is owned by one goroutine; the zero value is not usable, see New.
type Planner struct {
	cfg      Config
	pages    kv.Allocator
	cache    radix.Cache // nil without a prefix cache
	known    map[ID]place
	waiting  list
	slots    []slot  // len = MaxBatch
	order    []int   // slots that run, in order of admission
	turn     []int   // scratch
	free     []int   // slots that do not run
	ids      []SeqID // that neither a running sequence nor the cache holds
	runs     []bool  // len = Sequences: the id is of a running sequence
	promised int     // pages
	dated    int     // known sequences that have a deadline
	expiring int     // of them those that are to be cancelled when it cannot be kept
	uneven   bool    // those that run are of different ranks, and that matters
	moves    []Move
	batch    Batch // the one in flight, or the last
	planned  time.Duration
	inFlight bool   // between Plan and Commit
	member   []bool // len = MaxBatch: the slot is in the batch in flight
	outcomes []Outcome
	match    []kv.PageID // scratch
	model    StepModel
	totals   Totals
	fault    error // see Err
}

// New returns an empty Planner, or ErrConfig.
func New(cfg Config) (*Planner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var pages kv.Allocator
	var cache radix.Cache
	var err error
	if cfg.Contiguous {
		pages, err = kv.NewContiguous(cfg.PageTokens, cfg.KVPages)
	} else {
		pages, err = kv.NewPaged(cfg.PageTokens, cfg.KVPages)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.PrefixCache {
		if cache, err = radix.New(cfg.PageTokens); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return NewWith(cfg, pages, cache)
}

// NewWith is New on the given cores, empty and of the configured sizes, which the Planner owns from now on; cache is nil
// without a prefix cache.
func NewWith(cfg Config, pages kv.Allocator, cache radix.Cache) (*Planner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Mode == FIFO {
		cfg.MaxBatch = 1
	}
	if cfg.MaxPreemptions == 0 {
		cfg.MaxPreemptions = 3
	}
	p := &Planner{
		cfg:      cfg,
		pages:    pages,
		cache:    cache,
		known:    make(map[ID]place, 2*cfg.MaxBatch),
		slots:    make([]slot, cfg.MaxBatch),
		order:    make([]int, 0, cfg.MaxBatch),
		turn:     make([]int, 0, cfg.MaxBatch),
		free:     make([]int, cfg.MaxBatch),
		ids:      make([]SeqID, cfg.Sequences),
		runs:     make([]bool, cfg.Sequences),
		member:   make([]bool, cfg.MaxBatch),
		outcomes: make([]Outcome, 0, 2*cfg.MaxBatch),
	}
	p.batch.Entries = make([]Entry, 0, cfg.MaxBatch)
	for i := range p.free { // LIFO: the lowest is handed out first
		p.free[i] = cfg.MaxBatch - 1 - i
	}
	for i := range p.ids {
		p.ids[i] = SeqID(cfg.Sequences - 1 - i)
	}
	return p, nil
}

// Config returns what the Planner was made with, defaults filled in.
func (p *Planner) Config() Config { return p.cfg }

// Add puts a sequence at the end of the waiting list, or of that part of it which has a Priority. It returns ErrKnown or ErrSequence.
func (p *Planner) Add(s Sequence, now time.Duration) error {
	if _, ok := p.known[s.ID]; ok {
		return fmt.Errorf("%w: %d", ErrKnown, s.ID)
	}
	switch longest := p.cfg.Longest(); {
	case len(s.Prompt) == 0:
		return fmt.Errorf("%w: no prompt", ErrSequence)
	case s.MaxNew < 1 || s.MinNew < 0 || s.MinNew > s.MaxNew:
		return fmt.Errorf("%w: %d tokens to generate, %d at least", ErrSequence, s.MaxNew, s.MinNew)
	case len(s.Prompt) >= longest || s.MaxNew > longest-len(s.Prompt):
		return fmt.Errorf("%w: %d prompt and %d output tokens, at most %d fit", ErrSequence, len(s.Prompt), s.MaxNew, longest)
	}
	p.waiting[s.rank()].push(waiter{Sequence: s, cached: -1, addedAt: now})
	p.known[s.ID] = inWaiting
	p.count(&s, 1)
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
		p.leave(&w, KindCancelled)
	} else {
		p.end(int(at), KindCancelled, nil)
	}
	return p.outcomes
}

// leave reports the end of a sequence that was taken out of the waiting list.
func (p *Planner) leave(w *waiter, kind Kind) {
	p.forget(&w.Sequence)
	p.outcomes = append(p.outcomes, Outcome{ID: w.ID, Kind: kind, Seq: -1, Index: w.generated, Cached: max(w.cached, 0),
		Added: w.addedAt, Started: w.startedAt, First: w.firstAt, Last: w.lastAt})
}

// forget is for a sequence that has ended.
func (p *Planner) forget(s *Sequence) {
	delete(p.known, s.ID)
	p.count(s, -1)
}

// Moves appends what the backend must do to its cells before the next step, in order, and forgets it. The caller asks
// after every Plan, Commit and Cancel, so that cells are free as soon as they can be.
func (p *Planner) Moves(dst []Move) []Move {
	dst = append(dst, p.moves...)
	p.moves = p.moves[:0]
	return dst
}

// Plan chooses the next step, or returns nil if there is nothing to do now; see Wake. Every Plan that returned a batch
// is answered by one Commit before the next.
func (p *Planner) Plan(now time.Duration) *Batch {
	if p.inFlight {
		return &p.batch
	}
	b := &p.batch
	b.Entries, b.Preempted = b.Entries[:0], b.Preempted[:0]
	b.PrefillTokens, b.Decodes, b.ContextTokens = 0, 0, 0
	p.judge(now)
	p.grow()
	p.admit(now)
	p.compare()

	decodes, context := 0, 0
	for _, i := range p.order {
		if s := &p.slots[i]; !s.prefilling() {
			decodes++
			context += s.fed + 1
		}
	}
	if p.cfg.Order == PrefillFirst {
		fed := p.enterPrefills(p.cfg.BatchTokens, decodes, context, now)
		p.enterDecodes(p.cfg.BatchTokens-fed, decodes, now)
	} else {
		p.enterDecodes(p.cfg.BatchTokens, decodes, now) // BatchTokens ≥ MaxBatch holds all of them
		p.enterPrefills(p.cfg.BatchTokens-decodes, decodes, context, now)
	}
	if len(b.Entries) == 0 {
		return nil
	}
	b.Step++
	p.inFlight, p.planned = true, now
	return b
}

// enterDecodes begins with another sequence in each step if there is not budget for all, so that all of a rank have their turns.
func (p *Planner) enterDecodes(budget, decodes int, now time.Duration) {
	first := 0
	if decodes > budget {
		first = int(p.batch.Step % uint64(len(p.order)))
	}
	for pass := range p.passes() {
		for k := range p.order {
			i := p.order[(first+k)%len(p.order)]
			if s := &p.slots[i]; !s.prefilling() && budget > 0 && p.turnOf(s, pass) {
				p.enter(i, 1, now)
				budget--
			}
		}
	}
}

// enterPrefills returns how many tokens it entered. Beside sequences that decode, they are as many as keep to the
// target, but some in any case.
func (p *Planner) enterPrefills(budget, decodes, context int, now time.Duration) int {
	left := budget
	slack, bounded := p.cfg.ITLTarget, p.cfg.ITLTarget > 0 && decodes > 0
	if bounded {
		slack -= p.model.Predict(decodes, 0, context)
	}
	for pass := range p.passes() {
		for _, i := range p.order {
			s := &p.slots[i]
			if !s.prefilling() || left == 0 || !p.turnOf(s, pass) {
				continue
			}
			n := min(s.prefill-s.fed, p.cfg.ChunkTokens, left)
			if bounded {
				fits := p.model.Chunk(slack, s.fed)
				if left == budget {
					fits = max(fits, p.cfg.PageTokens)
				}
				if n = min(n, fits); n == 0 {
					continue
				}
				slack -= p.model.ChunkCost(n, s.fed)
			}
			p.enter(i, n, now)
			left -= n
		}
	}
	return budget - left
}

// enter adds n tokens of slot i to the batch.
func (p *Planner) enter(i, n int, now time.Duration) {
	s, b := &p.slots[i], &p.batch
	e := Entry{
		ID: s.ID, Seq: s.seq, Pos: int32(s.fed), Tokens: s.tokens[s.fed : s.fed+n : s.fed+n],
		Sample: s.fed+n == len(s.tokens), Start: !s.started, Prefill: s.prefilling(), slot: i,
	}
	s.started = true
	if !s.begun {
		s.begun, s.startedAt = true, now
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
// got a token or ended, one that waits included if its deadlines have ended it; one that does so after a token has two outcomes. Rows that do not fit fail every sequence of the batch with ErrCommit. The slice is valid until
// the next call.
func (p *Planner) Commit(rows []Row, now time.Duration) []Outcome {
	if !p.inFlight {
		return nil
	}
	p.inFlight = false
	p.outcomes = p.outcomes[:0]
	fit := len(rows) == len(p.batch.Entries)
	if fit {
		p.model.Observe(p.batch.Decodes, p.batch.PrefillTokens, p.batch.ContextTokens, now-p.planned)
	}
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
		case rows[k].Wait:
		default:
			p.commit(e, &rows[k], now)
		}
	}
	p.expire(now)
	return p.outcomes
}

// commit applies the row of an entry whose tokens were fed.
func (p *Planner) commit(e *Entry, r *Row, now time.Duration) {
	s := &p.slots[e.slot]
	s.fed += len(e.Tokens)
	if err := p.pages.Fill(&s.table, s.fed); err != nil {
		p.end(e.slot, KindFailed, err)
		return
	}
	if !e.Sample {
		return
	}
	if e.Prefill {
		p.publish(s)
	}
	s.tokens = append(s.tokens, r.Token)
	s.generated++
	s.lastAt = now
	if s.generated == 1 {
		s.firstAt = now
	}
	kind := KindToken
	if r.Stop {
		kind = KindStop
	} else if s.generated == s.MaxNew {
		kind = KindLength
	}
	if kind.Ended() {
		p.end(e.slot, kind, nil)
	} else {
		p.report(s, kind, nil)
	}
}

// end reports the end of slot i's sequence and gives back what it held.
func (p *Planner) end(i int, kind Kind, err error) {
	s := &p.slots[i]
	p.report(s, kind, err)
	p.forget(&s.Sequence)
	if p.cfg.CacheOutput && (kind == KindStop || kind == KindLength) {
		p.publish(s)
	}
	p.vacate(i, kind == KindFailed)
}

func (p *Planner) report(s *slot, kind Kind, err error) {
	o := Outcome{ID: s.ID, Kind: kind, Seq: s.seq, Index: s.generated, Err: err, Cached: s.cached,
		Added: s.addedAt, Started: s.startedAt, First: s.firstAt, Last: s.lastAt}
	if kind == KindToken || kind == KindStop || kind == KindLength {
		o.Index--
		o.Token = s.tokens[len(s.tokens)-1]
	}
	p.outcomes = append(p.outcomes, o)
}
