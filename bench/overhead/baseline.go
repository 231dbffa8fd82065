package overhead

import (
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
)

// direct gives each prompt to the worker's planner and engine in this process, one after the other, and returns how long
// it took until the text of the first token was there: the median of several rounds for each prompt.
func direct(o *Options, ps []prompt) (out []time.Duration, err error) {
	const rounds = 5
	cfg := mock.FreeConfig()
	engine, err := mock.New(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	info := engine.Info()
	plan := batch.DefaultConfig()
	plan.KVPages = info.KVCells / plan.PageTokens
	plan.BatchTokens, plan.ContextTokens = info.BatchTokens, info.ContextTokens
	planner, err := batch.New(plan)
	if err != nil {
		return nil, err
	}
	d := directRun{planner: planner, engine: engine, rows: make([]batch.Row, plan.MaxBatch), output: o.OutputTokens}
	out = make([]time.Duration, len(ps))
	for i := range ps {
		var times [rounds]time.Duration
		for r := range times {
			if times[r], err = d.first(&ps[i]); err != nil {
				return nil, fmt.Errorf("overhead: calling the engine directly: %w", err)
			}
		}
		out[i] = median(times[:])
	}
	return out, nil
}

type directRun struct {
	planner *batch.Planner
	engine  *mock.Backend
	moves   []batch.Move
	rows    []batch.Row
	output  int
	id      batch.ID
	text    []byte
}

// first runs one prompt to its end and returns the time to the first token's text.
func (d *directRun) first(p *prompt) (time.Duration, error) {
	begin := time.Now()
	d.id++
	if err := d.planner.Add(batch.Sequence{ID: d.id, Prompt: p.tokens, MaxNew: d.output}, 0); err != nil {
		return 0, err
	}
	took := time.Duration(-1)
	for {
		b := d.planner.Plan(time.Since(begin))
		if b == nil || len(b.Entries) == 0 {
			return took, nil
		}
		if err := d.move(); err != nil {
			return 0, err
		}
		for _, e := range b.Entries {
			if !e.Start {
				continue
			}
			if err := d.engine.Start(e.Seq, &worker.Start{Attempt: 1, Prompt: p.tokens, Sampling: schema.Sampling{}}); err != nil {
				return 0, err
			}
		}
		rows := d.rows[:len(b.Entries)]
		clear(rows)
		if err := d.engine.Step(b, rows); err != nil {
			return 0, err
		}
		for i, e := range b.Entries {
			if !e.Sample {
				continue
			}
			var err error
			if d.text, err = d.engine.AppendPiece(d.text[:0], rows[i].Token); err != nil {
				return 0, err
			}
			if took < 0 {
				took = time.Since(begin)
			}
		}
		d.planner.Commit(rows, time.Since(begin))
		if err := d.move(); err != nil {
			return 0, err
		}
	}
}

// move does to the engine's cells what the planner has decided.
func (d *directRun) move() error {
	d.moves = d.planner.Moves(d.moves[:0])
	for _, m := range d.moves {
		if err := d.engine.Apply(m); err != nil {
			return err
		}
	}
	return nil
}
