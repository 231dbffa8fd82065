package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
)

// worker is the book of one worker's life.
type worker struct {
	id    schema.WorkerID
	model string
	lane  *lane // of the model; nil until a heartbeat named it
	speed deadline.Speed

	slots, contextTokens, pageTokens, kvPages int32 // of its last heartbeat; slots 0 takes nothing

	draining  bool
	condemned bool // our worker_down is being stored or on its way back to us
	blocked   bool // it said full: no more until it says something new

	lastSeen int64
	interval int64

	reqs  []*request // booked
	pages int32      // reserved
	// Of both, what is guaranteed.
	promised      int
	promisedPages int32

	sendq  []*request // due, in order; entries of another state are stale
	batch  []*request // in the unanswered dispatch
	items  []schema.DispatchItem
	waited []time.Duration
	number uint64 // of the unanswered dispatch, 0 if there is none
	most   int    // requests in the next batch, because the last one was too large; 0 is no limit
	pause  bool   // try again at the next Tick
	// nobodySince is when a dispatch first found nobody listening.
	nobodySince int64
}

func workerID(w *worker) schema.WorkerID { return w.id }

// open reports whether the worker takes new requests at all.
func (w *worker) open() bool { return w.slots > 0 && !w.draining && !w.condemned }

// need is how many pages a request can come to hold there.
func (w *worker) need(r *request) int64 {
	return (r.peak() + int64(w.pageTokens) - 1) / int64(w.pageTokens)
}

// able reports whether the worker could hold the request if it were empty.
func (w *worker) able(r *request) bool {
	return (w.contextTokens <= 0 || r.peak() <= int64(w.contextTokens)) && (w.kvPages <= 0 || w.need(r) <= int64(w.kvPages))
}

func (w *worker) book(r *request) {
	r.worker, r.slot = w, len(w.reqs)
	w.reqs = append(w.reqs, r)
	if r.Class == schema.Guaranteed {
		w.promised++
	}
	w.reserve(r)
}

// reserve takes the pages of a booked request.
func (w *worker) reserve(r *request) {
	r.pages = 0
	if w.kvPages > 0 {
		r.pages = int32(w.need(r))
	}
	w.pages += r.pages
	if r.Class == schema.Guaranteed {
		w.promisedPages += r.pages
	}
}

// unbook gives back what a request reserved, if it did.
func (r *request) unbook() {
	w := r.worker
	if w == nil {
		return
	}
	last := len(w.reqs) - 1
	w.reqs[r.slot] = w.reqs[last]
	w.reqs[r.slot].slot = r.slot
	w.reqs[last] = nil
	w.reqs = w.reqs[:last]
	w.pages -= r.pages
	if r.Class == schema.Guaranteed {
		w.promised--
		w.promisedPages -= r.pages
	}
	r.worker, r.pages, r.sent = nil, 0, false
}

// WorkerState takes a worker's heartbeat. Those of other pools and of workers whose life has ended are ignored.
func (c *Core) WorkerState(s *schema.WorkerState, now int64) {
	if s.Pool != c.cfg.Pool || c.isDown(s.Worker) {
		return
	}
	w := c.worker(s.Worker, now)
	w.lastSeen, w.interval = now, int64(s.Interval)
	w.blocked, w.nobodySince = false, 0
	if w.lane == nil || w.model != s.Model {
		if w.lane != nil {
			w.lane.leave(w)
		}
		w.model, w.lane = s.Model, c.lane(s.Model)
		if !w.condemned {
			w.lane.join(w)
		}
	}
	grown := s.Slots > 0 && w.slots == 0 || s.ContextTokens != w.contextTokens || s.KVPages != w.kvPages || s.PageTokens != w.pageTokens || w.draining && !s.Draining
	rebook := s.PageTokens != w.pageTokens || (s.KVPages > 0) != (w.kvPages > 0)
	w.slots, w.contextTokens, w.draining = s.Slots, s.ContextTokens, s.Draining
	w.pageTokens, w.kvPages = s.PageTokens, s.KVPages
	if rebook { // requests were booked before their worker had told its page size
		w.pages, w.promisedPages = 0, 0
		for _, r := range w.reqs {
			w.reserve(r)
		}
	}
	if grown {
		w.lane.unpark()
	}
}

