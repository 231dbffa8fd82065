package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// errWorker tells of a worker whose books are wrong.
var errWorker = errors.New("sim: a worker's books are wrong")

// worker is one engine with its planner, and the book that answers dispatches.
type worker struct {
	s       *sim
	index   uint32
	id      schema.WorkerID
	plan    batch.Config
	planner *batch.Planner
	state   schema.WorkerState

	dispatch core.Dispatch // unanswered
	verdicts []schema.Verdict
	slots    int // taken
	pages    int // reserved
	// Of both, what is guaranteed.
	promised, promisedPages int

	reqs    []*request
	added   []*request // mail: to be added
	stopped []stop     // mail: to be cancelled

	batch   *batch.Batch // in flight
	rows    []batch.Row
	moves   []batch.Move
	busy    bool
	turning bool          // a turn will come at this very time
	began   time.Duration // of the step in flight, or the last
	took    time.Duration // how long it takes
	says    time.Duration // how long it takes by what the worker believes
	slow    float64       // by how much steps took longer lately
}

// slowMemory is how much busy time a worker remembers when it says how slow its engine is.
const slowMemory = 2 * time.Second

func newWorker(s *sim, index uint32) (*worker, error) {
	w := &worker{s: s, index: index, id: schema.WorkerID(fmt.Sprintf("sim-worker-%05d", index+1)), slow: 1}
	plan := s.cfg.Batch
	if s.cfg.Deadlines && plan.Speed == (deadline.Speed{}) {
		plan.Speed = deadline.Of(s.cfg.believed().Step)
	}
	var err error
	if w.planner, err = batch.New(plan); err != nil {
		return nil, err
	}
	w.plan = w.planner.Config()
	w.state = schema.WorkerState{Worker: w.id, Pool: pool, Model: model, Interval: beatEvery, Slots: int32(w.plan.MaxBatch),
		ContextTokens: int32(w.plan.Longest()), PageTokens: int32(w.plan.PageTokens), KVPages: int32(w.plan.Promises())}
	return w, nil
}

func (w *worker) up() schema.Event {
	return schema.Event{Type: schema.WorkerUp, Time: w.s.wall(), Source: string(w.id), Worker: w.id, Pool: pool, Model: model, Backend: "sim",
		Slots: int32(w.plan.MaxBatch), KVPages: int32(w.plan.Promises()), ContextTokens: int32(w.plan.Longest())}
}

func (w *worker) down() schema.Event {
	return schema.Event{Type: schema.WorkerDown, Time: w.s.wall(), Source: string(w.id), Worker: w.id, Pool: pool, Model: model, Reason: string(schema.DownDrained)}
}

// offered answers the dispatch.
func (w *worker) offered() {
	w.verdicts = w.verdicts[:0]
	for i := range w.dispatch.Items {
		item := &w.dispatch.Items[i]
		r := w.s.slots[binary.LittleEndian.Uint32(item.Request)]
		w.verdicts = append(w.verdicts, w.accept(r, item))
	}
	w.s.after(w.s.cfg.Latency.Dispatch, answered, w.index, 0)
}

func (w *worker) accept(r *request, item *schema.DispatchItem) schema.Verdict {
	_, pages := w.plan.Fit(r.rec.PromptTokens, len(item.Resume), r.maxNew)
	slots, reserved := w.slots, w.pages
	if r.class == schema.Guaranteed { // best effort will give way to it
		slots, reserved = w.promised, w.promisedPages
	}
	if slots+1 > w.plan.MaxBatch || reserved+pages > w.plan.Promises() {
		return schema.VerdictFull
	}
	w.reserve(r, 1, pages)
	w.s.unqueue(r)
	w.s.needPrompt(r)
	r.worker, r.pages, r.at, r.attempt, r.atWorker = w, pages, len(w.reqs), item.Attempt, w.s.now
	r.left = deadline.Left{E2E: item.Budget, TTFT: item.TTFTBudget}
	r.rec.Attempts = int(item.Attempt)
	r.feed = r.rec.PromptTokens
	w.reqs = append(w.reqs, r)
	w.added = append(w.added, r)
	w.wake()
	return schema.VerdictAccepted
}

