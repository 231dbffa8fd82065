package ingress

import (
	"cmp"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
)

// sight is what a request finds when it arrives.
type sight struct {
	engine *predictor.Engine // that it will come to; lent until the next; nil: nothing can be predicted, and note says why
	note   string
	load   admission.Load
	open   int  // requests that the pool has, waiting ones included
	room   bool // nothing waits, and the engine has a slot and memory for it
	cached int  // tokens of its prompt
}

// see returns what a request finds now at the workers of its pool.
//
// It comes to the worker with the fewest requests, as in bench/control, with every n-th of those that wait for n workers. Of more than
// maxQueued waiting ones for one worker the rest is left out.
func (e *engines) see(r *call, prompt []int32, now time.Duration) sight {
	q := e.pool(r.pool)
	s := sight{}
	best, oldest := -1, now
	e.fresh = e.fresh[:0]
	for _, w := range e.order {
		if w.pool != r.pool || w.model != r.model || w.draining || !w.isFresh(now) {
			continue
		}
		e.fresh = append(e.fresh, w)
		oldest = min(oldest, w.at)
		s.open += w.count()
		s.load.Tokens += w.tokens
		if best < 0 || w.count() < e.fresh[best].count() {
			best = len(e.fresh) - 1
		}
	}
	s.load.Workers, s.load.Ingresses = len(e.fresh), max(1, len(e.peers))
	// Of those that nobody lists, one that has begun is with an engine until all have told of themselves since; then it is over.
	loose := func(o *admitted) bool { return o.first == 0 || o.first >= oldest }
	n := 0
	for _, o := range q.loose {
		if loose(o) {
			n++
			s.load.Tokens += int64(o.s.PrefillTokens) + int64(o.s.CapTokens)
		}
	}
	if q.isFresh(now) {
		n += max(0, q.requests-q.over)
		s.load.Tokens += q.tokens
	}
	s.load.Waiting = n
	s.open += n
	switch {
	case best < 0:
		s.note = noteNoEngine
	case e.fresh[best].base.Profile == nil:
		s.note = noteNoProfile
	case !q.isFresh(now):
		s.note = noteNoQueue
	default:
		w := e.fresh[best]
		s.engine = e.assemble(w, q, best, loose, now)
		if e.digest != nil && w.base.Plan.PrefixCache {
			s.cached = min(max(0, e.digest(w.prefixes, r.tenant, prompt)), len(prompt)-1)
		}
		s.room = hasRoom(s.engine, len(prompt)-s.cached+int(r.output))
	}
	return s
}

// count is how many requests the engine has.
func (w *engineOf) count() int { return len(w.holds) - w.over }

// assemble makes the engine for the predictor: that of w, the best-th of the fresh ones, with its share of the queue.
func (e *engines) assemble(w *engineOf, q *queueOf, best int, loose func(*admitted) bool, now time.Duration) *predictor.Engine {
	to := &e.engine
	running, waiting := to.Running[:0], to.Waiting[:0]
	for i := range w.holds {
		if h := &w.holds[i]; h.mine == nil || !h.mine.ended {
			running = append(running, h.now(now, w.at))
		}
	}
	// Those on the way from the queue to an engine come first, those on the way to the queue last.
	if len(q.loose) <= maxQueued {
		slices.SortFunc(q.loose, func(a, b *admitted) int { return cmp.Compare(a.at, b.at) })
		for i, o := range q.loose {
			o.loose = i + 1
		}
	}
	deal := deal{of: len(e.fresh), to: best}
	for _, o := range q.loose {
		if o.seq != 0 && o.seq <= q.seq && loose(o) && deal.next() {
			waiting = append(waiting, o.sequence(now))
		}
	}
	for i := range q.holds {
		h := &q.holds[i]
		if o := h.mine; o != nil && (o.ended || o.in != nil && o.in.isFresh(now)) {
			continue
		}
		if deal.next() {
			waiting = append(waiting, h.now(now, q.at))
		}
	}
	for _, o := range q.loose {
		if (o.seq == 0 || o.seq > q.seq) && loose(o) && deal.next() {
			waiting = append(waiting, o.sequence(now))
		}
	}
	*to = predictor.Engine{Profile: w.base.Profile, Plan: w.base.Plan, Slow: w.slow, Running: running, Waiting: waiting, FreePages: w.freePages}
	to.StepLeft = w.forward(running, now-w.at)
	to.Delay, to.Enter, to.Refill = e.hops.delays()
	return to
}

