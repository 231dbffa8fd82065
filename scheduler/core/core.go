package core

import (
	"slices"
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// LiveTypes are the event types that a Core must be told of with Event, in the order of the log. Its own accepted and
// dispatched events are not among them: Appended tells it of those.
var LiveTypes = []schema.Type{schema.CancelRequested, schema.Finished, schema.Failed, schema.Cancelled, schema.WorkerUp,
	schema.WorkerDown, schema.Epoch}

// FoldTypes are the event types that a scheduler must fold before Restore.
var FoldTypes = append([]schema.Type{schema.Accepted, schema.Dispatched, schema.Sealed}, LiveTypes...)

// Core is the scheduler of one pool. It is not safe for concurrent use: its owner drives it.
type Core struct {
	cfg   Config
	epoch uint64

	requests  map[schema.RequestID]*request
	lanes     map[string]*lane
	order     []*lane // by model
	workers   map[schema.WorkerID]*worker
	fleet     []*worker // by id
	ingresses map[schema.IngressID]*ingress
	fronts    []*ingress // by id
	orphans   orphans
	graves    graves[schema.RequestID]
	down      graves[schema.WorkerID]
	// before is the fold that the Core was restored from: it remembers what ended and which workers were lost earlier.
	before *schema.State

	out       outbox
	rd, spare Ready
	waiting   int32 // requests in lanes
	expiring  int   // of them, that end when they cannot meet their objectives any more
	number    uint64
	spots     []spot // of Snapshot, used again

	cancelling []*request // at workers, to be asked again
	reseal     []*request // to be asked again at the next Tick

	hearing   int64 // silence counts from here at the earliest
	lastTick  int64
	lastScan  int64
	scanEvery time.Duration // for what has waited too long
}

// New returns an empty Core. It returns ErrConfig for a configuration that cannot work.
func New(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Order == nil {
		cfg.Order = EDF{NoDeadline: cfg.MaxQueueWait}
	}
	if cfg.Placement == nil {
		cfg.Placement = LeastLoaded{}
	}
	return &Core{
		cfg:       cfg,
		requests:  map[schema.RequestID]*request{},
		lanes:     map[string]*lane{},
		workers:   map[schema.WorkerID]*worker{},
		ingresses: map[schema.IngressID]*ingress{},
		orphans:   orphans{reasons: map[schema.RequestID]schema.CancelReason{}},
		graves:    newGraves[schema.RequestID](),
		down:      newGraves[schema.WorkerID](),
		before:    schema.NewState(),
		scanEvery: scanEvery(cfg.MaxQueueWait),
	}, nil
}

// scanEvery is a twentieth of the longest wait, so that nobody is told much later, and a second at most: a scan looks at
// every waiting request.
func scanEvery(maxQueueWait time.Duration) time.Duration {
	if maxQueueWait <= 0 {
		return time.Second
	}
	return min(time.Second, maxQueueWait/20)
}

// Enqueue takes a request from REQUESTS. One that is known, or ended not long ago, is passed over, so that REQUESTS
// may be read again.
func (c *Core) Enqueue(q Request, now int64) {
	if c.Known(q.ID) {
		return
	}
	r := c.take(q, now)
	e := c.event(schema.Accepted, r, now)
	e.Kind, e.Class, e.Budget, e.Grace = q.Kind, q.Class, q.left(now), q.Grace
	e.PromptTokens, e.MaxTokens, e.RequestSeq = q.PromptTokens, q.MaxTokens, q.Seq
	e.QueueTime, e.QueueDepth = time.Duration(max(now-q.StoredAt, 0)), c.waiting
	c.out.add(e, nil)
	if r.cancel = c.orphans.take(q.ID); r.cancel != "" {
		c.end(r, schema.Cancelled, string(r.cancel), "", now)
		return
	}
	r.since = q.StoredAt
	if c.overdue(r, now) {
		c.timeout(r, now)
		return
	}
	c.wait(r)
}

// Known reports whether a request is in hand or ended not long ago.
func (c *Core) Known(id schema.RequestID) bool {
	_, live := c.requests[id]
	return live || c.graves.has(id) || c.before.Settled(id)
}

// take opens the book of a request.
func (c *Core) take(q Request, now int64) *request {
	r := &request{Request: q, rank: c.cfg.Order.Rank(&q)}
	c.requests[q.ID] = r
	c.ingress(q.Ingress, now).attach(r, now)
	return r
}

// Unreadable takes a body of REQUESTS that cannot be decoded, with as much of it as could be made out: without an id
// it only becomes a dead letter.
func (c *Core) Unreadable(q Request, why string, now int64) {
	if !q.ID.Valid() {
		c.rd.DeadLetters = append(c.rd.DeadLetters, DeadLetter{Seq: q.Seq, Reason: schema.FailedInvalid, Message: why, Body: q.Body})
		return
	}
	if c.Known(q.ID) {
		return
	}
	if !schema.ValidName(string(q.Ingress)) {
		q.Ingress = "" // it would become part of a subject
	}
	r := &request{Request: q}
	c.requests[q.ID] = r
	if q.Ingress != "" {
		c.ingress(q.Ingress, now).attach(r, now)
	}
	c.bury(r, schema.FailedInvalid, why)
}

// Event takes an event of one of LiveTypes from the log, in its order. The Core's own come back here too.
func (c *Core) Event(e *schema.Stored, now int64) {
	switch e.Type {
	case schema.CancelRequested:
		c.cancelRequested(e, now)
	case schema.Finished, schema.Failed, schema.Cancelled:
		if c.isDown(e.Worker) {
			return // of a worker that was declared lost: not believed
		}
		r := c.requests[e.Request]
		if r == nil {
			if e.Pool == "" || e.Pool == c.cfg.Pool {
				c.graves.add(e.Request)
			}
			return
		}
		// What we are ending ourselves settles when the append is answered.
		if r.state != ending && e.Attempt >= r.attempt {
			c.settle(r, e.Type, e.Reason)
		}
	case schema.WorkerUp:
		if e.Pool == c.cfg.Pool && !c.isDown(e.Worker) {
			c.worker(e.Worker, now)
		}
	case schema.WorkerDown:
		if c.isDown(e.Worker) {
			return
		}
		c.down.add(e.Worker)
		if w := c.workers[e.Worker]; w != nil {
			c.lose(w, now)
		}
	case schema.Epoch:
		if e.Pool != c.cfg.Pool || e.Seq <= c.epoch {
			return
		}
		if c.epoch = e.Seq; e.Source != c.cfg.Source { // our own is the claim renewed
			c.rd.Deposed = true
		}
	}
}

func (c *Core) isDown(id schema.WorkerID) bool {
	return c.down.has(id) || c.before.Down(id)
}

// Tick lets time pass: call it several times a second. A call that comes late, or by a clock that was set back, means
// that the owner was asleep, so that the silence of others until now does not count.
func (c *Core) Tick(now int64) {
	if step := now - c.lastTick; c.lastTick != 0 && (step < 0 || step > int64(min(c.cfg.WorkerLostAfter, c.cfg.IngressLostAfter))/2) {
		c.Deaf(now)
	}
	c.lastTick = now
	c.silence(now)
	for _, w := range c.fleet {
		w.pause = false
	}
	for _, r := range c.reseal {
		if r.state == sealing {
			c.rd.Seals = append(c.rd.Seals, Seal{Ingress: r.Ingress, Request: r.ID, Attempt: r.attempt})
		}
	}
	c.reseal = c.reseal[:0]
	c.cancelling = slices.DeleteFunc(c.cancelling, func(r *request) bool {
		if r.state != running {
			return true
		}
		if now >= r.nextCancel {
			c.askCancel(r, now)
		}
		return false
	})
	if now-c.lastScan >= int64(c.scanEvery) || now < c.lastScan {
		c.lastScan = now
		c.expire(now)
		c.orphans.forget(now - int64(c.cfg.OrphanAge))
	}
}

// Deaf says that heartbeats could not be heard until now: nobody is lost for the silence before.
func (c *Core) Deaf(now int64) {
	c.hearing = now
	for _, w := range c.fleet {
		w.lastSeen, w.nobodySince = min(w.lastSeen, now), 0
	}
	for _, in := range c.fronts {
		in.lastSeen = min(in.lastSeen, now)
	}
}

// lane returns the queue of a model, opening it if need be.
func (c *Core) lane(model string) *lane {
	l := c.lanes[model]
	if l == nil {
		l = &lane{model: model}
		c.lanes[model] = l
		c.order = insertSorted(c.order, l, func(l *lane) string { return l.model })
	}
	return l
}

// wait puts a request into its lane.
func (c *Core) wait(r *request) {
	r.state = waiting
	c.waiting++
	if r.expires() {
		c.expiring++
	}
	c.lane(r.Model).push(r)
}

// unwait takes a waiting request out of its lane.
func (c *Core) unwait(r *request) {
	c.waiting--
	if r.expires() {
		c.expiring--
	}
	c.lane(r.Model).remove(r)
}

// event starts an event of a request.
func (c *Core) event(t schema.Type, r *request, now int64) schema.Event {
	return schema.Event{Type: t, Time: now, Source: c.cfg.Source, Request: r.ID, Attempt: r.attempt,
		Pool: c.cfg.Pool, Model: r.Model, Tenant: r.Tenant, Ingress: r.Ingress}
}

func seconds(ns int64) string {
	return strconv.FormatFloat(float64(ns)/1e9, 'f', 1, 64) + " s"
}
