package core_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
)

const pool = "p"

// start of every test's time, ns UTC.
const start = int64(1_760_000_000_000_000_000)

// failer is what a test and a property have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is what surrounds a Core: the two streams and what was asked and not answered yet. It checks what must hold at
// all times.
type world struct {
	t   failer
	cfg core.Config
	now int64
	c   *core.Core

	requests []core.Request   // REQUESTS: Seq = index + 1
	log      []*schema.Stored // EVENTS: Seq = index + 1
	fold     *schema.State    // of log
	tailed   int              // of log, seen by the Core
	settled  map[schema.RequestID]schema.Type
	sealed   map[schema.RequestID][]uint32
	wished   map[schema.RequestID]bool // cancel seen by the Core

	group      []*schema.Event // append in flight, and not stored yet
	stored     bool            // all of it, and the Core has not heard
	dispatches map[schema.WorkerID]core.Dispatch
	seals      map[schema.RequestID]core.Seal
	letters    map[schema.RequestID]core.DeadLetter
	buried     map[schema.RequestID]int
	cancels    []schema.Cancel
	chunks     map[schema.RequestID]int
	ended      map[schema.RequestID]bool // told of by this Core
	deposed    bool
}

func newWorld(t failer, cfg core.Config) *world {
	w := &world{t: t, cfg: cfg, now: start, fold: schema.NewState(), settled: map[schema.RequestID]schema.Type{},
		sealed: map[schema.RequestID][]uint32{}, buried: map[schema.RequestID]int{}, chunks: map[schema.RequestID]int{}}
	w.boot()
	return w
}

func rid(n int) schema.RequestID {
	return schema.RequestID(fmt.Sprintf("00000000-0000-7000-8000-%012d", n))
}

func num(id schema.RequestID) string {
	n, err := strconv.Atoi(string(id[24:]))
	if err != nil {
		return "?"
	}
	return strconv.Itoa(n)
}

// boot claims the pool and restores a Core from the log; what the last one had asked is lost.
func (w *world) boot() {
	w.group, w.dispatches, w.seals, w.letters = nil, map[schema.WorkerID]core.Dispatch{}, map[schema.RequestID]core.Seal{}, map[schema.RequestID]core.DeadLetter{}
	w.cancels, w.deposed, w.stored, w.ended = nil, false, false, map[schema.RequestID]bool{}
	epoch := w.write(&schema.Event{Type: schema.Epoch, Pool: pool, Source: "s"})
	c, err := core.New(w.cfg)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	st := schema.NewState()
	w.wished = map[schema.RequestID]bool{}
	for _, e := range w.log {
		st.Apply(e)
		if e.Type == schema.CancelRequested {
			w.wished[e.Request] = true
		}
	}
	w.tailed = len(w.log)
	bodies := map[schema.RequestID]core.Request{}
	for id, r := range st.Requests {
		if r.RequestSeq > 0 {
			bodies[id] = w.requests[r.RequestSeq-1]
		}
	}
	w.c = c
	c.Restore(core.Restored{State: st, Epoch: epoch, Requests: bodies, Sealed: w.sealed}, w.now)
	for _, r := range w.requests[max(0, int(st.RequestSeq[pool])-8):] {
		c.Enqueue(r, w.now)
	}
}

// write stores an event, and holds the log to its rules.
func (w *world) write(e *schema.Event) uint64 {
	w.t.Helper()
	s := &schema.Stored{Event: *e, Seq: uint64(len(w.log) + 1), StoredAt: w.now}
	s.Time = max(s.Time, 1)
	if err := s.Validate(); err != nil {
		w.t.Fatalf("%v", err)
	}
	w.log = append(w.log, s)
	if e.Type == schema.Sealed {
		w.sealed[e.Request] = append(w.sealed[e.Request], e.Attempt)
	}
	before := w.fold.Requests[e.Request]
	zombie := w.fold.Down(e.Worker)
	w.fold.Apply(s)
	if !e.Type.Terminal() || zombie {
		return s.Seq
	}
	if was, twice := w.settled[e.Request]; twice {
		w.t.Fatalf("request %s: %s by %s after %s", num(e.Request), e.Type, e.Source, was)
	}
	if !w.fold.Settled(e.Request) {
		w.t.Fatalf("request %s: %s of attempt %d by %s does not settle it at attempt %d", num(e.Request), e.Type, e.Attempt, e.Source, before.Attempt)
	}
	w.settled[e.Request] = e.Type
	return s.Seq
}

