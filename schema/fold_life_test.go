package schema

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// history is what several writers wrote in one life of the system, as it happened, and what of it is ordered: event i
// is stored after each of after[i]. All else may be stored in any order.
type history struct {
	events []Event
	after  [][]int
}

// life plays ingresses, schedulers (one a pool, each the only writer of its pool) and workers that react to each other.
// It writes the history and notes the orders that hold in any log of it:
//
//   - of one writer: as written;
//   - of cause and effect between writers: a worker runs what was stored as dispatched, a scheduler seals what a worker
//     held that was stored as down;
//   - of what the log itself decides: whether a terminal event of a worker came before its worker_down, and which of
//     two cancel requests was first. The writers went on accordingly, so that these stay as they happened.
type life struct {
	t        *rapid.T
	h        history
	last     map[string]int // each writer's last event
	requests []*lifeRequest
	workers  []*lifeWorker
}

type lifeRequest struct {
	id        RequestID
	pool      string
	ingress   string
	seq       uint64
	received  bool
	refused   bool
	admitted  bool
	delivered bool
	wish      int // its first cancel_requested; -1 is none
	wishes    int
	accepted  bool
	attempt   uint32
	owner     *lifeWorker // of the last attempt; nil while the scheduler holds it
	sealed    bool
	done      bool // a terminal event was written that counts
}

type lifeWorker struct {
	id        WorkerID
	pool      string
	draining  bool // takes nothing any more
	down      []int
	jobs      []lifeJob
	terminals []int
}

type lifeJob struct {
	r       *lifeRequest
	attempt uint32
}

// drawHistory plays a life of a few requests until all are done and every late event is written.
func drawHistory(t *rapid.T) *history {
	l := &life{t: t, last: map[string]int{}}
	pools := []string{"default", "chat"}
	for i := range rapid.IntRange(1, 6).Draw(t, "requests") {
		l.requests = append(l.requests, &lifeRequest{
			id:      RequestID(fmt.Sprintf("00000000-0000-7000-8000-%012d", i+1)),
			pool:    rapid.SampledFrom(pools).Draw(t, "pool"),
			ingress: rapid.SampledFrom([]string{"ing-1", "ing-2"}).Draw(t, "ingress"),
			seq:     uint64(i + 100), wish: -1,
		})
	}
	for _, pool := range pools {
		l.write(l.scheduler(pool), Event{Type: Epoch, Pool: pool})
	}
	for {
		actions := l.actions()
		if len(actions) == 0 {
			break
		}
		actions[rapid.IntRange(0, len(actions)-1).Draw(t, "action")]()
	}
	return &l.h
}

// write adds an event of a writer, stored after its last one and after the given ones, and returns its index.
func (l *life) write(writer string, e Event, after ...int) int {
	i := len(l.h.events)
	after = slices.Clone(after)
	if last, ok := l.last[writer]; ok {
		after = append(after, last)
	}
	e.V, e.Time, e.Source = Version, int64(i+1), writer
	if err := e.Validate(); err != nil {
		l.t.Fatalf("the model wrote an invalid event: %v", err)
	}
	l.h.events = append(l.h.events, e)
	l.h.after = append(l.h.after, after)
	l.last[writer] = i
	return i
}

func (l *life) scheduler(pool string) string { return "sched-" + pool }

func (l *life) event(r *lifeRequest, typ Type) Event {
	return Event{Type: typ, Request: r.id, Pool: r.pool, Tenant: "acme", Ingress: IngressID(r.ingress)}
}

// actions returns what could happen next. What only repeats or disturbs has a budget, so that lives end.
func (l *life) actions() (all []func()) {
	add := func(f func()) { all = append(all, f) }
	spare := len(l.h.events) < 40*len(l.requests)
	for _, r := range l.requests {
		switch {
		case !r.received:
			add(func() { l.receive(r) })
			continue
		case r.refused:
			continue
		}
		if !r.admitted {
			add(func() {
				e := l.event(r, Admitted)
				e.RequestSeq = r.seq
				l.write(r.ingress, e)
				r.admitted = true
			})
		}
		if spare && r.wishes < 2 {
			add(func() { l.wish(r, r.ingress, CancelDisconnect) })
		}
		if r.done && !r.delivered {
			add(func() {
				e := l.event(r, Delivered)
				e.Reason = string(OutcomeComplete)
				l.write(r.ingress, e)
				r.delivered = true
			})
		}
		if !r.done {
			l.schedulerActions(r, spare, add)
		}
	}
	for _, w := range l.workers {
		l.workerActions(w, spare, add)
	}
	if spare && len(all) > 0 {
		add(func() { l.storeTwice() })
		add(func() {
			pool := rapid.SampledFrom([]string{"default", "chat"}).Draw(l.t, "takeover")
			l.write(l.scheduler(pool), Event{Type: Epoch, Pool: pool})
		})
	}
	return all
}

