package batch

import "time"

// waiter is a sequence that waits: to start, or to start again after a preemption.
type waiter struct {
	Sequence            // Prompt is all that is to be prefilled, generated tokens included
	generated, preempts int
	cached              int  // of the first admission; -1 before it
	lost                int  // tokens that it had computed when it was preempted
	begun               bool // startedAt is set

	addedAt, startedAt, firstAt, lastAt time.Duration
}

// queue is a ring of waiters. The zero value is empty.
type queue struct {
	ring []waiter // len is 0 or a power of two
	next int      // of the head, in ring
	n    int
}

func (q *queue) len() int { return q.n }

func (q *queue) at(k int) *waiter { return &q.ring[(q.next+k)&(len(q.ring)-1)] }

func (q *queue) head() *waiter { return q.at(0) }

func (q *queue) push(w waiter) {
	if q.n == len(q.ring) {
		ring := make([]waiter, max(16, 2*len(q.ring)))
		for k := range q.n {
			ring[k] = *q.at(k)
		}
		q.ring, q.next = ring, 0
	}
	q.n++
	*q.at(q.n - 1) = w
}

// putBack inserts a preempted waiter: ahead of those that were never preempted, behind those that are older.
func (q *queue) putBack(w waiter) {
	q.push(w)
	k := q.n - 1
	for ; k > 0; k-- {
		if o := q.at(k - 1); o.preempts > 0 && o.addedAt <= w.addedAt {
			break
		}
		*q.at(k) = *q.at(k - 1)
	}
	*q.at(k) = w
}

func (q *queue) pop() {
	*q.head() = waiter{}
	q.next = (q.next + 1) & (len(q.ring) - 1)
	q.n--
}

// remove takes out the waiter with the given id, which must be there, and keeps the order of the rest.
func (q *queue) remove(id ID) waiter {
	k := 0
	for q.at(k).ID != id {
		k++
	}
	w := *q.at(k)
	for ; k > 0; k-- {
		*q.at(k) = *q.at(k - 1)
	}
	q.pop()
	return w
}