// reserve keeps the book of slots and pages.
func (w *worker) reserve(r *request, slots, pages int) {
	w.slots, w.pages = w.slots+slots, w.pages+pages
	if r.class == schema.Guaranteed {
		w.promised, w.promisedPages = w.promised+slots, w.promisedPages+pages
	}
}

// speed is how fast the worker says that its engine is at its fastest.
func (w *worker) speed() deadline.Speed {
	v := w.plan.Speed
	if w.plan.PrefixCache {
		v.PrefillToken = 0
	}
	if w.slow != 1 {
		v.PrefillToken, v.Step = time.Duration(float64(v.PrefillToken)*w.slow), time.Duration(float64(v.Step)*w.slow)
	}
	return v
}

// observe notes how long a step took.
func (w *worker) observe() {
	if ratio := float64(w.took) / float64(max(1, w.says)); ratio != 1 || w.slow != 1 {
		w.slow += (1 - math.Exp(-float64(w.took)/float64(slowMemory))) * (ratio - w.slow)
	}
}

// stop is of a request, unless its slot is another's by now.
type stop struct {
	r   *request
	gen uint32
}

// cancel asks for the end of a request that is here.
func (w *worker) cancel(r *request) {
	w.stopped = append(w.stopped, stop{r, r.gen})
	w.wake()
}

// wake makes a worker that does nothing look at its mail.
func (w *worker) wake() {
	if !w.busy && !w.turning {
		w.turnAt(w.s.now)
	}
}

// turnAt makes a turn come, after everything else of that time.
func (w *worker) turnAt(at time.Duration) {
	s := w.s
	w.turning = at == s.now
	s.seq++
	s.events.push(event{at: at, seq: s.seq | late, kind: turn, slot: w.index})
}

// turn reads the mail and begins a step.
func (w *worker) turn() {
	if w.busy {
		return // it was to wake an idle worker
	}
	w.turning = false
	s := w.s
	for _, r := range w.added {
		q := batch.Sequence{ID: batch.ID(r.slot) + 1, Prompt: r.prompt, MaxNew: r.maxNew, MinNew: s.cfg.minNew(r.maxNew), Scope: r.tenant}
		if s.cfg.ShareAll {
			q.Scope = ""
		}
		q.Promise(batch.Promise{Class: r.class, OnDeadline: s.cfg.OnDeadline, Left: r.left}, r.atWorker)
		if err := w.planner.Add(q, s.now); err != nil {
			s.fail(fmt.Errorf("%w: %w", errWorker, err))
			return
		}
	}
	w.added = w.added[:0]
	for _, c := range w.stopped {
		r := c.r
		if r.gen != c.gen || r.worker != w {
			continue // has ended meanwhile
		}
		for _, o := range w.planner.Cancel(batch.ID(r.slot) + 1) {
			w.ended(r, &o)
		}
	}
	w.stopped = w.stopped[:0]
	w.batch = w.planner.Plan(s.now)
	w.settle()
	if w.batch == nil {
		if at, ok := w.planner.Wake(); ok && at > s.now {
			w.turnAt(at)
		}
		return
	}
	w.start()
	d := s.cfg.Profile.Step(w.batch.PrefillTokens, w.batch.Decodes, w.batch.ContextTokens)
	if w.says = d; s.cfg.Believed != nil {
		w.says = s.cfg.Believed.Step(w.batch.PrefillTokens, w.batch.Decodes, w.batch.ContextTokens)
	}
	if f := s.cfg.speed(s.now); f != 1 {
		d = time.Duration(float64(d) / f)
	}
	if d <= 0 {
		s.fail(fmt.Errorf("%w: profile: a step with %d tokens of prefill and %d sequences that decode takes %v, want more than 0",
			ErrConfig, w.batch.PrefillTokens, w.batch.Decodes, d))
		return
	}
	w.busy, w.began, w.took = true, s.now, d
	s.after(d, stepped, w.index, 0)
}

