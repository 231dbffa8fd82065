package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/predictor/profile/fit"
	"github.com/cadence-slo/cadence/worker/batch"
)

const (
	probeRounds = 3   // of all that is measured: a disturbance seldom comes three times to the same place
	probeShort  = 16  // tokens of the prompts of those that decode
	probeLong   = 384 // and of those that tell what context costs
	probeDeep   = 4   // how many of the latter there are
	probeDecode = 3   // steps of each batch
	probeBeside = 64  // tokens of a prefill beside others that decode
)

// probeChunks are the prefills that are measured alone; longer ones are the chunks of long prompts.
var probeChunks = []int{16, 64}

// probe measures an idle engine, whose owner calls it, for about limit on the clock now, and fits a profile; its limits are the
// plan's. It also returns how many steps it measured. Afterwards no sequence holds anything. It returns ErrBackend if cells could not
// be given back, and other errors if the engine could not be measured.
func probe(ctx context.Context, engine Backend, plan *batch.Config, limit time.Duration, now func() time.Duration) (*profile.Profile, int, error) {
	info := engine.Info()
	if info.Vocab < 1 || plan.Longest() < 8 {
		return nil, 0, fmt.Errorf("%w: a vocabulary of %d and a context of %d tokens are not enough to measure with", fit.ErrFit, info.Vocab, plan.Longest())
	}
	p := &prober{engine: engine, ctx: ctx, now: now, end: now() + limit, vocab: info.Vocab, cells: info.KVCells,
		longest: plan.Longest(), budget: plan.BatchTokens, chunk: plan.ChunkTokens, seqs: make([]probed, plan.MaxBatch),
		rng: rand.New(rand.NewPCG(1, 0x70726f6265))}
	p.spare = min(plan.MaxBatch, plan.Sequences-1) // prefills beside the others
	if p.spare == plan.MaxBatch {
		p.seqs = append(p.seqs, probed{})
	}
	p.batches(plan.MaxBatch)
	err := p.warm()
	for range probeRounds {
		if err == nil {
			err = p.round()
		}
	}
	if gave := p.clear(); gave != nil {
		return nil, len(p.steps), fmt.Errorf("%w: %w", ErrBackend, gave)
	}
	if err != nil {
		return nil, len(p.steps), err
	}
	found, err := fit.Few(p.steps, p.sizes)
	if err != nil {
		return nil, len(p.steps), err
	}
	out := &profile.Profile{Version: profile.Version, Name: "measured", Source: fmt.Sprintf("a worker at start-up, %d steps", len(p.steps)),
		Fingerprint: info.Fingerprint, Limits: limits(plan), Cost: found.Cost, Fit: &found.Fit}
	return out, len(p.steps), out.Validate()
}

// prober drives the engine without a planner: each of its sequences has the sequence id of its place.
type prober struct {
	engine Backend
	ctx    context.Context
	now    func() time.Duration
	end    time.Duration
	rng    *rand.Rand

	vocab, cells, longest, budget, chunk int

	seqs  []probed
	spare int   // the sequence that prefills beside others
	sizes []int // batches that decode, ascending from 1
	step  uint64
	b     batch.Batch
	rows  []batch.Row

	// prefillRate and decodeRate are what a token took lately, to tell whether there is time for more.
	prefillRate, decodeRate float64
	steps                   []fit.Step
}

// probed is a sequence of the probe.
type probed struct {
	prompt []int32
	held   int   // tokens in its cells
	next   int32 // sampled last
}

// batches chooses which are measured: powers of two and the largest.
func (p *prober) batches(largest int) {
	// Each of them holds a short prompt and what it generates in a round.
	room := p.cells / (probeShort + 64)
	largest = max(1, min(largest, room, p.budget))
	for n := 1; n < largest; n *= 2 {
		p.sizes = append(p.sizes, n)
	}
	p.sizes = append(p.sizes, largest)
}

// time reports whether there is time left for prefilling and decoding so many tokens.
func (p *prober) time(prefill, decode int) bool {
	return float64(p.end-p.now()) >= float64(prefill)*p.prefillRate+float64(decode)*p.decodeRate
}

// warm lets the engine touch its memory, and what it made is not measured.
func (p *prober) warm() error {
	n := min(probeShort, p.budget, p.chunk, p.longest/2)
	if err := p.start(0, n); err != nil {
		return err
	}
	if err := p.feed([]int{0}, n, 0); err != nil {
		return err
	}
	for range 2 {
		if err := p.feed(nil, 0, 1); err != nil {
			return err
		}
	}
	p.steps = p.steps[:0]
	return p.trim(0)
}

// round measures everything once, for as long as there is time.
func (p *prober) round() error {
	for _, n := range probeChunks {
		if n = min(n, p.chunk, p.longest-1); !p.time(n, 0) {
			continue
		}
		if err := p.start(0, n); err != nil {
			return err
		}
		if err := p.feed([]int{0}, n, 0); err != nil {
			return err
		}
		if err := p.trim(0); err != nil {
			return err
		}
	}
	if err := p.short(); err != nil {
		return err
	}
	if err := p.clear(); err != nil {
		return err
	}
	if err := p.long(); err != nil {
		return err
	}
	return p.clear()
}

