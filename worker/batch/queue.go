package batch

import "time"

// rank is who goes before whom.
type rank uint8

// The ranks, first comes first.
const (
	promised rank = iota // of a Priority above 0
	ordinary
	demoted // whose deadlines cannot be kept any more
	ranks
)

// rank of a sequence that can keep its deadlines, or has none.
func (s *Sequence) rank() rank {
	if s.Priority > 0 {
		return promised
	}
	return ordinary
}

// list is the waiting list: a queue for each rank.
type list [ranks]queue

func (l *list) len() int {
	n := 0
	for r := range l {
		n += l[r].n
	}
	return n
}

// remove takes out the waiter with the given id, which must be there.
func (l *list) remove(id ID) waiter {
	for r := range l {
		if k := l[r].find(id); k >= 0 {
			return l[r].remove(k)
		}
	}
	return waiter{}
}

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

// find returns the place of the waiter with the given id, or -1.
func (q *queue) find(id ID) int {
	for k := range q.n {
		if q.at(k).ID == id {
			return k
		}
	}
	return -1
}

// remove takes out the k-th waiter, and keeps the order of the rest.
func (q *queue) remove(k int) waiter {
	w := *q.at(k)
	for ; k > 0; k-- {
		*q.at(k) = *q.at(k - 1)
	}
	q.pop()
	return w
}