// start notes what a step begins with.
func (w *worker) start() {
	s := w.s
	for _, p := range w.batch.Preempted {
		r := s.slots[p.ID-1]
		if s.log != nil {
			s.emitPreempted(r, p.Generated)
		}
		r.preempted++
		r.fed, r.feed = 0, r.rec.PromptTokens+r.generated
	}
	for i := range w.batch.Entries {
		e := &w.batch.Entries[i]
		r := s.slots[e.ID-1]
		r.fed = int(e.Pos) + len(e.Tokens)
		if !e.Start || r.started >= 0 {
			continue
		}
		r.started = s.now
		r.prompt = nil // the planner has it now
		if s.log != nil {
			s.emitPrefillStarted(r)
		}
	}
}

// stepped ends a step.
func (w *worker) stepped() {
	s := w.s
	w.busy = false
	w.observe()
	w.rows = w.rows[:0]
	for i := range w.batch.Entries {
		e := &w.batch.Entries[i]
		row := batch.Row{}
		if e.Sample {
			r := s.slots[e.ID-1]
			row.Token = token(s.cfg.Seed, r.rec.Index, r.generated)
			row.Stop = s.cfg.Capped && r.generated+1 == r.output // otherwise it ends by its length
		}
		w.rows = append(w.rows, row)
	}
	outs := w.planner.Commit(w.rows, s.now)
	for i := range outs {
		o := &outs[i]
		r := s.slots[o.ID-1]
		if o.Kind == batch.KindToken || o.Kind == batch.KindStop || o.Kind == batch.KindLength {
			r.generated++
			s.gotToken(r, o.Cached)
		}
		if o.Kind.Ended() {
			w.ended(r, o)
		}
	}
	w.settle()
	if s.err == nil {
		w.turnAt(s.now)
	}
}

// settle drops what a backend would have to do to its cells, and looks at the books.
func (w *worker) settle() {
	w.moves = w.planner.Moves(w.moves[:0])
	err := w.planner.Err()
	if err == nil && w.s.cfg.CheckInvariants {
		err = w.planner.Check()
	}
	if err != nil {
		w.s.fail(fmt.Errorf("%w: %w", errWorker, err))
	}
}

// ended gives back what a request held here, and says so.
func (w *worker) ended(r *request, o *batch.Outcome) {
	s := w.s
	w.reserve(r, -1, -r.pages)
	last := len(w.reqs) - 1
	w.reqs[r.at] = w.reqs[last]
	w.reqs[r.at].at = r.at
	w.reqs[last] = nil
	w.reqs = w.reqs[:last]
	e := s.workerEvent(schema.Finished, r)
	e.OutputTokens, e.CachedTokens = int32(r.generated), int32(r.rec.CachedTokens)
	switch o.Kind {
	case batch.KindStop:
		e.Reason = string(schema.FinishStop)
	case batch.KindLength:
		e.Reason = string(schema.FinishLength)
	case batch.KindFailed:
		e.Type, e.Reason, e.Message = schema.Failed, string(schema.FailedEngine), o.Err.Error()
	case batch.KindDeadline:
		e.Type, e.Reason, e.Message = schema.Failed, string(schema.FailedDeadline), "could not be in time any more"
	default:
		e.Type, e.Reason = schema.Cancelled, string(schema.CancelDisconnect)
	}
	e.QueueTime = s.now - r.atWorker
	if r.started >= 0 {
		e.QueueTime = r.started - r.atWorker
	}
	if r.generated > 0 {
		e.PrefillTime, e.DecodeTime = r.firstAt-r.started, r.lastAt-r.firstAt
	}
	r.terminal, r.worker = e, nil
	s.after(s.cfg.Latency.Token, workerEnded, r.slot, r.gen)
}