// add stores a request in REQUESTS and hands it over.
func (w *world) add(q core.Request) {
	q.Seq, q.StoredAt = uint64(len(w.requests)+1), w.now
	if q.Body == nil {
		q.Body = []byte(`{"request":` + strconv.Itoa(len(w.requests)+1) + `}`)
	}
	w.requests = append(w.requests, q)
	w.c.Enqueue(q, w.now)
}

// step takes what the Core wants to be done and says it.
func (w *world) step() (said []string) {
	w.t.Helper()
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	rd := w.c.Ready(w.now)
	if len(rd.Events) > 0 {
		if w.group != nil || w.stored {
			w.t.Fatalf("two appends in flight")
		}
		w.group = rd.Events
		for _, e := range rd.Events {
			if e.Type == schema.Dispatched && w.wished[e.Request] {
				w.t.Fatalf("request %s is bound after its cancel was seen", num(e.Request))
			}
			say("append %s", describe(e))
		}
	}
	for _, d := range rd.Dispatches {
		if _, busy := w.dispatches[d.Worker]; busy {
			w.t.Fatalf("two dispatches to %s at a time", d.Worker)
		}
		d.Items = append([]schema.DispatchItem(nil), d.Items...)
		w.dispatches[d.Worker] = d
		for i := range d.Items {
			id := w.idOf(d.Items[i].Request)
			if r := w.fold.Requests[id]; r == nil && w.settled[id] == "" || r != nil && (r.Attempt != d.Items[i].Attempt || r.Worker != d.Worker) {
				w.t.Fatalf("request %s goes to %s as attempt %d, which is not stored", num(id), d.Worker, d.Items[i].Attempt)
			}
			if v := w.c.View(id); v.State != "sending" || v.Worker != d.Worker || v.Attempt != d.Items[i].Attempt {
				w.t.Fatalf("request %s goes to %s as attempt %d while it is %+v", num(id), d.Worker, d.Items[i].Attempt, v)
			}
			say("send %s to %s%s", tag(id, d.Items[i].Attempt), d.Worker, about(d.Items[i].Budget, d.Items[i].Resume))
		}
	}
	for _, s := range rd.Seals {
		w.seals[s.Request] = s
		say("seal %s at %s", tag(s.Request, s.Attempt), s.Ingress)
	}
	for _, x := range rd.Cancels {
		w.cancels = append(w.cancels, x)
		say("cancel %s (%s)", num(x.Request), x.Reason)
	}
	for _, ch := range rd.Chunks {
		if w.settled[ch.Chunk.Request] == "" {
			w.t.Fatalf("request %s: its client hears of the end before it is stored", num(ch.Chunk.Request))
		}
		if err := ch.Chunk.Validate(); err != nil {
			w.t.Fatalf("%v", err)
		}
		if w.chunks[ch.Chunk.Request]++; w.chunks[ch.Chunk.Request] > 1 {
			w.t.Fatalf("request %s: its client hears of the end twice", num(ch.Chunk.Request))
		}
		say("tell %s of %s: %s", ch.Ingress, num(ch.Chunk.Request), strings.TrimSpace(string(ch.Chunk.Error.Code)+" "+ch.Chunk.Error.Message))
	}
	for _, d := range rd.DeadLetters {
		if d.ID == "" {
			say("dead letter of sequence %d: %s", d.Seq, d.Message)
			continue
		}
		w.letters[d.ID] = d
		say("dead letter of %s: %s, %s, %d tries", num(d.ID), d.Reason, d.Message, len(d.History))
	}
	for _, e := range rd.Ended {
		if w.ended[e.Request] || w.settled[e.Request] != e.Type {
			w.t.Fatalf("request %s: %s is told again, or for %s", num(e.Request), e.Type, w.settled[e.Request])
		}
		w.ended[e.Request] = true
	}
	for _, id := range rd.Gone {
		delete(w.dispatches, id)
		say("%s is gone", id)
	}
	if rd.Deposed && !w.deposed {
		w.deposed = true
		say("deposed")
	}
	if err := w.c.Check(); err != nil {
		w.t.Fatalf("%v", err)
	}
	w.compare()
	return said
}

