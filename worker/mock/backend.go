package mock

import (
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrStep is returned by Step for a batch that a real engine could not execute: one that does not continue its
// sequences, or is larger than the engine.
var ErrStep = errors.New("mock: impossible batch")

// sequence is what a KV cache would hold.
type sequence struct {
	request   schema.RequestID
	started   bool
	ignoreEOS bool
	cells     int
	// state is the hash of seed, attempt and tokens[:cells].
	state uint64
}

// Backend implements worker.Backend.
type Backend struct {
	Tokenizer
	cfg   Config
	seqs  []sequence
	cells int // of all sequences
	pace  pacer
}

var _ worker.Backend = (*Backend)(nil)

// New returns an engine, or ErrConfig.
func New(cfg Config) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, seqs: make([]sequence, cfg.Sequences)}
	if b.Cost(&batch.Batch{PrefillTokens: cfg.BatchTokens, Decodes: 1}) > 0 {
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
		Fingerprint:   fmt.Sprintf("mock-%v-%v-%g-%g-%v", c.StepBase, c.StepSequence, c.PrefillRate, c.EndHazard, c.AttemptIndependent),
		ContextTokens: c.ContextTokens, Sequences: c.Sequences, KVCells: c.KVCells, BatchTokens: c.BatchTokens, Vocab: Vocab,
	}
}

// Start implements worker.Backend. It checks the sampling parameters, as an engine would, and uses their seed alone.
func (b *Backend) Start(seq batch.SeqID, s *worker.Start) error {
	if b.seqs[seq].started {
		return fmt.Errorf("%w: sequence %d was not dropped", ErrStep, seq)
	}
	if err := s.Sampling.Validate(); err != nil {
		return err
	}
	attempt := s.Attempt
	if b.cfg.AttemptIndependent {
		attempt = 0
	}
	b.seqs[seq] = sequence{request: s.Request, started: true, ignoreEOS: s.IgnoreEOS, state: seedState(s.Sampling.Seed, attempt)}
	return nil
}

// Cost is how long a step takes.
func (b *Backend) Cost(step *batch.Batch) time.Duration {
	d := b.cfg.StepBase + time.Duration(step.Decodes)*b.cfg.StepSequence
	if b.cfg.PrefillRate > 0 {
		d += time.Duration(float64(step.PrefillTokens) / b.cfg.PrefillRate * float64(time.Second))
	}
	return d
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
		if !s.started || int(e.Pos) != s.cells {
			return fmt.Errorf("%w: sequence %d continues at %d, holds %d", ErrStep, e.Seq, e.Pos, s.cells)
		}
		for _, t := range e.Tokens {
			if t < 0 || int(t) >= Vocab {
				return fmt.Errorf("%w: %w: %d", ErrStep, ErrToken, t)
			}
		}
		fed += len(e.Tokens)
	}
	if fed > b.cfg.BatchTokens || b.cells+fed > b.cfg.KVCells {
		return fmt.Errorf("%w: %d tokens into %d of %d cells", ErrStep, fed, b.cells, b.cfg.KVCells)
	}
	b.pace.wait(b.Cost(step))
	b.cells += fed
	for i := range step.Entries {
		e := &step.Entries[i]
		s := &b.seqs[e.Seq]
		for _, t := range e.Tokens {
			s.state = mix(s.state ^ uint64(t))
		}
		s.cells += len(e.Tokens)
		if !e.Sample {
			continue
		}
		if b.cfg.FailRow != nil {
			if rows[i].Err = b.cfg.FailRow(s.request, int32(s.cells)); rows[i].Err != nil {
				continue
			}
		}
		rows[i].Token = next(s.state, b.cfg.EndHazard, s.ignoreEOS)
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
	return next(state, cfg.EndHazard, ignoreEOS)
}

func seedState(seed uint64, attempt uint32) uint64 { return mix(mix(seed) ^ uint64(attempt)) }

func next(state uint64, hazard float64, ignoreEOS bool) int32 {
	h := mix(^state)
	if !ignoreEOS && float64(h>>11)/(1<<53) < hazard {
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

// Drop implements worker.Backend.
func (b *Backend) Drop(seq batch.SeqID) {
	b.cells -= b.seqs[seq].cells
	b.seqs[seq] = sequence{}
}

// Cells returns how many cells are in use, for tests. It belongs to the goroutine that owns the Backend.
func (b *Backend) Cells() int { return b.cells }

// AppendPiece implements worker.Backend.
func (b *Backend) AppendPiece(dst []byte, token int32) ([]byte, error) {
	return b.Tokenizer.AppendPiece(dst, token, false)
}

// EOG implements worker.Backend.
func (b *Backend) EOG(token int32) bool { return b.IsEOG(token) }

// Close implements worker.Backend.
func (b *Backend) Close() error { return b.pace.close() }
