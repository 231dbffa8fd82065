package core

import (
	"cmp"
	"slices"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
)

// lane is the queue of one model: a binary heap of waiting requests, those that no worker of today could ever hold, and
// the workers that serve the model, by id.
type lane struct {
	model   string
	heap    []waiter
	parked  []*request
	workers []*worker
	speed   deadline.Speed // of the fastest of them, in each respect
	load    load
}

// join makes a worker one of the lane's, and leave no longer.
func (l *lane) join(w *worker) {
	l.workers = insertSorted(l.workers, w, workerID)
	l.measure()
}

func (l *lane) leave(w *worker) {
	l.workers = removeSorted(l.workers, w, workerID)
	l.measure()
}

// measure finds the fastest.
func (l *lane) measure() {
	l.speed = deadline.Speed{}
	for i, w := range l.workers {
		if i == 0 {
			l.speed = w.speed
		}
		l.speed = l.speed.Min(w.speed)
	}
}

// group is what goes before the rank of the order.
type group uint8

const (
	neverRan   group = 1 << iota
	bestEffort       // goes behind all that is guaranteed
	late             // goes behind all that can meet its objectives
)

func (r *request) group() (g group) {
	if !r.front {
		g |= neverRan
	}
	if r.Class != schema.Guaranteed {
		g |= bestEffort
	}
	if r.late {
		g |= late
	}
	return g
}

// waiter keeps the keys of the heap beside each other in memory: a pick in a queue of 100,000 touches 34 of them.
type waiter struct {
	group group
	rank  int64
	seq   uint64
	req   *request
}

func (a *waiter) before(b *waiter) bool {
	if a.group != b.group {
		return a.group < b.group
	}
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.seq < b.seq
}

func (l *lane) len() int { return len(l.heap) + len(l.parked) }

func (l *lane) push(r *request) {
	r.parked = false
	l.load.add(r)
	l.heap = append(l.heap, waiter{r.group(), r.rank, r.Seq, r})
	l.up(len(l.heap) - 1)
}

// remove takes a waiting request out, wherever it is.
func (l *lane) remove(r *request) {
	if r.parked {
		last := len(l.parked) - 1
		l.parked[r.place] = l.parked[last]
		l.parked[r.place].place = r.place
		l.parked[last] = nil
		l.parked = l.parked[:last]
		r.parked = false
		return
	}
	l.load.sub(r)
	i, last := r.place, len(l.heap)-1
	if i != last {
		l.heap[i] = l.heap[last]
		l.heap[i].req.place = i
	}
	l.heap[last] = waiter{}
	l.heap = l.heap[:last]
	if i != last {
		l.down(i)
		l.up(i)
	}
}

// demote puts a waiting request behind all that can meet their objectives.
func (l *lane) demote(r *request) {
	l.remove(r)
	r.late = true
	l.push(r)
}

// park takes the head out of the way of the others.
func (l *lane) park(r *request) {
	l.remove(r)
	r.parked, r.place = true, len(l.parked)
	l.parked = append(l.parked, r)
}

// unpark gives every parked request its place again: a worker may hold it now.
func (l *lane) unpark() {
	for i, r := range l.parked {
		l.push(r)
		l.parked[i] = nil
	}
	l.parked = l.parked[:0]
}

func (l *lane) up(i int) {
	w := l.heap[i]
	for i > 0 {
		p := (i - 1) / 2
		if !w.before(&l.heap[p]) {
			break
		}
		l.heap[i] = l.heap[p]
		l.heap[i].req.place = i
		i = p
	}
	l.heap[i] = w
	w.req.place = i
}

func (l *lane) down(i int) {
	w, n := l.heap[i], len(l.heap)
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && l.heap[c+1].before(&l.heap[c]) {
			c++
		}
		if !l.heap[c].before(&w) {
			break
		}
		l.heap[i] = l.heap[c]
		l.heap[i].req.place = i
		i = c
	}
	l.heap[i] = w
	w.req.place = i
}

// insertSorted puts v into a sorted slice unless an equal one is there.
func insertSorted[T any, K cmp.Ordered](s []T, v T, key func(T) K) []T {
	i, found := slices.BinarySearchFunc(s, key(v), func(e T, k K) int { return cmp.Compare(key(e), k) })
	if found {
		return s
	}
	return slices.Insert(s, i, v)
}

func removeSorted[T any, K cmp.Ordered](s []T, v T, key func(T) K) []T {
	i, found := slices.BinarySearchFunc(s, key(v), func(e T, k K) int { return cmp.Compare(key(e), k) })
	if !found {
		return s
	}
	return slices.Delete(s, i, i+1)
}
