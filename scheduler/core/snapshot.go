package core

import (
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// load is what waits in a lane's heap. Parked requests are not in it: nothing is done for them as long as the workers stay as they
// are.
type load struct {
	prompt, cap int64
	changes     uint64
}

func (l *load) add(r *request) {
	l.prompt += int64(r.PromptTokens)
	l.cap += int64(r.MaxTokens)
	l.changes++
}

func (l *load) sub(r *request) {
	l.prompt -= int64(r.PromptTokens)
	l.cap -= int64(r.MaxTokens)
	l.changes++
}

// Changes rises with every change of what a Snapshot would list, but for the time that passes.
func (c *Core) Changes() (n uint64) {
	for _, l := range c.order {
		n += l.load.changes
	}
	return n
}

// Snapshot sets what s says of the pool and of what waits for its workers, the slice used again: the first schema.MaxListed of all
// models in the order in which they would leave the queue, and the sums of all. Requests that no worker of today could ever hold are
// not among them. It looks at twice as many requests as it lists, however long the queue is.
func (c *Core) Snapshot(s *schema.PoolState, now int64) {
	s.Pool, s.Epoch, s.Waiting = c.cfg.Pool, c.epoch, s.Waiting[:0]
	s.WaitingRequests, s.WaitingPromptTokens, s.WaitingCapTokens = 0, 0, 0
	f := frontier{spots: c.spots[:0]}
	for _, l := range c.order {
		s.WaitingRequests += int32(len(l.heap))
		s.WaitingPromptTokens += l.load.prompt
		s.WaitingCapTokens += l.load.cap
		f.push(l, 0)
	}
	for len(f.spots) > 0 && len(s.Waiting) < schema.MaxListed {
		at := f.pop()
		s.Waiting = append(s.Waiting, at.waiter().req.sequence(now))
		f.push(at.lane, 2*at.place+1)
		f.push(at.lane, 2*at.place+2)
	}
	clear(f.spots)
	c.spots = f.spots[:0]
}

// sequence is a waiting request as a reader of states needs it.
func (r *request) sequence(now int64) schema.SequenceState {
	return schema.SequenceState{Request: r.ID, Tenant: r.Tenant, Kind: r.Kind, Class: r.Class, PromptTokens: r.PromptTokens,
		PrefillTokens: r.PromptTokens + int32(len(r.resume)), OutputTokens: int32(len(r.resume)), CapTokens: r.MaxTokens,
		Age: time.Duration(max(0, now-r.StoredAt)), Budget: r.left(now), TTFTBudget: r.firstLeft(now)}
}

// spot is a place in a lane's heap.
type spot struct {
	lane  *lane
	place int
}

func (s *spot) waiter() *waiter { return &s.lane.heap[s.place] }

// frontier holds places of heaps of which all that is above has been taken: a heap itself, its first the next in order.
type frontier struct{ spots []spot }

// push adds a place, if it is there.
func (f *frontier) push(l *lane, place int) {
	if place >= len(l.heap) {
		return
	}
	f.spots = append(f.spots, spot{l, place})
	for i := len(f.spots) - 1; i > 0; {
		p := (i - 1) / 2
		if !f.spots[i].waiter().before(f.spots[p].waiter()) {
			return
		}
		f.spots[i], f.spots[p] = f.spots[p], f.spots[i]
		i = p
	}
}

// pop takes the first out.
func (f *frontier) pop() spot {
	top, last := f.spots[0], len(f.spots)-1
	f.spots[0] = f.spots[last]
	f.spots = f.spots[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top
		}
		if c+1 < last && f.spots[c+1].waiter().before(f.spots[c].waiter()) {
			c++
		}
		if !f.spots[c].waiter().before(f.spots[i].waiter()) {
			return top
		}
		f.spots[i], f.spots[c] = f.spots[c], f.spots[i]
		i = c
	}
}
