package sim

import "time"

// kind says what happens.
type kind uint8

const (
	atScheduler  kind = iota // a request is stored and read
	appended                 // the group in flight is stored
	dispatched               // a dispatch reaches its worker
	answered                 // its answer reaches the scheduler
	cancelStored             // cancel_requested of a request reaches the scheduler
	cancelSent               // a cancel reaches the worker of a request
	turn                     // a worker looks at its mail and plans
	stepped                  // a worker's step is done
	workerEnded              // the last of a request reaches its client, and the scheduler
	told                     // the scheduler's word of a request's end reaches its client
	timers                   // the next client loses its patience
	patience                 // one client's, that had some left
	ticked                   // time passes for the scheduler
	firstHeard               // the first token of a request reaches the ingress, if that has bounds
)

// event is something that will happen.
type event struct {
	at   time.Duration
	seq  uint64
	kind kind
	slot uint32 // of a request, or a worker
	gen  uint32 // of the request's slot
}

// late marks the sequence of an event that comes after all others of its time.
const late = 1 << 63

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// heap is a binary heap of events.
type heap []event

func (h *heap) push(e event) {
	s := append(*h, e)
	i := len(s) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !e.before(&s[p]) {
			break
		}
		s[i] = s[p]
		i = p
	}
	s[i] = e
	*h = s
}

// pop takes the first event out of a heap that is not empty.
func (h *heap) pop() event {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return top
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= len(s) {
			break
		}
		if c+1 < len(s) && s[c+1].before(&s[c]) {
			c++
		}
		if !s[c].before(&last) {
			break
		}
		s[i] = s[c]
		i = c
	}
	s[i] = last
	return top
}
