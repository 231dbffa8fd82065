package core

import (
	"fmt"
	"slices"

	"github.com/cadence-slo/cadence/schema"
)

// View is what a Core says of one request.
type View struct {
	State   string
	Attempt uint32
	Worker  schema.WorkerID
	Resume  int
}

var stateNames = [...]string{"waiting", "binding", "due", "sending", "running", "sealing", "burying", "ending", "ended"}

// View returns what the Core says of a request; State is empty if it has none.
func (c *Core) View(id schema.RequestID) View {
	r := c.requests[id]
	if r == nil {
		return View{}
	}
	v := View{State: stateNames[r.state], Attempt: r.attempt, Resume: len(r.resume)}
	if r.worker != nil {
		v.Worker = r.worker.id
	}
	return v
}

// Check returns the first invariant that does not hold.
func (c *Core) Check() error {
	queued := 0
	for _, l := range c.order {
		queued += l.len()
		for i := range l.heap {
			r := l.heap[i].req
			if r.state != waiting || r.place != i || r.parked || l.heap[i].group != r.group() || l.heap[i].rank != r.rank || l.heap[i].seq != r.Seq {
				return fmt.Errorf("lane %s: heap[%d] is %+v of %s", l.model, i, l.heap[i], stateNames[r.state])
			}
			if i > 0 && l.heap[i].before(&l.heap[(i-1)/2]) {
				return fmt.Errorf("lane %s: heap[%d] goes before its parent", l.model, i)
			}
		}
		for i, r := range l.parked {
			if r.state != waiting || r.place != i || !r.parked {
				return fmt.Errorf("lane %s: parked[%d] is %s", l.model, i, stateNames[r.state])
			}
		}
	}
	if queued != int(c.waiting) {
		return fmt.Errorf("%d in lanes, counted %d", queued, c.waiting)
	}
	expiring := 0
	for _, r := range c.requests {
		if r.state == waiting && r.expires() {
			expiring++
		}
	}
	if expiring != c.expiring {
		return fmt.Errorf("%d in lanes end by their deadlines, counted %d", expiring, c.expiring)
	}
	booked := 0
	for _, w := range c.fleet {
		pages, promisedPages, promised := int32(0), int32(0), 0
		binds, bindsPromised := false, false
		for i, r := range w.reqs {
			if r.worker != w || r.slot != i {
				return fmt.Errorf("worker %s: booked[%d] is not its own", w.id, i)
			}
			switch r.state {
			case binding:
				if r.Class == schema.Guaranteed {
					bindsPromised = true
				} else {
					binds = true
				}
			case due, sending, running:
			default:
				return fmt.Errorf("worker %s has booked a request that is %s", w.id, stateNames[r.state])
			}
			pages += r.pages
			if r.Class == schema.Guaranteed {
				promised++
				promisedPages += r.pages
			}
		}
		booked += len(w.reqs)
		if pages != w.pages {
			return fmt.Errorf("worker %s: %d pages booked, counted %d", w.id, pages, w.pages)
		}
		if promised != w.promised || promisedPages != w.promisedPages {
			return fmt.Errorf("worker %s: %d booked and %d pages are guaranteed, counted %d and %d", w.id, promised, promisedPages, w.promised, w.promisedPages)
		}
		others, othersPages := len(w.reqs)-promised, w.pages-promisedPages
		// What earlier schedulers bound may be more than there is room for; who binds now must have had it, among its own at least.
		if bindsPromised && (promised > int(w.slots) || w.kvPages > 0 && promisedPages > w.kvPages) ||
			binds && (others > int(w.slots) || w.kvPages > 0 && othersPages > w.kvPages) {
			return fmt.Errorf("worker %s: %d and %d of %d slots and %d and %d of %d pages bound", w.id, promised, others, w.slots, promisedPages, othersPages, w.kvPages)
		}
	}
	for id, r := range c.requests {
		if id != r.ID || r.state == ended {
			return fmt.Errorf("%s is %s and still in hand", id, stateNames[r.state])
		}
		at := r.state == binding || r.state == due || r.state == sending || r.state == running
		if at != (r.worker != nil) {
			return fmt.Errorf("%s is %s with worker %v", id, stateNames[r.state], r.worker != nil)
		}
		if r.ingress != nil && r.ingress.reqs[r.seat] != r {
			return fmt.Errorf("%s sits wrongly at its ingress", id)
		}
	}
	return nil
}

// Live returns the ids of all requests in hand, sorted.
func (c *Core) Live() []schema.RequestID {
	ids := make([]schema.RequestID, 0, len(c.requests))
	for id := range c.requests {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