// forward lets the engine go on with what it runs for as long as its state is old, and returns how long the present step still takes.
// It knows of nobody who came or ended since; a state comes soon after either.
func (w *engineOf) forward(running []predictor.Sequence, age time.Duration) time.Duration {
	if len(running) == 0 {
		return 0
	}
	if left := w.stepLeft - age; left > 0 {
		return left
	}
	plan := &w.base.Plan
	decodes, context, prefill := 0, 0, 0
	for i := range running {
		r := &running[i]
		context += int(r.PromptTokens + r.OutputTokens - r.PrefillTokens)
		if prefill += int(r.PrefillTokens); r.PrefillTokens == 0 {
			decodes++
		}
	}
	fed := min(prefill, max(1, plan.BatchTokens-decodes))
	step := max(time.Microsecond, time.Duration(float64(w.base.Profile.Step(fed, decodes, context))*cmp.Or(w.slow, 1)))
	over := age - w.stepLeft
	n := int(over / step)
	if w.stepLeft > 0 {
		n++
	}
	for i := range running {
		r := &running[i]
		if r.PrefillTokens == 0 {
			r.OutputTokens = max(r.OutputTokens, min(r.OutputTokens+int32(n), r.CapTokens-1))
		}
	}
	fed *= n
	for i := range running {
		r := &running[i]
		done := min(fed, int(r.PrefillTokens))
		r.PrefillTokens -= int32(done)
		fed -= done
	}
	return step - over%step
}

// deal gives every of-th of a queue to one worker, maxQueued at most.
type deal struct{ of, to, n, given int }

func (d *deal) next() bool {
	mine := d.n%d.of == d.to && d.given < maxQueued
	d.n++
	if mine {
		d.given++
	}
	return mine
}

// now brings a request of a state forward. Of one that was let in here its arrival and its objectives are known better.
func (h *held) now(now, at time.Duration) predictor.Sequence {
	s := h.Sequence
	if o := h.mine; o != nil {
		s.Age, s.E2E, s.TTFT, s.Guaranteed, s.Lengths = max(0, now-o.at), o.s.E2E, o.s.TTFT, o.s.Guaranteed, o.s.Lengths
		if s.OutputTokens == 0 && s.PrefillTokens == s.PromptTokens { // nothing was computed yet
			s.PrefillTokens = o.s.PrefillTokens
		}
		return s
	}
	s.Age += now - at
	return s
}

// sequence is the request as it waits.
func (o *admitted) sequence(now time.Duration) predictor.Sequence {
	s := o.s
	s.Age = max(0, now-o.at)
	return s
}

// hasRoom reports whether nothing waits for the engine, and it has a slot and memory for so many tokens.
func hasRoom(e *predictor.Engine, tokens int) bool {
	slots := e.Plan.MaxBatch
	if e.Plan.Mode == "fifo" {
		slots = 1
	}
	return len(e.Waiting) == 0 && len(e.Running) < slots && e.Plan.Pages(tokens) <= e.FreePages
}

// hops are how long the pipeline takes around the engine, as this ingress sees it of its own requests.
type hops struct {
	stored  median // arrival until the request is stored
	entered median // arrival until an engine that had a slot tells that it has the request
}

const (
	// hop is what each part of the pipeline is taken to need before anything was measured: what bench/sim has.
	hop = 215 * time.Microsecond
	// tokenHop is how long a token is taken to be under way: clocks of two hosts are not compared, so that nobody measures it.
	tokenHop = hop
)

func newHops() hops { return hops{stored: newMedian(hop), entered: newMedian(3 * hop)} }

// delays are predictor.Engine's: all that lies around the engine, what of it comes before, and how long a freed slot stays empty.
func (h *hops) delays() (delay, enter, refill time.Duration) {
	enter = h.entered.value
	return enter + tokenHop, enter, max(0, enter-h.stored.value) + tokenHop
}

// median is of the last values.
type median struct {
	value  time.Duration
	last   [15]time.Duration
	n      int // added so far
	sorted [15]time.Duration
}

// newMedian begins with a value that counts until as many were added as say something else.
func newMedian(start time.Duration) median {
	m := median{value: start}
	for i := range m.last {
		m.last[i] = start
	}
	return m
}

func (m *median) add(d time.Duration) {
	m.last[m.n%len(m.last)] = d
	m.n++
	m.sorted = m.last
	slices.Sort(m.sorted[:])
	m.value = m.sorted[len(m.sorted)/2]
}
