package soak

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/gguf"
	"github.com/cadence-slo/cadence/worker/llamabackend"
	"github.com/cadence-slo/cadence/worker/mock"
)

// stepTokens is the most that the engine feeds in one step.
const stepTokens = 256

// engine counts what a worker asks of its backend.
type engine struct {
	worker.Backend
	mock  *mock.Config // nil for llama.cpp
	cells func() int   // in use, as far as the engine tells; nil if it does not

	steps, tokens, rows    atomic.Int64 // rows: tokens that were asked for
	copies, trims, rebases atomic.Int64
	largest                atomic.Int64 // batch
	failed                 atomic.Int64
}

// open loads the engine; the model of llama.cpp is made in dir.
func open(ctx context.Context, o *Options, dir string) (*engine, error) {
	if o.On == OnMock {
		cfg := mock.DefaultConfig()
		cfg.KVCells, cfg.Sequences, cfg.ContextTokens, cfg.BatchTokens = o.KVTokens, o.Sequences, longest, stepTokens
		cfg.StepBase, cfg.StepSequence, cfg.PrefillRate, cfg.EndHazard = 500*time.Microsecond, 20*time.Microsecond, 400_000, 0.003
		b, err := mock.New(cfg)
		if err != nil {
			return nil, err
		}
		return &engine{Backend: b, mock: &cfg, cells: b.Cells}, nil
	}
	spec, err := gguf.Preset("tiny")
	if err != nil {
		return nil, err
	}
	cfg := llamabackend.DefaultConfig()
	cfg.Path, cfg.Model = filepath.Join(dir, "tiny.gguf"), "tiny"
	cfg.Cells, cfg.Sequences, cfg.Context, cfg.BatchTokens, cfg.Threads = o.KVTokens, o.Sequences, longest, stepTokens, o.Threads
	if _, err := gguf.SynthFile(ctx, cfg.Path, spec, o.Seed, nil); err != nil {
		return nil, err
	}
	b, err := llamabackend.Open(cfg, o.Log)
	if err != nil {
		return nil, err
	}
	return &engine{Backend: b}, nil
}

// Apply implements worker.Backend.
func (e *engine) Apply(m batch.Move) error {
	switch m.Kind {
	case batch.MoveCopy:
		e.copies.Add(1)
	case batch.MoveTrim:
		e.trims.Add(1)
	case batch.MoveRebase:
		e.rebases.Add(1)
	}
	return e.Backend.Apply(m)
}

// Step implements worker.Backend.
func (e *engine) Step(b *batch.Batch, rows []batch.Row) error {
	e.steps.Add(1)
	e.tokens.Add(int64(b.PrefillTokens + b.Decodes))
	e.largest.Store(max(e.largest.Load(), int64(len(b.Entries))))
	for i := range b.Entries {
		if b.Entries[i].Sample {
			e.rows.Add(1)
		}
	}
	err := e.Backend.Step(b, rows)
	if err != nil {
		e.failed.Add(1)
	}
	return err
}

// errOccupied tells that the engine holds something though nobody uses it.
var errOccupied = errors.New("soak: the engine is not empty")

// vacant finds out whether the engine holds nothing: it takes as many tokens as there are cells, spread over all
// sequence ids, each from position 0. The worker has ended. It leaves the engine empty.
func (e *engine) vacant() error {
	if e.cells != nil {
		if n := e.cells(); n != 0 {
			return fmt.Errorf("%w: %d cells are in use", errOccupied, n)
		}
	}
	info := e.Info()
	share := (info.KVCells + info.Sequences - 1) / info.Sequences
	tokens := make([]int32, share)
	left := info.KVCells
	for seq := range batch.SeqID(info.Sequences) {
		if err := e.Backend.Start(seq, &worker.Start{Attempt: 1, Prompt: tokens, MaxNew: 1, Sampling: schema.Sampling{}}); err != nil {
			return err
		}
		for pos := 0; pos < share && left > 0; {
			n := min(share-pos, info.BatchTokens, left)
			b := batch.Batch{PrefillTokens: n, Entries: []batch.Entry{
				{Seq: seq, Pos: int32(pos), Tokens: tokens[pos : pos+n], Start: pos == 0, Prefill: true},
			}}
			if err := e.Backend.Step(&b, make([]batch.Row, 1)); err != nil {
				return fmt.Errorf("%w: sequence id %d does not take %d tokens at %d with %d of %d cells filled: %w",
					errOccupied, seq, n, pos, info.KVCells-left, info.KVCells, err)
			}
			pos, left = pos+n, left-n
		}
	}
	for seq := range batch.SeqID(info.Sequences) {
		if err := e.Backend.Apply(batch.Move{Kind: batch.MoveTrim, Dst: seq}); err != nil {
			return err
		}
	}
	return nil
}
