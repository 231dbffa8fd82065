package core

import (
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// Ready is what the owner has to do. Everything but Events may be done at once and in any order, except that dispatches
// to one worker are never two at a time. Slices are valid until the next Ready, unless stated otherwise.
type Ready struct {
	// Events form the next group of the one append in flight; answer with Appended. They are valid until then.
	Events     []*schema.Event
	Dispatches []Dispatch
	Seals      []Seal
	// Cancels to be published; not answered.
	Cancels []schema.Cancel
	// Chunks tell clients of requests that the scheduler ended; not answered.
	Chunks      []Chunk
	DeadLetters []DeadLetter
	// Ended tells how requests ended, for metrics.
	Ended []Ended
	// Gone are workers that will get no more dispatches; the answer to the last one does not matter.
	Gone []schema.WorkerID
	// Deposed is true if another scheduler has the pool: stop.
	Deposed bool
}

// Dispatch is a batch of requests for one worker; answer with DispatchAnswer.
type Dispatch struct {
	Worker schema.WorkerID
	Number uint64
	// Items are valid until the answer.
	Items []schema.DispatchItem
	// Waited is how long each item was in the pipeline since it was stored in REQUESTS, over all attempts; len = len(Items).
	Waited []time.Duration
}

// Seal asks an ingress what it has relayed; answer with Sealed.
type Seal struct {
	Ingress schema.IngressID
	Request schema.RequestID
	Attempt uint32
}

// Chunk is a closing chunk for a client. Its attempt is 0: it holds whatever attempts were sealed.
type Chunk struct {
	Ingress schema.IngressID
	Chunk   schema.Chunk
}

// DeadLetter is a request that nobody could serve, with its history; answer with Buried if ID is not empty.
type DeadLetter struct {
	ID      schema.RequestID // empty if the body did not tell
	Seq     uint64           // in REQUESTS
	Reason  schema.FailureCode
	Message string
	History []Try
	Body    []byte // as it lies in REQUESTS
}

// Ended is how a request ended.
type Ended struct {
	Request  schema.RequestID
	Type     schema.Type // finished, failed or cancelled
	Reason   string      // its finish reason, failure code or cancel reason
	Attempts uint32
}

// record is an event on its way to the log, and the request that it moves on.
type record struct {
	event schema.Event
	req   *request
}

// outbox holds the events to be stored: those of the append in flight and those that gather behind it. Both slabs are
// used again and again.
type outbox struct {
	gathering, flying []record
	group             []*schema.Event
}

func (o *outbox) add(e schema.Event, r *request) { o.gathering = append(o.gathering, record{e, r}) }

// next forms a group of at most n events, if none is in flight.
func (o *outbox) next(n int) []*schema.Event {
	if len(o.flying) > 0 || len(o.gathering) == 0 {
		return nil
	}
	o.flying, o.gathering = o.gathering, o.flying[:0]
	if len(o.flying) > n {
		o.gathering = append(o.gathering, o.flying[n:]...)
		o.flying = o.flying[:n]
	}
	o.group = o.group[:0]
	for i := range o.flying {
		o.group = append(o.group, &o.flying[i].event)
	}
	return o.group
}

// Ready returns what has to be done now, and takes it for done.
func (c *Core) Ready(now int64) Ready {
	if len(c.out.flying) == 0 {
		c.bind(now)
		c.rd.Events = c.out.next(c.cfg.MaxGroup)
	}
	c.send(now)
	rd := c.rd
	c.rd, c.spare = c.spare.reset(), rd
	return rd
}

// Backlog is the number of events that wait for the append in flight: an owner that reads REQUESTS faster than EVENTS
// takes it should pause.
func (c *Core) Backlog() int { return len(c.out.gathering) }

// reset empties a Ready and keeps its memory.
func (rd Ready) reset() Ready {
	clear(rd.DeadLetters)
	clear(rd.Chunks)
	clear(rd.Cancels)
	return Ready{Dispatches: rd.Dispatches[:0], Seals: rd.Seals[:0], Cancels: rd.Cancels[:0], Chunks: rd.Chunks[:0],
		DeadLetters: rd.DeadLetters[:0], Ended: rd.Ended[:0], Gone: rd.Gone[:0], Deposed: rd.Deposed}
}

// Appended says that the events of the last Ready that had some are stored.
func (c *Core) Appended() {
	for i := range c.out.flying {
		rec := &c.out.flying[i]
		r := rec.req
		if r == nil {
			continue
		}
		switch {
		case rec.event.Type == schema.Dispatched:
			c.bound(r)
		case rec.event.Type.Terminal():
			c.settle(r, rec.event.Type, rec.event.Reason)
		}
		rec.req = nil
	}
	c.out.flying = c.out.flying[:0]
}
