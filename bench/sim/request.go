package sim

import (
	"encoding/binary"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
)

// keepPrompts is how many prompts of waiting requests are kept in memory; others are drawn again when they are needed.
const keepPrompts = 4096

// request is a request from its arrival until nobody has anything to do with it.
type request struct {
	slot, gen uint32
	id        schema.RequestID
	rec       record.Request
	tenant    string
	class     schema.Class
	prompt    []int32 // nil: with the planner, or to be drawn again
	maxNew    int     // tokens that it may generate
	output    int     // that it will
	budget    time.Duration
	first     time.Duration // the budget of the first token

	before, next *request // of those that are queued

	open    bool // its client waits
	queued  bool // admitted, and not at a worker
	inCore  bool // the scheduler has not settled it
	unheard bool // the gate counts it as waiting for its first token

	worker    *worker // nil: at none
	at        int     // in worker.reqs
	pages     int
	attempt   uint32
	atWorker  time.Duration // since
	left      deadline.Left // of the objectives then
	started   time.Duration // -1: not yet
	fed       int           // tokens in the cache
	feed      int           // that it must have before it decodes
	generated int
	preempted uint32
	firstAt   time.Duration // token, at the worker
	lastAt    time.Duration // token, at the worker; before the first, the arrival

	terminal schema.Event
	fault    schema.FailureCode
}

// newRequest takes a slot.
func (s *sim) newRequest() *request {
	if n := len(s.free); n > 0 {
		r := s.slots[s.free[n-1]]
		s.free = s.free[:n-1]
		*r = request{slot: r.slot, gen: r.gen + 1}
		return r
	}
	r := &request{slot: uint32(len(s.slots))}
	s.slots = append(s.slots, r)
	return r
}

// release forgets a request that nobody has anything to do with any more.
func (s *sim) release(r *request) {
	if r.open || r.inCore || r.queued || r.worker != nil {
		return
	}
	delete(s.live, r.id)
	r.prompt = nil
	r.gen++ // what is still to happen to it does not
	s.free = append(s.free, r.slot)
}

// queue counts a request as waiting.
func (s *sim) queue(r *request) {
	r.queued = true
	if r.before = s.last; r.before == nil {
		s.first = r
	} else {
		r.before.next = r
	}
	s.last = r
	s.waiting++
	s.waitingPrompt += r.rec.PromptTokens
	s.waitingCap += r.maxNew
	if s.keptPrompts < keepPrompts {
		s.keptPrompts++
	} else {
		r.prompt = nil
	}
}

// unqueue counts a request as waiting no more.
func (s *sim) unqueue(r *request) {
	r.queued = false
	if r.before == nil {
		s.first = r.next
	} else {
		r.before.next = r.next
	}
	if r.next == nil {
		s.last = r.before
	} else {
		r.next.before = r.before
	}
	r.before, r.next = nil, nil
	s.waiting--
	s.waitingPrompt -= r.rec.PromptTokens
	s.waitingCap -= r.maxNew
	if r.prompt != nil {
		s.keptPrompts--
	}
}

// needPrompt draws a prompt again that was not kept.
func (s *sim) needPrompt(r *request) {
	if r.prompt == nil {
		r.prompt = s.cfg.Source.Request(r.rec.Index).Prompt
	}
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// token is the n-th token of an answer.
func token(seed uint64, index, n int) int32 {
	return int32(mix(mix(seed^uint64(index)<<20)+uint64(n)) >> 33)
}

// bits is what the ids of a run are made of.
type bits struct{ seed, index uint64 }

// Read implements io.Reader for the ten bytes of an id.
func (b bits) Read(p []byte) (int, error) {
	var raw [16]byte
	x := mix(b.seed + 0x6964)
	binary.LittleEndian.PutUint64(raw[:], mix(x^b.index))
	binary.LittleEndian.PutUint64(raw[8:], mix(x+mix(b.index)))
	return copy(p, raw[:]), nil
}

// fifo is a queue of clients in the order in which they lose their patience. Only its head is in the heap.
type fifo struct {
	ring []limit // len is 0 or a power of two
	next int
	n    int
}

type limit struct {
	at        time.Duration
	slot, gen uint32
}

func (q *fifo) push(l limit) {
	if q.n == len(q.ring) {
		ring := make([]limit, max(64, 2*len(q.ring)))
		for k := range q.n {
			ring[k] = q.ring[(q.next+k)&(len(q.ring)-1)]
		}
		q.ring, q.next = ring, 0
	}
	q.ring[(q.next+q.n)&(len(q.ring)-1)] = l
	q.n++
}

func (q *fifo) head() *limit { return &q.ring[q.next] }

func (q *fifo) pop() {
	q.next = (q.next + 1) & (len(q.ring) - 1)
	q.n--
}