// SetSpeed says how fast a worker's engine is at its fastest; the zero value is not known, as it is before the first call. Where a
// prompt may turn out to be cached there, PrefillToken should be 0. A worker that is not known is passed over.
func (c *Core) SetSpeed(id schema.WorkerID, s deadline.Speed) {
	w := c.workers[id]
	if w == nil || w.speed == s {
		return
	}
	w.speed = s
	if w.lane != nil {
		w.lane.measure()
	}
}

// worker returns the book of a worker, opening it if need be.
func (c *Core) worker(id schema.WorkerID, now int64) *worker {
	w := c.workers[id]
	if w == nil {
		w = &worker{id: id, lastSeen: now, pageTokens: 1}
		c.workers[id] = w
		c.fleet = insertSorted(c.fleet, w, workerID)
	}
	return w
}

// condemn declares a worker lost. Its requests stay as they are until its worker_down comes back from the log.
func (c *Core) condemn(w *worker, why string, now int64) {
	if w.condemned {
		return
	}
	w.condemned = true
	if w.lane != nil {
		w.lane.leave(w)
	}
	c.out.add(schema.Event{Type: schema.WorkerDown, Time: now, Source: c.cfg.Source, Pool: c.cfg.Pool, Model: w.model,
		Worker: w.id, Reason: string(schema.DownLost), Message: why}, nil)
}

// lose ends a worker's life in the book: everything that the log holds before its worker_down has been seen.
func (c *Core) lose(w *worker, now int64) {
	delete(c.workers, w.id)
	c.fleet = removeSorted(c.fleet, w, workerID)
	if w.lane != nil {
		w.lane.leave(w)
	}
	c.rd.Gone = append(c.rd.Gone, w.id)
	for _, r := range bySeq(w.reqs) {
		switch {
		case r.cancel != "":
			c.end(r, schema.Cancelled, string(r.cancel), "", now)
		case r.mayRun():
			c.seal(r, w, now)
		default:
			c.requeue(r, true)
		}
	}
}

// bySeq returns a copy in the order of REQUESTS, so that what follows does not depend on history.
func bySeq(reqs []*request) []*request {
	s := slices.Clone(reqs)
	slices.SortFunc(s, func(a, b *request) int { return cmp.Compare(a.Seq, b.Seq) })
	return s
}

// silence checks every heartbeat.
func (c *Core) silence(now int64) {
	for i := 0; i < len(c.fleet); i++ {
		w := c.fleet[i]
		if w.condemned {
			continue
		}
		if quiet := now - max(w.lastSeen, c.hearing); quiet > max(int64(c.cfg.WorkerLostAfter), 3*w.interval) {
			c.condemn(w, "no heartbeat for "+seconds(quiet), now)
		}
	}
	for i := 0; i < len(c.fronts); i++ {
		in := c.fronts[i]
		quiet := now - max(in.lastSeen, c.hearing)
		if in.lost || quiet <= max(int64(c.cfg.IngressLostAfter), 3*in.interval) {
			continue
		}
		in.lost = true
		for _, r := range bySeq(in.reqs) {
			if r.cancel == "" && !r.askedGone && r.state < burying {
				r.askedGone = true
				e := c.event(schema.CancelRequested, r, now)
				e.Attempt, e.Reason, e.Message = 0, string(schema.CancelIngressLost), "no heartbeat for "+seconds(quiet)
				c.out.add(e, nil)
			}
		}
	}
	c.fronts = slices.DeleteFunc(c.fronts, func(in *ingress) bool {
		if in.lost && len(in.reqs) == 0 {
			delete(c.ingresses, in.id)
			return true
		}
		return false
	})
}