// short measures batches that decode with little context, and a prefill beside some of them.
func (p *prober) short() error {
	running := 0
	for _, n := range p.sizes {
		if !p.time((n-running)*probeShort, probeDecode*n) {
			return nil
		}
		for running < n { // as many at once as a step takes
			var join []int
			for fed := 0; running < n && fed+probeShort <= max(p.budget, probeShort); fed += probeShort {
				if err := p.start(running, min(probeShort, p.longest/2, p.budget)); err != nil {
					return err
				}
				join = append(join, running)
				running++
			}
			if err := p.feed(join, probeShort, 0); err != nil {
				return err
			}
		}
		for range probeDecode {
			if p.full(n) {
				break
			}
			if err := p.feed(nil, 0, n); err != nil {
				return err
			}
		}
		beside := min(n, p.spare)
		fed := min(probeBeside, p.budget-beside, p.chunk, p.longest-1)
		if beside < 1 || p.spare == 0 || fed < 1 || !p.time(fed, beside) || p.full(beside) || p.used()+fed > p.cells {
			continue
		}
		if p.seqs[p.spare].prompt != nil { // the last of a full batch gives way
			running = p.spare
			if err := p.trim(p.spare); err != nil {
				return err
			}
		}
		if err := p.start(p.spare, fed); err != nil {
			return err
		}
		if err := p.feed([]int{p.spare}, fed, beside); err != nil {
			return err
		}
		if err := p.trim(p.spare); err != nil {
			return err
		}
	}
	return nil
}

// long measures chunks of long prompts and batches that decode with much context.
func (p *prober) long() error {
	n := min(probeLong, p.longest*3/4, p.cells/(2*probeDeep))
	if n <= 2*probeShort {
		return nil
	}
	for i := range min(probeDeep, p.sizes[len(p.sizes)-1]) {
		if !p.time(n, probeDecode*(i+1)) {
			return nil
		}
		if err := p.start(i, n); err != nil {
			return err
		}
		for p.seqs[i].held < n {
			if err := p.feed([]int{i}, min(p.chunk, p.budget), 0); err != nil {
				return err
			}
		}
		if i != 0 && i != probeDeep-1 {
			continue
		}
		for range probeDecode {
			if err := p.feed(nil, 0, i+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// full reports whether the first n sequences have no room for another token each.
func (p *prober) full(n int) bool {
	for i := range n {
		if p.seqs[i].held >= p.longest-1 {
			return true
		}
	}
	return p.used()+n > p.cells
}

func (p *prober) used() (tokens int) {
	for i := range p.seqs {
		tokens += p.seqs[i].held
	}
	return tokens
}

// start gives a sequence, which holds nothing, a prompt of n random tokens.
func (p *prober) start(seq, n int) error {
	s := &p.seqs[seq]
	s.prompt = make([]int32, n)
	for i := range s.prompt {
		s.prompt[i] = p.rng.Int32N(int32(p.vocab))
	}
	return p.engine.Start(batch.SeqID(seq), &Start{Attempt: 1, Prompt: s.prompt, MaxNew: p.longest - n, IgnoreEOS: true})
}

// feed runs one step: at most n tokens more of the prompts of join, and a token each of the first so many sequences.
func (p *prober) feed(join []int, n, decodes int) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	p.step++
	b := &p.b
	*b = batch.Batch{Step: p.step, Entries: b.Entries[:0]}
	one := make([]int32, decodes)
	for i := range decodes {
		s := &p.seqs[i]
		one[i] = s.next
		b.Entries = append(b.Entries, batch.Entry{ID: batch.ID(i), Seq: batch.SeqID(i), Pos: int32(s.held), Tokens: one[i : i+1], Sample: true})
		b.Decodes++
		b.ContextTokens += s.held + 1
	}
	for _, i := range join {
		s := &p.seqs[i]
		to := min(s.held+n, len(s.prompt))
		b.Entries = append(b.Entries, batch.Entry{ID: batch.ID(i), Seq: batch.SeqID(i), Pos: int32(s.held), Tokens: s.prompt[s.held:to],
			Sample: to == len(s.prompt), Start: s.held == 0, Prefill: true})
		b.PrefillTokens += to - s.held
		b.ContextTokens += to
	}
	p.rows = append(p.rows[:0], make([]batch.Row, len(b.Entries))...)
	begin := p.now()
	if err := p.engine.Step(b, p.rows); err != nil {
		return err
	}
	took := p.now() - begin
	for i := range b.Entries {
		e, row := &b.Entries[i], &p.rows[i]
		if row.Err != nil {
			return row.Err
		}
		s := &p.seqs[e.Seq]
		s.held += len(e.Tokens)
		s.next = row.Token
	}
	switch {
	case b.Decodes == 0:
		p.prefillRate = float64(took) / float64(b.PrefillTokens)
	case b.PrefillTokens == 0:
		p.decodeRate = float64(took) / float64(b.Decodes)
	}
	p.steps = append(p.steps, fit.Step{Prefill: b.PrefillTokens, Decodes: b.Decodes, Context: b.ContextTokens, Took: took})
	return nil
}

// trim ends a sequence.
func (p *prober) trim(seq int) error {
	p.seqs[seq] = probed{}
	return p.engine.Apply(batch.Move{Kind: batch.MoveTrim, Dst: batch.SeqID(seq)})
}

// clear ends all sequences.
func (p *prober) clear() error {
	for i := range p.seqs {
		if p.seqs[i].prompt == nil {
			continue
		}
		if err := p.trim(i); err != nil {
			return err
		}
	}
	return nil
}
