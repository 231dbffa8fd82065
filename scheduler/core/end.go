package core

import (
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// cancelRequested takes the wish to cancel a request. Who has the request answers it.
func (c *Core) cancelRequested(e *schema.Stored, now int64) {
	r := c.requests[e.Request]
	if r == nil {
		if !c.Known(e.Request) && (e.Pool == "" || e.Pool == c.cfg.Pool) {
			c.orphans.add(e.Request, schema.CancelReason(e.Reason), now)
		}
		return
	}
	if r.cancel != "" {
		return
	}
	r.cancel = schema.CancelReason(e.Reason)
	switch r.state {
	case waiting:
		c.unwait(r)
		c.end(r, schema.Cancelled, e.Reason, "", now)
	case binding: // nobody else has it
		c.end(r, schema.Cancelled, e.Reason, "", now)
	case sealing: // when the ingress has said whether the whole answer was relayed
	case due:
		if !r.sent {
			c.end(r, schema.Cancelled, e.Reason, "", now)
		}
	case running:
		c.cancelling = append(c.cancelling, r)
		c.askCancel(r, now)
	case sending: // when the worker has answered
	case burying, ending, ended:
	}
}

// askCancel asks a request's worker to stop it. The message may be lost, so that Tick repeats it.
func (c *Core) askCancel(r *request, now int64) {
	r.nextCancel = now + int64(c.cfg.CancelEvery)
	c.rd.Cancels = append(c.rd.Cancels, schema.Cancel{Request: r.ID, Reason: r.cancel})
}

// seal asks what a lost worker's request had relayed.
func (c *Core) seal(r *request, w *worker, now int64) {
	r.unbook()
	r.state, r.nobodySince = sealing, 0
	r.history = append(r.history, Try{Attempt: r.attempt, Worker: w.id, Bound: r.bound, Lost: now})
	c.rd.Seals = append(c.rd.Seals, Seal{Ingress: r.Ingress, Request: r.ID, Attempt: r.attempt})
}

// SealAnswer is an ingress's answer to a Seal.
type SealAnswer struct {
	Request schema.RequestID
	Attempt uint32
	Result  Result
	Reply   *schema.SealReply // if answered; the Core owns it
}

// Sealed takes the answer to a Seal.
func (c *Core) Sealed(a SealAnswer, now int64) {
	r := c.requests[a.Request]
	if r == nil || r.state != sealing || r.attempt != a.Attempt {
		return
	}
	if a.Result != Answered {
		if a.Result == NoListener {
			if r.nobodySince == 0 {
				r.nobodySince = now
			}
			if now-r.nobodySince >= int64(c.cfg.NoListenerAfter) {
				c.end(r, schema.Cancelled, string(schema.CancelIngressLost), "nobody listens for seals", now)
				return
			}
		} else {
			r.nobodySince = 0
		}
		c.reseal = append(c.reseal, r)
		return
	}
	reply := a.Reply
	switch {
	case !reply.Known: // the client is gone
		c.end(r, schema.Cancelled, string(schema.CancelDisconnect), "", now)
		return
	case reply.Finish != nil: // its worker died after the last token
		f := reply.Finish
		e := c.event(schema.Finished, r, now)
		e.Reason = string(f.Reason)
		e.PromptTokens, e.CachedTokens, e.OutputTokens = f.PromptTokens, f.CachedTokens, f.OutputTokens
		e.ResumeTokens = int32(len(r.resume))
		r.state = ending
		c.out.add(e, r)
		return
	case r.cancel != "":
		c.end(r, schema.Cancelled, string(r.cancel), "", now)
		return
	}
	e := c.event(schema.Sealed, r, now)
	e.OutputTokens = int32(len(reply.Relayed))
	c.out.add(e, nil)
	r.losses++
	r.resume = reply.Relayed
	r.history[len(r.history)-1].OutputTokens = e.OutputTokens
	if r.losses >= c.cfg.MaxAttempts {
		c.bury(r, schema.FailedWorkerLost, fmt.Sprintf("%d workers were lost under it", r.losses))
		return
	}
	r.since = now
	c.requeue(r, true)
}

// bury ends a request that nobody can serve: first its dead letter is stored, then failed, so that a crash between the two
// repeats the letter (under the same id) and does not lose it.
func (c *Core) bury(r *request, code schema.FailureCode, message string) {
	r.unbook()
	r.state, r.failure, r.message = burying, code, message
	c.rd.DeadLetters = append(c.rd.DeadLetters, DeadLetter{ID: r.ID, Seq: r.Seq, Reason: code, Message: message, History: r.history, Body: r.Body})
}

// Buried says that the dead letter of a request is stored.
func (c *Core) Buried(id schema.RequestID, now int64) {
	if r := c.requests[id]; r != nil && r.state == burying {
		c.end(r, schema.Failed, string(r.failure), r.message, now)
	}
}

// overdue reports whether a request has waited too long.
func (c *Core) overdue(r *request, now int64) bool {
	return c.cfg.MaxQueueWait > 0 && now-r.since >= int64(c.cfg.MaxQueueWait)
}

func (c *Core) timeout(r *request, now int64) {
	c.end(r, schema.Failed, string(schema.FailedTimeout), "waited "+seconds(now-r.since)+" in the queue", now)
}

// expire ends what has waited too long, and what is to end because it cannot meet its objectives any more.
func (c *Core) expire(now int64) {
	if c.cfg.MaxQueueWait <= 0 && c.expiring == 0 {
		return
	}
	var over []*request
	for _, l := range c.order {
		look := func(r *request) {
			if c.overdue(r, now) || r.expires() && c.doomed(l, r, now) {
				over = append(over, r)
			}
		}
		for i := range l.heap {
			look(l.heap[i].req)
		}
		for _, r := range l.parked {
			look(r)
		}
	}
	for _, r := range bySeq(over) {
		c.unwait(r)
		if c.overdue(r, now) {
			c.timeout(r, now)
		} else {
			c.tooLate(r, now)
		}
	}
}

// end stores the Core's own terminal event of a request that no worker has.
func (c *Core) end(r *request, t schema.Type, reason, message string, now int64) {
	r.unbook()
	r.state, r.message = ending, message
	e := c.event(t, r, now)
	e.Reason, e.Message, e.OutputTokens, e.RequestSeq = reason, message, int32(len(r.resume)), r.Seq
	c.out.add(e, r)
}

// settle forgets a request: its terminal event is stored.
func (c *Core) settle(r *request, t schema.Type, reason string) {
	if r.state == waiting {
		c.unwait(r)
	}
	if r.state == ending && t != schema.Finished && r.Ingress != "" { // its client has not heard of it
		code := schema.FailureCode(reason)
		if t == schema.Cancelled {
			code = schema.FailedCancelled
		}
		c.rd.Chunks = append(c.rd.Chunks, Chunk{Ingress: r.Ingress, Chunk: schema.Chunk{Request: r.ID,
			Index: int32(len(r.resume)), Error: &schema.Error{Code: code, Message: r.message}}})
	}
	if r.worker != nil {
		r.worker.blocked = false
	}
	r.unbook()
	r.detach()
	r.state = ended
	delete(c.requests, r.ID)
	c.graves.add(r.ID)
	c.rd.Ended = append(c.rd.Ended, Ended{Request: r.ID, Type: t, Reason: reason, Attempts: r.attempt})
}

// Stats is what a Core has in hand.
type Stats struct {
	Live    int           // requests between Enqueue and their end
	Waiting int           // of them in the queue
	Oldest  time.Duration // longest wait in the queue
	Workers []WorkerStats // by id
}

// WorkerStats is the book of one worker.
type WorkerStats struct {
	Worker         schema.WorkerID
	InFlight       int
	Slots          int32
	Pages, KVPages int32
}

// Stats returns what the Core has in hand. It looks at every waiting request: call it about once a second.
func (c *Core) Stats(now int64) Stats {
	s := Stats{Live: len(c.requests), Waiting: int(c.waiting), Workers: make([]WorkerStats, 0, len(c.fleet))}
	for _, l := range c.order {
		for i := range l.heap {
			s.Oldest = max(s.Oldest, time.Duration(now-l.heap[i].req.since))
		}
		for _, r := range l.parked {
			s.Oldest = max(s.Oldest, time.Duration(now-r.since))
		}
	}
	for _, w := range c.fleet {
		s.Workers = append(s.Workers, WorkerStats{w.id, len(w.reqs), w.slots, w.pages, w.kvPages})
	}
	return s
}
