package mock

import (
	"errors"
	"fmt"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrStep is returned by Step for a batch that a real engine could not execute, or would execute wrong: one that does not
// continue its sequences, is larger than the engine, or feeds other tokens than Start told of.
var ErrStep = errors.New("mock: impossible batch")

// sequence is what a KV cache would hold of a request. Its cells are numbered, and shared as an engine shares them.
type sequence struct {
	request   schema.RequestID
	started   bool
	ignoreEOS bool
	logprobs  int32           // as in worker.Start
	said      schema.Logprobs // of the last token
	cells     []int           // len = tokens held
	tokens    []int32         // in cells
	known     []int32         // prompt and output, from Start; its memory is used again
	// state is the hash of seed, attempt and tokens[:hashed].
	state  uint64
	hashed int
}

// Backend implements worker.Backend.
type Backend struct {
	Tokenizer
	cfg  Config
	seqs []sequence
	refs []int // len = KVCells: sequences that hold each cell
	free []int // cells that none holds
	pace pacer
}

var _ worker.Backend = (*Backend)(nil)

// New returns an engine, or ErrConfig.
func New(cfg Config) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, seqs: make([]sequence, cfg.Sequences), refs: make([]int, cfg.KVCells), free: make([]int, cfg.KVCells)}
	for i := range b.free {
		b.free[i] = cfg.KVCells - 1 - i
	}
	if cfg.Cost(&batch.Batch{PrefillTokens: cfg.BatchTokens, Decodes: 1}) > 0 {
		if err := b.pace.open(); err != nil {
			return nil, fmt.Errorf("mock: opening a timer: %w", err)
		}
	}
	return b, nil
}

// Info implements worker.Backend.
func (b *Backend) Info() worker.Info {
	c := &b.cfg
	return worker.Info{
		Backend: "mock", Model: c.Model,
		Fingerprint:   fmt.Sprintf("mock-%s-%g-%v", c.speed(), c.EndHazard, c.AttemptIndependent),
		ContextTokens: c.ContextTokens, Sequences: c.Sequences, KVCells: c.KVCells, BatchTokens: c.BatchTokens, Vocab: Vocab, Sharing: true, Logprobs: true,
	}
}

// Start implements worker.Backend. It checks the sampling parameters, as an engine would, and uses their seed alone. Grammars are
// none of its business: the worker refuses them.
func (b *Backend) Start(seq batch.SeqID, s *worker.Start) error {
	if err := s.Sampling.Validate(); err != nil {
		return err
	}
	attempt := s.Attempt
	if b.cfg.AttemptIndependent {
		attempt = 0
	}
	q := &b.seqs[seq]
	q.request, q.started, q.ignoreEOS, q.logprobs = s.Request, true, s.IgnoreEOS, s.Logprobs
	q.state, q.hashed = seedState(s.Sampling.Seed, attempt), 0
	q.known = append(append(q.known[:0], s.Prompt...), s.Output...)
	return nil
}

// Apply implements worker.Backend. It returns ErrStep for a move that would mix up sequences.
func (b *Backend) Apply(m batch.Move) error {
	dst := &b.seqs[m.Dst]
	switch m.Kind {
	case batch.MoveTrim:
		b.trim(dst, m.Tokens)
		return nil
	case batch.MoveCopy:
		if len(dst.cells) > 0 {
			return fmt.Errorf("%w: copy into sequence %d, which holds %d tokens", ErrStep, m.Dst, len(dst.cells))
		}
	case batch.MoveRebase:
		if len(dst.cells) < m.Tokens {
			return fmt.Errorf("%w: sequence %d holds %d tokens, not %d", ErrStep, m.Dst, len(dst.cells), m.Tokens)
		}
	}
	src := &b.seqs[m.Src]
	if m.Src == m.Dst || len(src.cells) < m.Tokens {
		return fmt.Errorf("%w: %d tokens from sequence %d, which holds %d, to sequence %d", ErrStep, m.Tokens, m.Src, len(src.cells), m.Dst)
	}
	for i, cell := range src.cells[:m.Tokens] {
		b.refs[cell]++
		if m.Kind == batch.MoveCopy {
			dst.cells, dst.tokens = append(dst.cells, cell), append(dst.tokens, src.tokens[i])
			continue
		}
		if dst.tokens[i] != src.tokens[i] {
			return fmt.Errorf("%w: token %d of sequence %d differs from that of sequence %d", ErrStep, i, m.Dst, m.Src)
		}
		b.unref(dst.cells[i])
		dst.cells[i] = cell
	}
	return nil
}

func (b *Backend) trim(q *sequence, keep int) {
	for len(q.cells) > keep {
		b.unref(q.cells[len(q.cells)-1])
		q.cells = q.cells[:len(q.cells)-1]
	}
	*q = sequence{cells: q.cells, tokens: q.tokens[:len(q.cells)], known: q.known[:0]} // it does not run any more
}

func (b *Backend) unref(cell int) {
	if b.refs[cell]--; b.refs[cell] == 0 {
		b.free = append(b.free, cell)
	}
}

