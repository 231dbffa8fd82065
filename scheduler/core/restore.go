package core

import (
	"cmp"
	"slices"

	"github.com/cadence-slo/cadence/schema"
)

// Restored is what a scheduler finds when it has claimed a pool.
type Restored struct {
	// State is the fold of the event log up to the claim at least. The Core keeps it and only asks it what ended earlier.
	State *schema.State
	// Epoch is the sequence of the claim.
	Epoch uint64
	// Requests are the bodies of the pool's unfinished requests that were accepted. One that is missing is gone from
	// REQUESTS.
	Requests map[schema.RequestID]Request
	// Sealed are the attempts of unfinished requests that sealed events tell of, in any order, repeated or not.
	Sealed map[schema.RequestID][]uint32
}

// Restore fills a new Core: what waits, waits again; what was dispatched is sent again as it was, which is harmless
// where it arrived before; what was lost is sealed. Workers and ingresses have their time from now to be heard.
func (c *Core) Restore(x Restored, now int64) {
	c.before, c.epoch, c.hearing, c.lastTick = x.State, x.Epoch, now, now
	for _, life := range x.State.Workers {
		if life.Pool == c.cfg.Pool {
			c.worker(life.ID, now).model = life.Model
		}
	}
	var live []*schema.RequestState
	for _, s := range x.State.Requests {
		switch {
		case s.Phase == schema.PhaseUnknown:
			if s.Cancel != "" {
				live = append(live, s)
			}
		case s.Pool == c.cfg.Pool:
			live = append(live, s)
		}
	}
	slices.SortFunc(live, func(a, b *schema.RequestState) int {
		return cmp.Or(cmp.Compare(a.RequestSeq, b.RequestSeq), cmp.Compare(a.ID, b.ID))
	})
	for _, s := range live {
		if s.Phase == schema.PhaseUnknown {
			c.orphans.add(s.ID, s.Cancel, now)
			continue
		}
		c.restore(s, x, now)
	}
	c.before.Requests, c.before.Workers = nil, nil
}

func (c *Core) restore(s *schema.RequestState, x Restored, now int64) {
	q, ok := x.Requests[s.ID]
	if !ok {
		q = Request{ID: s.ID, Tenant: s.Tenant, Ingress: s.Ingress, PromptTokens: s.PromptTokens, MaxTokens: s.MaxTokens, Seq: s.RequestSeq, StoredAt: s.AcceptedAt}
	}
	r := c.take(q, now)
	r.attempt, r.resume, r.cancel, r.since = s.Attempt, s.Resume, s.Cancel, s.AcceptedAt
	sealed := slices.Clone(x.Sealed[s.ID])
	slices.Sort(sealed)
	for _, attempt := range slices.Compact(sealed) {
		if attempt < s.Attempt { // the last one is sealed again
			r.losses++
		}
	}
	r.front = r.losses > 0
	switch {
	case !ok:
		if s.Phase == schema.PhaseDispatched {
			c.rd.Cancels = append(c.rd.Cancels, schema.Cancel{Request: s.ID, Reason: schema.CancelOperator})
		}
		c.end(r, schema.Failed, string(schema.FailedInternal), "its body is not stored any more", now)
	case s.Phase == schema.PhaseDispatched:
		w := c.worker(s.Worker, now)
		w.book(r)
		r.state, r.sent = due, true // the earlier scheduler may have sent it
		w.sendq = append(w.sendq, r)
	case r.cancel != "":
		c.end(r, schema.Cancelled, string(r.cancel), "", now)
	case s.Phase == schema.PhaseLost:
		r.state = sealing
		r.history = append(r.history, Try{Attempt: r.attempt, Worker: s.Worker, Lost: now})
		c.rd.Seals = append(c.rd.Seals, Seal{Ingress: r.Ingress, Request: r.ID, Attempt: r.attempt})
	case c.overdue(r, now):
		c.timeout(r, now)
	default:
		c.wait(r)
	}
}