func (l *life) receive(r *lifeRequest) {
	l.write(r.ingress, l.event(r, Received))
	r.received = true
	if rapid.IntRange(0, 7).Draw(l.t, "refused") == 0 {
		e := l.event(r, Refused)
		e.Reason = string(RefusedSLO)
		l.write(r.ingress, e)
		r.refused, r.done = true, true
	}
}

// wish writes a cancel_requested. A second one stays behind the first, of whichever writer.
func (l *life) wish(r *lifeRequest, writer string, reason CancelReason) {
	e := l.event(r, CancelRequested)
	e.Reason = string(reason)
	r.wishes++
	if r.wish >= 0 {
		l.write(writer, e, r.wish)
		return
	}
	r.wish = l.write(writer, e)
}

func (l *life) schedulerActions(r *lifeRequest, spare bool, add func(func())) {
	me := l.scheduler(r.pool)
	end := func(typ Type, reason string) {
		e := l.event(r, typ)
		e.Attempt, e.Reason = r.attempt, reason
		l.write(me, e)
		r.done = true
	}
	switch {
	case !r.accepted:
		add(func() {
			e := l.event(r, Accepted)
			e.RequestSeq, e.PromptTokens, e.MaxTokens = r.seq, 5, 7
			l.write(me, e)
			r.accepted = true
		})
	case r.owner == nil: // queued, by whatever way it came there
		for range 5 { // mostly
			add(func() { l.dispatch(r) })
		}
		if r.wish >= 0 {
			add(func() { end(Cancelled, string(CancelDisconnect)) })
		} else {
			add(func() { end(Failed, string(FailedTimeout)) })
		}
		if r.sealed { // and the ingress had it all
			add(func() { end(Finished, string(FinishStop)) })
		}
	case len(r.owner.down) > 0:
		add(func() {
			e := l.event(r, Sealed)
			e.Attempt = r.attempt
			l.write(me, e, r.owner.down[0])
			r.owner, r.sealed = nil, true
		})
	}
	if r.accepted && spare && r.wish < 0 {
		add(func() { l.wish(r, me, CancelIngressLost) })
	}
}

// dispatch gives r to a worker of its pool, perhaps to one that drains or is about to be lost.
func (l *life) dispatch(r *lifeRequest) {
	var fit []*lifeWorker
	for _, w := range l.workers {
		// The scheduler knows whom it declared lost; that a worker drained it may not have read.
		if w.pool == r.pool && (len(w.down) == 0 || (r.attempt < 4 && l.h.events[w.down[0]].Source == string(w.id))) {
			fit = append(fit, w)
		}
	}
	if len(fit) == 0 || (len(fit) < 3 && rapid.Bool().Draw(l.t, "new worker")) {
		w := &lifeWorker{id: WorkerID(fmt.Sprintf("w-%d", len(l.workers))), pool: r.pool}
		l.write(string(w.id), Event{Type: WorkerUp, Worker: w.id, Pool: w.pool, Model: "tiny"})
		l.workers = append(l.workers, w)
		fit = append(fit, w)
	}
	w := rapid.SampledFrom(fit).Draw(l.t, "worker")
	r.attempt++
	e := l.event(r, Dispatched)
	e.Attempt, e.Worker, e.Resume = r.attempt, w.id, make(Tokens, r.attempt-1)
	l.write(l.scheduler(r.pool), e)
	r.sealed = false
	switch {
	case w.draining || (r.attempt < 4 && rapid.IntRange(0, 4).Draw(l.t, "full") == 0): // not taken
	default:
		r.owner = w
		w.jobs = append(w.jobs, lifeJob{r, r.attempt})
	}
}

