package core

import "github.com/cadence-slo/cadence/schema"

// ingress is one ingress's life as far as it owns requests here.
type ingress struct {
	id       schema.IngressID
	lastSeen int64
	interval int64
	lost     bool // its requests were asked to be cancelled
	reqs     []*request
}

func ingressID(in *ingress) schema.IngressID { return in.id }

// IngressState takes an ingress's heartbeat.
func (c *Core) IngressState(s *schema.IngressState, now int64) {
	in := c.ingress(s.Ingress, now)
	in.lastSeen, in.interval, in.lost = now, int64(s.Interval), false
}

func (c *Core) ingress(id schema.IngressID, now int64) *ingress {
	in := c.ingresses[id]
	if in == nil {
		in = &ingress{id: id, lastSeen: now}
		c.ingresses[id] = in
		c.fronts = insertSorted(c.fronts, in, ingressID)
	}
	return in
}

// attach makes an ingress the owner of a request. One that was lost is given its time once more: the request may have
// been on its way.
func (in *ingress) attach(r *request, now int64) {
	if in.lost {
		in.lost, in.lastSeen = false, now
	}
	r.ingress, r.seat = in, len(in.reqs)
	in.reqs = append(in.reqs, r)
}

func (r *request) detach() {
	in := r.ingress
	if in == nil {
		return
	}
	last := len(in.reqs) - 1
	in.reqs[r.seat] = in.reqs[last]
	in.reqs[r.seat].seat = r.seat
	in.reqs[last] = nil
	in.reqs = in.reqs[:last]
	r.ingress = nil
}

// orphan is the wish to cancel a request that is not known: it is on its way, or was never stored.
type orphan struct {
	id     schema.RequestID
	reason schema.CancelReason
	at     int64
}

// orphans are kept in order of arrival, so that the oldest are forgotten first.
type orphans struct {
	reasons map[schema.RequestID]schema.CancelReason
	order   []orphan
}

func (o *orphans) add(id schema.RequestID, reason schema.CancelReason, now int64) {
	if _, ok := o.reasons[id]; ok {
		return
	}
	o.reasons[id] = reason
	o.order = append(o.order, orphan{id, reason, now})
}

// take returns and forgets the wish for a request; empty if there is none.
func (o *orphans) take(id schema.RequestID) schema.CancelReason {
	reason := o.reasons[id]
	delete(o.reasons, id)
	return reason
}

func (o *orphans) forget(before int64) {
	n := 0
	for n < len(o.order) && o.order[n].at < before {
		delete(o.reasons, o.order[n].id)
		n++
	}
	if n > 0 {
		o.order = append(o.order[:0], o.order[n:]...)
	}
}

// graves remembers the last ids that ended, so that late copies of their messages do not bring them back.
type graves[ID comparable] struct {
	ids  map[ID]struct{}
	ring []ID
	next int
}

// graveyard is as many as schema.State remembers.
const graveyard = 1 << 16

func newGraves[ID comparable]() graves[ID] { return graves[ID]{ids: map[ID]struct{}{}} }

func (g *graves[ID]) has(id ID) bool { _, ok := g.ids[id]; return ok }

func (g *graves[ID]) add(id ID) {
	if g.has(id) {
		return
	}
	g.ids[id] = struct{}{}
	if len(g.ring) < graveyard {
		g.ring = append(g.ring, id)
		return
	}
	delete(g.ids, g.ring[g.next])
	g.ring[g.next] = id
	g.next = (g.next + 1) % graveyard
}
