package worker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// brokenAfter is how many sequences in a row may fail a step by themselves before the engine counts as broken, and not
// they.
const brokenAfter = 16

// engine is the state of the engine loop, whose goroutine owns all of it.
type engine struct {
	backend Backend
	plan    *batch.Planner
	book    *book
	out     *outbox
	now     func() time.Duration
	metrics *metrics
	sample  uint64 // every n-th step is stored
	// shareAll lets tenants find each other's prefixes.
	shareAll bool
	// check verifies the planner's books after each step.
	check bool

	worker   schema.WorkerID // of the present life
	runs     map[batch.ID]*run
	mail     []mail
	moves    []batch.Move
	rows     []batch.Row
	blank    []batch.Row // len = MaxBatch, zero
	piece    []byte
	failures int // sequences that failed a step by themselves since a step last succeeded
	// generated counts tokens for the metric.
	generated int

	// For the heartbeat and the metrics.
	running, highWater, usedPages, cachedPages atomic.Int64

	told batch.Totals // that the metrics know

	// For the teller.
	present  present
	prefixes prefixes
	profile  *profile.Profile // nil: not known; set before the loop begins
	drift    drift
}

func newEngine(backend Backend, plan *batch.Planner, book *book, out *outbox, now func() time.Duration, m *metrics, sample int) *engine {
	return &engine{
		backend: backend, plan: plan, book: book, out: out, now: now, metrics: m, sample: uint64(sample),
		runs: map[batch.ID]*run{}, blank: make([]batch.Row, plan.Config().MaxBatch),
	}
}

// turn reads the mail and runs one step. It reports whether there was a step, and whether the worker has drained.
func (e *engine) turn() (busy, drained bool, err error) {
	e.mail, drained = e.book.take(e.mail[:0])
	for i := range e.mail {
		e.open(&e.mail[i])
	}
	b := e.plan.Plan(e.now())
	if err := e.move(); err != nil {
		return false, false, err
	}
	if b == nil {
		e.observe()
		e.rest()
		return false, drained && len(e.runs) == 0, e.verify()
	}
	e.step(b)
	if err = e.move(); err == nil {
		err = e.verify()
	}
	e.observe()
	if err != nil {
		return true, false, err
	}
	if e.failures >= brokenAfter {
		return true, false, fmt.Errorf("%w: %d sequences in a row failed a step", ErrBackend, e.failures)
	}
	return true, false, nil
}

// due fires when the planner has something to do though nobody wrote; nil if it has not.
func (e *engine) due() <-chan time.Time {
	at, ok := e.plan.Wake()
	if !ok {
		return nil
	}
	return time.After(max(0, at-e.now()))
}

func (e *engine) observe() {
	u := e.plan.Usage()
	e.running.Store(int64(u.Running))
	e.highWater.Store(int64(u.HighWaterPages))
	e.usedPages.Store(int64(u.UsedPages))
	e.cachedPages.Store(int64(u.CachedPages))
	t := e.plan.Totals()
	e.metrics.totals(&e.told, &t)
	e.told = t
}

// move does to the backend's cells what the planner has decided since it was last asked.
func (e *engine) move() error {
	e.moves = e.plan.Moves(e.moves[:0])
	for _, m := range e.moves {
		if err := e.backend.Apply(m); err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
	}
	if err := e.plan.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrBackend, err)
	}
	return nil
}

// verify checks the planner's books, if that is wanted.
func (e *engine) verify() error {
	if !e.check {
		return nil
	}
	if err := e.plan.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrBackend, err)
	}
	return nil
}

// open does what a mail says.
func (e *engine) open(m *mail) {
	r := m.run
	switch m.kind {
	case mailAdd:
		e.runs[r.id] = r
		e.add(r)
	case mailCancel:
		if e.runs[r.id] != nil {
			e.cancel(r, m.reason)
		}
	case mailReplace:
		if e.runs[r.id] != nil {
			e.discard(r)
			e.metrics.ended.WithLabelValues("replaced").Inc()
		}
	}
}

