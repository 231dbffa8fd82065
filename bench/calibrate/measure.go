package calibrate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// job is one sequence of an experiment. It joins before the step of that number.
type job struct {
	join           int
	prompt, output int // tokens
}

// experiment is some sequences under one way to plan.
type experiment struct {
	chunk int
	order batch.Order
	jobs  []job
}

// tokens is how many the sequences of an experiment hold together at most, in whole pages.
func (x *experiment) tokens(page int) int {
	n := 0
	for _, j := range x.jobs {
		n += (j.prompt + j.output + page - 1) / page * page
	}
	return n
}

// experiments lists what one round measures, in a random order, without what the engine has no room for.
func experiments(o *Options, info worker.Info, rng *rand.Rand) []experiment {
	var all []experiment
	for _, chunk := range o.Chunks {
		all = append(all, experiment{chunk, batch.PrefillFirst, []job{{prompt: o.PrefillTokens, output: 1}}})
	}
	for _, n := range o.Batches {
		for i, held := range o.Contexts {
			if i > 0 && n > o.DeepBatch { // long prompts of many sequences take most of the time, and tell nothing new
				continue
			}
			x := experiment{info.BatchTokens, batch.PrefillFirst, nil}
			for range n {
				x.jobs = append(x.jobs, job{prompt: held, output: o.DecodeSteps + 1})
			}
			all = append(all, x)
		}
	}
	for range o.Mixes {
		x := experiment{o.ChunkTokens, batch.DecodeFirst, nil}
		at := 0
		for range o.MixJobs {
			x.jobs = append(x.jobs, job{join: at, prompt: 1 + rng.IntN(o.PrefillTokens), output: 1 + rng.IntN(4*o.DecodeSteps)})
			at += rng.IntN(o.DecodeSteps)
		}
		all = append(all, x)
	}
	rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	fits := all[:0]
	for _, x := range all {
		most := 0
		for _, j := range x.jobs {
			most = max(most, j.prompt+j.output)
		}
		if x.chunk <= info.BatchTokens && len(x.jobs) <= info.Sequences && most <= info.ContextTokens && x.tokens(pageTokens) <= info.KVCells {
			fits = append(fits, x)
		}
	}
	return fits
}

// pageTokens is the planner's.
const pageTokens = 16

// Measure drives an engine, which stays the caller's and must be idle, through rounds of experiments, and returns all of
// their steps but those of a first round that warms up. ids are what prompts are made of. report, if not nil, hears how
// many of the experiments are done.
func Measure(ctx context.Context, engine worker.Backend, ids workload.Vocabulary, o Options, report func(done, total int64)) ([]Step, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x63616c69627261))
	d := driver{engine: engine, info: engine.Info(), ids: ids, rng: rng}
	var out []Step
	for round := range o.Rounds + 1 {
		list := experiments(&o, d.info, rng)
		if len(list) == 0 {
			return nil, fmt.Errorf("%w: the engine has no room for any of the experiments", ErrConfig)
		}
		if round == 0 {
			list = list[:min(len(list), 3)]
		}
		for i := range list {
			steps, err := d.run(ctx, &list[i])
			if err != nil {
				return nil, err
			}
			if round == 0 {
				continue
			}
			out = append(out, steps...)
			if report != nil {
				report(int64((round-1)*len(list)+i+1), int64(o.Rounds*len(list)))
			}
		}
	}
	return out, nil
}

// driver runs experiments on an engine as the worker's loop does.
type driver struct {
	engine worker.Backend
	info   worker.Info
	ids    workload.Vocabulary
	rng    *rand.Rand
	moves  []batch.Move
	now    time.Duration // orders, and no more
}

// run does one experiment and returns its steps.
func (d *driver) run(ctx context.Context, x *experiment) ([]Step, error) {
	cfg := batch.Config{
		PageTokens: pageTokens, KVPages: d.info.KVCells / pageTokens, Sequences: d.info.Sequences, MaxBatch: min(d.info.Sequences, d.info.BatchTokens),
		BatchTokens: d.info.BatchTokens, ChunkTokens: x.chunk, ContextTokens: d.info.ContextTokens, Order: x.order,
	}
	p, err := batch.New(cfg)
	if err != nil {
		return nil, err
	}
	prompts := make([][]int32, len(x.jobs))
	for i, j := range x.jobs {
		prompts[i] = make([]int32, j.prompt)
		for k := range prompts[i] {
			prompts[i][k] = d.ids[d.rng.IntN(len(d.ids))]
		}
	}
	var steps []Step
	rows := make([]batch.Row, len(x.jobs))
	for n, added := 0, 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		idle := p.Usage().Running+p.Usage().Waiting == 0
		for ; added < len(x.jobs) && (x.jobs[added].join <= n || idle); added++ {
			if err := p.Add(batch.Sequence{ID: batch.ID(added), Prompt: prompts[added], MaxNew: x.jobs[added].output}, d.tick()); err != nil {
				return nil, err
			}
			idle = false
		}
		b := p.Plan(d.tick())
		if err := d.move(p); err != nil {
			return nil, err
		}
		if b == nil {
			if added == len(x.jobs) {
				return steps, nil
			}
			continue
		}
		for i := range b.Entries {
			if e := &b.Entries[i]; e.Start {
				s := worker.Start{Attempt: 1, Prompt: prompts[e.ID], MaxNew: x.jobs[e.ID].output, Sampling: schema.Sampling{}, IgnoreEOS: true}
				if err := d.engine.Start(e.Seq, &s); err != nil {
					return nil, err
				}
			}
		}
		clear(rows)
		step := Step{Prefill: b.PrefillTokens, Decodes: b.Decodes, Context: b.ContextTokens}
		begin := time.Now()
		if err := d.engine.Step(b, rows[:len(b.Entries)]); err != nil {
			return nil, err
		}
		step.Took = time.Since(begin)
		steps = append(steps, step)
		for _, o := range p.Commit(rows[:len(b.Entries)], d.tick()) {
			if o.Err != nil {
				return nil, o.Err
			}
		}
		if err := d.move(p); err != nil {
			return nil, err
		}
	}
}

func (d *driver) tick() time.Duration { d.now++; return d.now }

// move does to the engine's cells what the planner has decided.
func (d *driver) move(p *batch.Planner) error {
	d.moves = p.Moves(d.moves[:0])
	for _, m := range d.moves {
		if err := d.engine.Apply(m); err != nil {
			return err
		}
	}
	return p.Err()
}