func (l *life) workerActions(w *lifeWorker, spare bool, add func(func())) {
	for i, job := range w.jobs {
		tell := func(typ Type, reason string) int {
			e := l.event(job.r, typ)
			e.Attempt, e.Worker, e.Reason = job.attempt, w.id, reason
			return l.write(string(w.id), e, append([]int{l.dispatchOf(job)}, w.down...)...)
		}
		if spare {
			add(func() {
				tell(rapid.SampledFrom([]Type{PrefillStarted, FirstToken, Preempted}).Draw(l.t, "progress"), "")
			})
		}
		add(func() {
			typ := rapid.SampledFrom([]Type{Finished, Failed, Cancelled}).Draw(l.t, "end")
			w.terminals = append(w.terminals, tell(typ, "stop"))
			w.jobs = slices.Delete(w.jobs, i, i+1)
			if len(w.down) == 0 {
				// Should the worker be lost now, a scheduler may seal and go on before it reads this.
				job.r.done = !spare || rapid.IntRange(0, 3).Draw(l.t, "unread") > 0
			}
		})
	}
	lost := func() {
		e := Event{Type: WorkerDown, Worker: w.id, Pool: w.pool, Reason: string(DownLost)}
		w.down = append(w.down, l.write(l.scheduler(w.pool), e, w.terminals...))
	}
	drained := func() {
		e := Event{Type: WorkerDown, Worker: w.id, Pool: w.pool, Reason: string(DownDrained)}
		w.down = append(w.down, l.write(string(w.id), e))
		w.draining = true
	}
	owns := slices.ContainsFunc(l.requests, func(r *lifeRequest) bool { return r.owner == w && !r.done })
	switch {
	case len(w.down) == 0 && (spare || owns): // owns with nothing to run: an end that was not read
		add(lost)
		if len(w.jobs) == 0 {
			add(drained)
		}
	case len(w.down) == 1 && spare:
		add(lost)
	}
}

func (l *life) dispatchOf(job lifeJob) int {
	return slices.IndexFunc(l.h.events, func(e Event) bool {
		return e.Type == Dispatched && e.Request == job.r.id && e.Attempt == job.attempt
	})
}

// storeTwice stores an event again, as a writer does that saw no acknowledgement for longer than the duplicate window.
// What it wrote since was stored after the first.
func (l *life) storeTwice() {
	i := rapid.IntRange(0, len(l.h.events)-1).Draw(l.t, "twice")
	e := l.h.events[i]
	after := []int{i}
	switch e.Type {
	case Epoch, WorkerDown:
		return // the first is never told twice, the second is a race of its own
	case Finished, Failed, Cancelled, PrefillStarted, FirstToken, Preempted:
		for _, w := range l.workers {
			if w.id == e.Worker {
				after = append(after, w.down...)
			}
		}
	}
	j := l.write(e.Source, e, after...)
	for _, w := range l.workers {
		if w.id == e.Worker && e.Type.Terminal() {
			w.terminals = append(w.terminals, j)
		}
	}
}

// order draws an order in which a log may hold the given events of the history (those before them included).
func (h *history) order(t *rapid.T, only []int) []int {
	in := make([]bool, len(h.events))
	for _, i := range only {
		in[i] = true
	}
	waits := make([]int, len(h.events))
	before := make([][]int, len(h.events))
	var ready, order []int
	for _, i := range only {
		for _, j := range h.after[i] {
			if in[j] {
				waits[i]++
				before[j] = append(before[j], i)
			}
		}
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	slices.Sort(ready)
	for len(ready) > 0 {
		k := rapid.IntRange(0, len(ready)-1).Draw(t, "next")
		i := ready[k]
		ready = slices.Delete(ready, k, k+1)
		order = append(order, i)
		for _, next := range before[i] {
			if waits[next]--; waits[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	if len(order) != len(only) {
		t.Fatalf("the history goes in circles: %d of %d events could be stored", len(order), len(only))
	}
	return order
}

// log returns the events in the given order, as a stream holds them. The store time goes with the event, so that states
// of two orders can be compared.
func (h *history) log(order []int) []Stored {
	log := make([]Stored, len(order))
	for k, i := range order {
		log[k] = Stored{Event: h.events[i], Seq: uint64(k + 1), StoredAt: int64(i + 1)}
	}
	return log
}