// add brings a run's text to where earlier attempts left it, and queues it for the engine unless nothing is left to do.
func (e *engine) add(r *run) {
	r.stream.Reset(r.req.Stop)
	for _, token := range r.resume {
		// What earlier attempts made certain was sent with these tokens.
		stop, err := e.read(r, token)
		if err != nil {
			e.end(r, &batch.Outcome{ID: r.id, Kind: batch.KindFailed, Seq: -1, Err: err}, "")
			return
		}
		if stop {
			e.end(r, &batch.Outcome{ID: r.id, Kind: batch.KindStop, Seq: -1, Index: -1}, "")
			return
		}
	}
	if r.maxNew == 0 {
		e.end(r, &batch.Outcome{ID: r.id, Kind: batch.KindLength, Seq: -1, Index: -1}, "")
		return
	}
	prompt := []int32(r.req.Prompt)
	if len(r.resume) > 0 {
		prompt = append(append(make([]int32, 0, len(prompt)+len(r.resume)), prompt...), r.resume...)
	}
	q := batch.Sequence{ID: r.id, Prompt: prompt, MaxNew: r.maxNew, Scope: r.req.Tenant}
	if e.shareAll {
		q.Scope = ""
	}
	if r.req.IgnoreEOS && len(r.req.Stop) == 0 && r.req.Grammar == "" {
		q.MinNew = r.maxNew
	}
	q.Promise(batch.Promise{Class: r.req.Class, OnDeadline: r.req.OnDeadline, Left: deadline.Left{E2E: r.budget, TTFT: r.firstBudget}}, r.arrived)
	if err := e.plan.Add(q, e.now()); err != nil {
		e.end(r, &batch.Outcome{ID: r.id, Kind: batch.KindFailed, Seq: -1, Err: err}, "")
		return
	}
	e.expect(r, e.plan.Cached(q.Scope, prompt))
}

// read feeds a token to the run's text, sets r.delta, and reports whether the answer ends with it.
func (e *engine) read(r *run, token int32) (stop bool, err error) {
	r.delta = r.delta[:0]
	if !r.req.IgnoreEOS && e.backend.EOG(token) {
		return true, nil
	}
	if e.piece, err = e.backend.AppendPiece(e.piece[:0], token); err != nil {
		return false, err
	}
	r.delta, stop = r.stream.Append(r.delta, e.piece)
	return stop, nil
}

// cancel stops a run and says so.
func (e *engine) cancel(r *run, reason schema.CancelReason) {
	for _, o := range e.plan.Cancel(r.id) {
		e.end(r, &o, string(reason))
	}
}

// discard stops a run without a word.
func (e *engine) discard(r *run) {
	e.plan.Cancel(r.id)
	delete(e.runs, r.id)
}

// discardAll stops every run without a word, and returns how many there were.
func (e *engine) discardAll() (int, error) {
	n := len(e.runs)
	for _, r := range e.runs {
		e.discard(r)
	}
	err := e.move()
	e.observe()
	e.rest()
	return n, err
}

// empty gives back the cells of cached prefixes. Nothing runs any more.
func (e *engine) empty() error {
	e.plan.Flush()
	return e.move()
}

