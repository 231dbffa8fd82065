package core

import (
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// bind lets requests leave the queue for workers that have room now, in order. Nobody overtakes a head that will fit
// once somebody has finished; one that cannot meet its objectives any more is found out when it is the head.
func (c *Core) bind(now int64) {
	for _, l := range c.order {
		for len(l.heap) > 0 && len(c.out.gathering) < c.cfg.MaxGroup {
			r := l.heap[0].req
			if c.overdue(r, now) { // Tick has not found it yet
				c.unwait(r)
				c.timeout(r, now)
				continue
			}
			if c.doomed(l, r, now) {
				if r.expires() {
					c.unwait(r)
					c.tooLate(r, now)
				} else {
					l.demote(r)
				}
				continue
			}
			w, never := c.choose(l, r, now)
			if never {
				l.park(r)
				continue
			}
			if w == nil {
				break
			}
			c.unwait(r)
			w.book(r)
			r.state, r.bound = binding, now
			r.attempt++
			e := c.event(schema.Dispatched, r, now)
			e.Worker, e.Class, e.Budget = w.id, r.Class, r.left(now)
			e.PromptTokens, e.MaxTokens = r.PromptTokens, r.MaxTokens
			e.Resume, e.ResumeTokens = r.resume, int32(len(r.resume))
			e.QueueTime, e.QueueDepth = time.Duration(max(now-r.since, 0)), c.waiting
			c.out.add(e, r)
		}
	}
}

// choose returns the worker for a request, nil if none has room now. never is true if workers serve its model and not
// one of them could hold it even if it were empty.
func (c *Core) choose(l *lane, r *request, now int64) (best *worker, never bool) {
	best, never = c.roomiest(l, r, false)
	if best == nil && !never && r.Class == schema.Guaranteed && !r.late && c.pressed(l, r, now) {
		best, _ = c.roomiest(l, r, true)
	}
	return best, never
}

// roomiest is choose among those that have room, or, if over is set, that have it once best effort gives way.
func (c *Core) roomiest(l *lane, r *request, over bool) (best *worker, never bool) {
	var lowest float64
	open, able := false, false
	for _, w := range l.workers {
		if !w.open() {
			continue
		}
		open = true
		if !w.able(r) {
			continue
		}
		able = true
		taken, pages := len(w.reqs), w.pages
		if over {
			taken, pages = w.promised, w.promisedPages
		}
		need := w.need(r)
		if w.blocked || taken >= int(w.slots) || w.kvPages > 0 && int64(pages)+need > int64(w.kvPages) {
			continue
		}
		score := c.cfg.Placement.Score(&r.Request, Load{Worker: w.id, Slots: w.slots, InFlight: int32(taken),
			KVPages: w.kvPages, Pages: pages, Need: int32(need)})
		if score < lowest || best == nil && score == score {
			best, lowest = w, score
		}
	}
	return best, open && !able
}

// bound lets a request go to its worker whose dispatched event is stored, unless it was cancelled or its worker lost
// meanwhile.
func (c *Core) bound(r *request) {
	if r.state == binding {
		r.state = due
		r.worker.sendq = append(r.worker.sendq, r)
	}
}

// requeue gives a request its place in the queue back: the attempt did not run. front puts it before those that never ran.
func (c *Core) requeue(r *request, front bool) {
	r.unbook()
	r.front = r.front || front
	c.wait(r)
}

// send forms the next batch of every worker that has answered the last one.
func (c *Core) send(now int64) {
	for _, w := range c.fleet {
		if len(w.sendq) == 0 || w.number != 0 || w.pause || w.condemned {
			continue
		}
		w.batch, w.items, w.waited = w.batch[:0], w.items[:0], w.waited[:0]
		n, bytes := 0, 0
		for _, r := range w.sendq {
			if r.state != due || r.worker != w {
				n++ // cancelled, or elsewhere by now
				continue
			}
			bytes += len(r.Body) + 4*len(r.resume)
			if len(w.batch) > 0 && (bytes > c.cfg.MaxBatchBytes || len(w.batch) == w.most) {
				break
			}
			n++
			r.state, r.sent = sending, true
			w.batch = append(w.batch, r)
			w.items = append(w.items, schema.DispatchItem{Attempt: r.attempt, Budget: r.left(now), TTFTBudget: r.firstLeft(now),
				Resume: r.resume, Request: r.Body})
			w.waited = append(w.waited, time.Duration(max(now-r.since, 0)))
		}
		w.sendq = append(w.sendq[:0], w.sendq[n:]...)
		if len(w.batch) == 0 {
			continue
		}
		c.number++
		w.number = c.number
		c.rd.Dispatches = append(c.rd.Dispatches, Dispatch{Worker: w.id, Number: w.number, Items: w.items, Waited: w.waited})
	}
}

// Result is how a question was answered.
type Result uint8

// The results.
const (
	Answered   Result = iota
	NoAnswer          // in time: the question is put again
	NoListener        // nobody serves the subject: the asked process may be gone
	TooLarge          // for the server: it never got there
)

// Answer is a worker's answer to a Dispatch.
type Answer struct {
	Worker   schema.WorkerID
	Number   uint64
	Result   Result
	Verdicts []schema.Verdict // if answered: Verdicts[i] is for Items[i]
}

// DispatchAnswer takes the answer to a Dispatch. One that is late, because its worker is gone, is ignored.
func (c *Core) DispatchAnswer(a Answer, now int64) {
	w := c.workers[a.Worker]
	if w == nil || w.number != a.Number {
		return
	}
	w.number = 0
	if a.Result == TooLarge && len(w.batch) == 1 {
		a.Result, a.Verdicts = Answered, []schema.Verdict{schema.VerdictInvalid}
	}
	if a.Result != Answered || len(a.Verdicts) != len(w.batch) {
		if a.Result == TooLarge { // it never left: no reason to wait
			w.most = len(w.batch) / 2
			c.unanswered(w, false, now)
			w.pause = false
			return
		}
		c.unanswered(w, a.Result == NoListener, now)
		return
	}
	w.most = 0
	w.lastSeen, w.nobodySince = max(w.lastSeen, now), 0
	for i, r := range w.batch {
		if r.state != sending || r.worker != w {
			continue // its worker has ended it already
		}
		switch a.Verdicts[i] {
		case schema.VerdictAccepted, schema.VerdictDuplicate:
			r.state = running
			if r.cancel != "" { // it crossed the dispatch
				c.cancelling = append(c.cancelling, r)
				c.askCancel(r, now)
			}
		case schema.VerdictFull:
			c.refused(r, now)
			w.blocked = true
		case schema.VerdictDraining:
			c.refused(r, now)
			w.draining = true
		case schema.VerdictStaleEpoch:
			c.rd.Deposed = true
			r.state = due // the newer scheduler's from now on
		default: // invalid, or a word that we do not know
			c.bury(r, schema.FailedInvalid, "worker "+string(w.id)+" answered "+string(a.Verdicts[i]))
		}
	}
	clear(w.batch)
	clear(w.items)
}

// refused takes a request back that its worker did not take.
func (c *Core) refused(r *request, now int64) {
	if r.cancel != "" {
		c.end(r, schema.Cancelled, string(r.cancel), "", now)
		return
	}
	c.requeue(r, false)
}

// unanswered puts a batch back in front, to be sent again as it was: the worker may have it.
func (c *Core) unanswered(w *worker, nobody bool, now int64) {
	again := make([]*request, 0, len(w.batch)+len(w.sendq))
	for _, r := range w.batch {
		if r.state == sending && r.worker == w {
			r.state = due
			again = append(again, r)
		}
	}
	w.sendq = append(again, w.sendq...)
	w.pause = true
	clear(w.batch)
	if !nobody {
		return
	}
	if w.nobodySince == 0 {
		w.nobodySince = now
	}
	if now-w.nobodySince >= int64(c.cfg.NoListenerAfter) {
		c.condemn(w, "nobody listens for dispatches", now)
	}
}