// follows returns ErrStep if an entry is not what Start has promised: the tokens it told of, as a prefill, after cells that
// hold them, too; then, as decodes, one token each time. An engine whose sampler remembers would count a token twice, or
// not at all.
func (s *sequence) follows(e *batch.Entry) error {
	pos, n := int(e.Pos), len(e.Tokens)
	if s.hashed == 0 { // its first step: what is there was copied from another
		if i, ok := differ(s.tokens, s.known); !ok {
			return fmt.Errorf("%w: sequence %d was given another's token %d", ErrStep, e.Seq, i)
		}
	}
	if told := pos < len(s.known); e.Prefill != told {
		return fmt.Errorf("%w: sequence %d at %d of %d tokens that it started with: prefill is %t", ErrStep, e.Seq, pos, len(s.known), e.Prefill)
	}
	if !e.Prefill {
		if n != 1 {
			return fmt.Errorf("%w: sequence %d decodes %d tokens", ErrStep, e.Seq, n)
		}
		return nil
	}
	if i, ok := differ(e.Tokens, s.known[pos:]); !ok {
		return fmt.Errorf("%w: sequence %d is fed another token %d than it started with", ErrStep, e.Seq, pos+i)
	}
	return nil
}

// differ returns the first place where tokens do not begin whole, or true if they do.
func differ(tokens, whole []int32) (at int, ok bool) {
	for i, t := range tokens {
		if i >= len(whole) || t != whole[i] {
			return i, false
		}
	}
	return 0, true
}

// Step implements worker.Backend.
func (b *Backend) Step(step *batch.Batch, rows []batch.Row) error {
	if b.cfg.FailStep != nil {
		if err := b.cfg.FailStep(step); err != nil {
			return err
		}
	}
	fed := 0
	for i := range step.Entries {
		e := &step.Entries[i]
		s := &b.seqs[e.Seq]
		if !s.started || int(e.Pos) != len(s.cells) {
			return fmt.Errorf("%w: sequence %d continues at %d, holds %d", ErrStep, e.Seq, e.Pos, len(s.cells))
		}
		for _, t := range e.Tokens {
			if t < 0 || int(t) >= Vocab {
				return fmt.Errorf("%w: %w: %d", ErrStep, ErrToken, t)
			}
		}
		if err := s.follows(e); err != nil {
			return err
		}
		fed += len(e.Tokens)
	}
	if fed > b.cfg.BatchTokens || fed > len(b.free) {
		return fmt.Errorf("%w: %d tokens into %d of %d cells", ErrStep, fed, b.Cells(), b.cfg.KVCells)
	}
	b.pace.wait(b.cfg.Cost(step))
	for i := range step.Entries {
		e := &step.Entries[i]
		s := &b.seqs[e.Seq]
		for _, t := range e.Tokens {
			last := len(b.free) - 1
			cell := b.free[last]
			b.free = b.free[:last]
			b.refs[cell] = 1
			s.cells, s.tokens = append(s.cells, cell), append(s.tokens, t)
		}
		for ; s.hashed < len(s.tokens); s.hashed++ {
			s.state = mix(s.state ^ uint64(s.tokens[s.hashed]))
		}
		if !e.Sample {
			continue
		}
		if b.cfg.FailRow != nil {
			if rows[i].Err = b.cfg.FailRow(s.request, int32(len(s.cells))); rows[i].Err != nil {
				continue
			}
		}
		hazard := b.cfg.EndHazard
		if s.ignoreEOS {
			hazard = 0
		}
		rows[i].Token = next(s.state, hazard)
		if s.logprobs > 0 {
			s.said.Reset()
			appendLogprobs(&s.said, rows[i].Token, int(s.logprobs-1), hazard)
			rows[i].Logprobs = &s.said
		}
	}
	return nil
}

// Next returns the token that follows prompt + output in an attempt: what Backend says, for a test to compare with.
func Next(cfg Config, seed uint64, attempt uint32, ignoreEOS bool, tokens ...[]int32) int32 {
	if cfg.AttemptIndependent {
		attempt = 0
	}
	state := seedState(seed, attempt)
	for _, part := range tokens {
		for _, t := range part {
			state = mix(state ^ uint64(t))
		}
	}
	if ignoreEOS {
		return next(state, 0)
	}
	return next(state, cfg.EndHazard)
}

func seedState(seed uint64, attempt uint32) uint64 { return mix(mix(seed) ^ uint64(attempt)) }

func next(state uint64, hazard float64) int32 {
	h := mix(^state)
	if float64(h>>11)/(1<<53) < hazard {
		return TurnEnd
	}
	return firstWord + int32(mix(h)%uint64(words))
}

// mix is SplitMix64's output function.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Cells returns how many cells are in use, for tests. It belongs to the goroutine that owns the Backend.
func (b *Backend) Cells() int { return b.cfg.KVCells - len(b.free) }

// AppendPiece implements worker.Backend.
func (b *Backend) AppendPiece(dst []byte, token int32) ([]byte, error) {
	return b.Tokenizer.AppendPiece(dst, token, false)
}

// EOG implements worker.Backend.
func (b *Backend) EOG(token int32) bool { return b.IsEOG(token) }

// Close implements worker.Backend.
func (b *Backend) Close() error { return b.pace.close() }