func (w *world) idOf(body []byte) schema.RequestID {
	for _, r := range w.requests {
		if string(r.Body) == string(body) {
			return r.ID
		}
	}
	w.t.Fatalf("unknown body %s", body)
	return ""
}

// store stores the first n events of the append in flight.
func (w *world) store(n int) {
	for _, e := range w.group[:n] {
		w.write(e)
	}
	if w.group = w.group[n:]; len(w.group) == 0 {
		w.group, w.stored = nil, true
	}
}

// acknowledge tells the Core that the append in flight is stored, if it is.
func (w *world) acknowledge() {
	if w.stored {
		w.stored = false
		w.c.Appended()
	}
}

// tail hands the next event of the log to the Core, and reports whether there was one.
func (w *world) tail() bool {
	for w.tailed < len(w.log) {
		e := w.log[w.tailed]
		w.tailed++
		for _, t := range core.LiveTypes {
			if t == e.Type {
				w.c.Event(e, w.now)
				if t == schema.CancelRequested {
					w.wished[e.Request] = true
				}
				return true
			}
		}
	}
	return false
}

// compare holds the Core's view against the fold of the log, once both know the same.
func (w *world) compare() {
	w.t.Helper()
	if w.group != nil || w.stored || w.c.Backlog() > 0 || w.tailed < len(w.log) || len(w.letters) > 0 {
		return
	}
	unfinished := 0
	for id, r := range w.fold.Requests {
		if r.Phase == schema.PhaseUnknown {
			continue
		}
		unfinished++
		v := w.c.View(id)
		ok := v.Attempt == r.Attempt
		switch r.Phase {
		case schema.PhaseQueued:
			ok = ok && v.State == "waiting" && v.Attempt == 0
		case schema.PhaseDispatched: // waiting: refused by its worker
			ok = ok && (v.Worker == r.Worker && v.Resume == len(r.Resume) || v.State == "waiting")
		case schema.PhaseLost: // waiting: sealed
			ok = ok && (v.State == "sealing" || v.State == "waiting")
		}
		if !ok {
			w.t.Fatalf("request %s: the fold has %+v, the core %+v", num(id), *r, v)
		}
	}
	if live := w.c.Live(); len(live) != unfinished {
		w.t.Fatalf("the fold has %d unfinished requests, the core %d: %v", unfinished, len(live), live)
	}
}

func tag(id schema.RequestID, attempt uint32) string { return fmt.Sprintf("%s.%d", num(id), attempt) }

func about(budget time.Duration, resume schema.Tokens) string {
	s := ""
	if budget != 0 {
		s += fmt.Sprintf(", %v left", budget)
	}
	if len(resume) > 0 {
		s += fmt.Sprintf(", after %d tokens", len(resume))
	}
	return s
}

func describe(e *schema.Event) string {
	switch e.Type {
	case schema.WorkerUp, schema.WorkerDown:
		return fmt.Sprintf("%s %s (%s: %s)", e.Type, e.Worker, e.Reason, e.Message)
	case schema.Accepted:
		return fmt.Sprintf("accepted %s%s", num(e.Request), about(e.Budget, nil))
	case schema.Dispatched:
		return fmt.Sprintf("dispatched %s to %s%s", tag(e.Request, e.Attempt), e.Worker, about(0, e.Resume))
	case schema.Sealed:
		return fmt.Sprintf("sealed %s at %d tokens", tag(e.Request, e.Attempt), e.OutputTokens)
	}
	s := fmt.Sprintf("%s %s (%s", e.Type, tag(e.Request, e.Attempt), e.Reason)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Type == schema.Finished {
		s += fmt.Sprintf(", %d tokens", e.OutputTokens)
	}
	return s + ")"
}