// step executes a batch and tells what came of it.
func (e *engine) step(b *batch.Batch) {
	e.rows = append(e.rows[:0], e.blank[:len(b.Entries)]...)
	e.preempted(b)
	e.start(b)
	e.begin(b)
	start, from := e.now(), 0
	for i := range e.rows { // in one piece, unless a sequence could not be started
		if e.rows[i].Err != nil {
			e.execute(b, from, i)
			from = i + 1
		}
	}
	e.execute(b, from, len(b.Entries))
	now := e.now()
	took := now - start
	e.metrics.step(b, took)
	if e.failures == 0 {
		e.drift.observe(took, e.said(b))
	}
	for i := range b.Entries {
		if x, row := &b.Entries[i], &e.rows[i]; x.Sample && row.Err == nil && !row.Wait {
			r := e.runs[x.ID]
			r.told = row.Stop
			row.Stop, row.Err = e.read(r, row.Token)
			row.Stop = row.Stop || r.told
			r.generated = append(r.generated, row.Token)
			if r.logprobs = row.Logprobs; row.Logprobs != nil && !r.req.IgnoreEOS && e.backend.EOG(row.Token) {
				r.logprobs = nil // the end is no part of the text
			}
		}
	}
	var sample *schema.Step
	if b.Step%e.sample == 0 {
		sample = e.sampled(b, took)
	}
	outs := e.plan.Commit(e.rows, now)
	e.out.mu.Lock()
	for i := range outs {
		e.tell(e.runs[outs[i].ID], &outs[i], "")
	}
	if sample != nil {
		e.out.steps = append(e.out.steps, *sample)
	}
	e.out.unlock()
	e.metrics.output.Add(float64(e.generated))
	e.generated = 0
	for i := range outs {
		if o := &outs[i]; o.Kind.Ended() {
			e.close(e.runs[o.ID])
		}
	}
}

// start prepares the sequences that are new in a batch.
func (e *engine) start(b *batch.Batch) {
	now := e.now()
	for i := range b.Entries {
		x := &b.Entries[i]
		if !x.Start {
			continue
		}
		r := e.runs[x.ID]
		if e.rows[i].Err = e.able(r); e.rows[i].Err == nil {
			e.rows[i].Err = e.backend.Start(x.Seq, &Start{
				Request: r.req.ID, Attempt: r.attempt, Prompt: r.req.Prompt, Output: r.sofar(), MaxNew: r.maxNew - len(r.generated),
				Sampling: r.req.Sampling, IgnoreEOS: r.req.IgnoreEOS, Logprobs: r.req.Logprobs, Grammar: r.req.Grammar,
			})
		}
		if r.started {
			continue // it was preempted
		}
		r.started = true
		e.out.mu.Lock()
		p := e.out.post(r)
		p.notes = append(p.notes, note{typ: schema.PrefillStarted, time: wall(), queue: now - r.arrived, output: int32(len(r.resume))})
		e.out.unlock()
	}
}

// able returns ErrUnsupported if the engine cannot do what a request asks for.
func (e *engine) able(r *run) error {
	switch {
	case r.req.Grammar != "" && !e.backend.Info().Grammars:
		return fmt.Errorf("%w: write by a grammar", ErrUnsupported)
	case r.req.Logprobs > 0 && !e.backend.Info().Logprobs:
		return fmt.Errorf("%w: tell log-probabilities", ErrUnsupported)
	}
	return nil
}

// preempted tells of the sequences that lost their cells to this step.
func (e *engine) preempted(b *batch.Batch) {
	if len(b.Preempted) == 0 {
		return
	}
	e.out.mu.Lock()
	for _, x := range b.Preempted {
		r := e.runs[x.ID]
		p := e.out.post(r)
		p.notes = append(p.notes, note{typ: schema.Preempted, time: wall(), output: int32(len(r.resume) + x.Generated)})
	}
	e.out.unlock()
}

// execute runs Entries[from:to]. If that fails, it halves the batch until it knows whose fault it was.
func (e *engine) execute(b *batch.Batch, from, to int) {
	if from == to {
		return
	}
	part := *b
	if to-from < len(b.Entries) {
		part = b.Slice(from, to)
	}
	rows := e.rows[from:to]
	err := e.backend.Step(&part, rows)
	if err == nil {
		e.failures = 0
		return
	}
	copy(rows, e.blank)
	if len(rows) == 1 {
		e.failures++
		rows[0].Err = err
		return
	}
	mid := from + (to-from)/2
	e.execute(b, from, mid)
	e.execute(b, mid, to)
}

// sampled is the record of a step, before its commit.
func (e *engine) sampled(b *batch.Batch, took time.Duration) *schema.Step {
	u := e.plan.Usage()
	return &schema.Step{
		Worker: e.worker, Time: wall(), Step: b.Step, PrefillTokens: int32(b.PrefillTokens), DecodeBatch: int32(b.Decodes), ContextTokens: int32(b.ContextTokens),
		Duration: took, KVFreePages: int32(u.FreePages), KVHighWater: int32(u.HighWaterPages),
	}
}

// tell posts an outcome; reason is of a cancel. The caller holds the outbox's mutex.
func (e *engine) tell(r *run, o *batch.Outcome, reason string) {
	sent := len(r.resume)
	token := o.Kind == batch.KindToken || o.Kind == batch.KindStop || o.Kind == batch.KindLength
	b := e.out.post(r)
	if len(b.ids) == 0 {
		b.index = int32(sent + max(o.Index, 0))
	}
	if token && o.Index >= 0 {
		b.ids = append(b.ids, o.Token)
		b.text = append(b.text, r.delta...)
		if r.logprobs != nil {
			b.logprobs.Append(r.logprobs)
		}
		e.generated++
	}
	n := note{time: wall(), output: int32(sent + o.Index), cached: int32(min(o.Cached, len(r.req.Prompt)))}
	if token {
		n.output++
	}
	n.queue = o.Started - r.arrived
	if token && o.Index == 0 {
		first := n
		first.typ, first.prefill = schema.FirstToken, o.First-o.Started
		b.notes = append(b.notes, first)
	}
	switch o.Kind {
	case batch.KindToken:
		return
	case batch.KindStop, batch.KindLength:
		why := schema.FinishStop
		if o.Kind == batch.KindLength {
			why = schema.FinishLength
		}
		prompt := len(r.req.Prompt)
		if u, ok := e.usage(r, o); ok {
			why, prompt, n.output = u.Finish, u.PromptTokens, int32(sent+u.OutputTokens)
			n.cached = int32(min(u.CachedTokens, prompt))
		}
		n.typ, n.reason = schema.Finished, string(why)
		b.text = r.stream.Flush(b.text)
		b.finish = &schema.Finish{Reason: why, PromptTokens: int32(prompt), CachedTokens: n.cached, OutputTokens: n.output}
	case batch.KindFailed:
		n.typ, n.reason, n.message = schema.Failed, string(schema.FailedEngine), o.Err.Error()
		b.fault = &schema.Error{Code: schema.FailedEngine, Message: o.Err.Error()}
	case batch.KindDeadline:
		n.typ, n.reason, n.message = schema.Failed, string(schema.FailedDeadline), "could not be in time any more"
		b.fault = &schema.Error{Code: schema.FailedDeadline, Message: n.message}
	case batch.KindCancelled:
		n.typ, n.reason = schema.Cancelled, reason
		b.fault = &schema.Error{Code: schema.FailedCancelled, Message: reason}
	}
	if o.Started == 0 {
		n.queue = e.now() - r.arrived // it was never in a step
	}
	if o.First > 0 {
		n.prefill, n.decode = o.First-o.Started, o.Last-o.First
	}
	b.notes = append(b.notes, n)
	e.metrics.ended.WithLabelValues(n.metric()).Inc()
}

// usage is what the backend counted of a sequence that it ended itself.
func (e *engine) usage(r *run, o *batch.Outcome) (Usage, bool) {
	reporter, ok := e.backend.(UsageReporter)
	if !ok || o.Seq < 0 || (!r.told && o.Kind != batch.KindLength) {
		return Usage{}, false
	}
	return reporter.Usage(o.Seq)
}

// end posts an outcome that did not come from a step.
func (e *engine) end(r *run, o *batch.Outcome, reason string) {
	e.out.mu.Lock()
	e.tell(r, o, reason)
	e.out.unlock()
	e.close(r)
}

// close gives back what an ended run held.
func (e *engine) close(r *run) {
	delete(e.runs, r.id)
	e.book.release(r)
}
