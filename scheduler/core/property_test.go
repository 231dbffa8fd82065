package core_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

// TestMain makes histories long enough for several losses in one, unless the command line says otherwise.
func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, v := range map[string]string{"rapid.checks": "1000", "rapid.steps": "80"} {
		if !given[name] {
			if err := flag.Set(name, v); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// fakeWorker keeps to the worker's side of the protocol.
type fakeWorker struct {
	id       schema.WorkerID
	model    string
	slots    int32
	pages    int32
	alive    bool // it runs and hears dispatches
	beating  bool // its heartbeats arrive
	draining bool
	owned    map[schema.RequestID]*job
	seen     map[string]bool // attempts that it took
	outbox   []schema.Event  // not stored yet
	used     int32
	promised [2]int32                    // requests and pages that are guaranteed
	verdicts map[uint64][]schema.Verdict // by dispatch; not sent yet
}

type job struct {
	attempt uint32
	ingress schema.IngressID
	have    int32 // tokens so far, those of earlier attempts included
	pages   int32
	class   schema.Class
}

// fakeIngress keeps to the ingress's side of the protocol.
type fakeIngress struct {
	id      schema.IngressID
	alive   bool
	answers map[schema.RequestID]*answer
}

type answer struct {
	sealed   uint32
	relayed  schema.Tokens
	finished bool
}

// fleet plays every worker and ingress around a world.
type fleet struct {
	*world
	workers   map[schema.WorkerID]*fakeWorker
	ingresses map[schema.IngressID]*fakeIngress
	poison    map[schema.RequestID]bool
	requests  int
	made      int
}

func (f *fleet) hire(model string, slots, pages int32) *fakeWorker {
	f.made++
	w := &fakeWorker{id: schema.WorkerID(fmt.Sprintf("w%02d", f.made)), model: model, slots: slots, pages: pages, alive: true, beating: true,
		owned: map[schema.RequestID]*job{}, seen: map[string]bool{}, verdicts: map[uint64][]schema.Verdict{}}
	f.workers[w.id] = w
	w.outbox = append(w.outbox, schema.Event{Type: schema.WorkerUp, Worker: w.id, Pool: pool, Source: string(w.id)})
	f.flush(w, 1)
	f.beat()
	return w
}

func (f *fleet) open() *fakeIngress {
	f.made++
	in := &fakeIngress{id: schema.IngressID(fmt.Sprintf("i%02d", f.made)), alive: true, answers: map[schema.RequestID]*answer{}}
	f.ingresses[in.id] = in
	return in
}

// flush stores the next n of a worker's events.
func (f *fleet) flush(w *fakeWorker, n int) {
	for _, e := range w.outbox[:n] {
		f.write(&e)
	}
	w.outbox = w.outbox[n:]
}

func (f *fleet) beat() {
	for _, id := range slices.Sorted(maps.Keys(f.workers)) {
		if w := f.workers[id]; w.beating && f.fold.Workers[id] != nil {
			f.c.WorkerState(&schema.WorkerState{Worker: id, Pool: pool, Model: w.model, Interval: 500 * time.Millisecond, Slots: w.slots,
				Draining: w.draining, PageTokens: 16, KVPages: w.pages}, f.now)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.ingresses)) {
		if f.ingresses[id].alive {
			f.c.IngressState(&schema.IngressState{Ingress: id, Interval: 500 * time.Millisecond}, f.now)
		}
	}
}

// pass lets time pass, in steps short enough that nobody seems asleep.
func (f *fleet) pass(d time.Duration) {
	for ; d > 0; d -= 500 * time.Millisecond {
		f.now += int64(500 * time.Millisecond)
		f.beat()
		f.c.Tick(f.now)
		f.step()
	}
}

// take is what a worker does with a dispatch.
func (f *fleet) take(w *fakeWorker, d core.Dispatch) []schema.Verdict {
	var out []schema.Verdict
	for _, it := range d.Items {
		id := f.idOf(it.Request)
		q := f.world.requests[slices.IndexFunc(f.world.requests, func(q core.Request) bool { return q.ID == id })]
		key := tag(id, it.Attempt)
		pages := (q.PromptTokens + q.MaxTokens + 15) / 16
		switch {
		case f.poison[id]:
			out = append(out, schema.VerdictInvalid)
		case w.seen[key]:
			out = append(out, schema.VerdictDuplicate)
		case w.draining:
			out = append(out, schema.VerdictDraining)
		case q.Class == schema.Guaranteed && (w.promised[0] >= w.slots || w.promised[1]+pages > w.pages),
			q.Class != schema.Guaranteed && (len(w.owned) >= int(w.slots) || w.used+pages > w.pages):
			out = append(out, schema.VerdictFull)
		default:
			f.begin(w, id, it, q, pages)
			w.seen[key] = true
			out = append(out, schema.VerdictAccepted)
		}
	}
	return out
}

// begin holds a new attempt to the rules: what an earlier one may have sent was sealed, and nothing of it is lost.
func (f *fleet) begin(w *fakeWorker, id schema.RequestID, it schema.DispatchItem, q core.Request, pages int32) {
	losses := uint32(0)
	for _, o := range f.workers {
		for n := uint32(1); n < it.Attempt; n++ {
			if !o.seen[tag(id, n)] {
				continue
			}
			if losses++; losses >= f.cfg.MaxAttempts {
				f.t.Fatalf("request %s: attempt %d starts after %d losses", num(id), it.Attempt, losses)
			}
			if a := f.ingresses[q.Ingress].answers[id]; a != nil && (a.sealed < n || len(a.relayed) != len(it.Resume)) {
				f.t.Fatalf("request %s: attempt %d starts after %d tokens, attempt %d is sealed up to %d with %d relayed", num(id), it.Attempt, len(it.Resume), n, a.sealed, len(a.relayed))
			}
		}
	}
	w.owned[id] = &job{it.Attempt, q.Ingress, int32(len(it.Resume)), pages, q.Class}
	w.used += pages
	if q.Class == schema.Guaranteed {
		w.promised[0]++
		w.promised[1] += pages
	}
}

// emit gives a request its next token, or ends it. What does not reach the ingress now comes with the next, or never.
func (f *fleet) emit(w *fakeWorker, id schema.RequestID, finish, reach bool) {
	j := w.owned[id]
	if !finish {
		j.have++
	}
	if a := f.ingresses[j.ingress].answers[id]; a != nil && f.ingresses[j.ingress].alive && j.attempt > a.sealed && reach {
		for len(a.relayed) < int(j.have) {
			a.relayed = append(a.relayed, int32(j.attempt))
		}
		a.finished = finish
	}
	if finish {
		f.end(w, id, schema.Finished, "stop")
	}
}

func (f *fleet) end(w *fakeWorker, id schema.RequestID, t schema.Type, reason string) {
	j := w.owned[id]
	delete(w.owned, id)
	w.used -= j.pages
	if j.class == schema.Guaranteed {
		w.promised[0]--
		w.promised[1] -= j.pages
	}
	w.outbox = append(w.outbox, schema.Event{Type: t, Request: id, Attempt: j.attempt, Worker: w.id, Pool: pool, Reason: reason, Source: string(w.id)})
}

func (f *fleet) answerDispatch(id schema.WorkerID, result core.Result) {
	d := f.dispatches[id]
	w := f.workers[id]
	a := core.Answer{Worker: id, Number: d.Number, Result: result}
	if !w.alive {
		a.Result = max(a.Result, core.NoAnswer)
	} else if a.Result == core.Answered {
		if a.Verdicts = w.verdicts[d.Number]; a.Verdicts == nil {
			a.Verdicts = f.take(w, d)
		}
	}
	delete(f.dispatches, id)
	f.c.DispatchAnswer(a, f.now)
}

func (f *fleet) answerSeal(id schema.RequestID, result core.Result) {
	s := f.seals[id]
	in := f.ingresses[s.Ingress]
	a := core.SealAnswer{Request: id, Attempt: s.Attempt, Result: result}
	if !in.alive {
		a.Result = max(a.Result, core.NoAnswer)
	} else if result == core.Answered {
		a.Reply = &schema.SealReply{}
		if x := in.answers[id]; x != nil {
			x.sealed = max(x.sealed, s.Attempt)
			a.Reply.Known, a.Reply.Relayed = true, slices.Clone(x.relayed)
			if x.finished {
				a.Reply.Finish = &schema.Finish{Reason: schema.FinishStop, OutputTokens: int32(len(x.relayed))}
			}
		}
	}
	delete(f.seals, id)
	f.c.Sealed(a, f.now)
}

func pick[K ~string, V any](t *rapid.T, label string, m map[K]V) (K, bool) {
	if len(m) == 0 {
		return "", false
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, label), true
}

// Whatever happens, in whatever order, with whatever is lost: every request gets exactly one settling terminal event, no
// attempt starts before the earlier ones are sealed, nobody is bound beyond a worker's room or after its cancel, and the
// Core's view is the fold of its events. The checks stand in world and fleet; here is what happens.
func TestAnyHistoryEndsEveryRequestOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := core.DefaultConfig(pool, "s")
		cfg.MaxAttempts = rapid.Uint32Range(1, 4).Draw(t, "max_attempts")
		cfg.MaxGroup = rapid.IntRange(2, 6).Draw(t, "max_group")
		cfg.MaxQueueWait = rapid.SampledFrom([]time.Duration{0, 20 * time.Second, 10 * time.Minute}).Draw(t, "max_queue_wait")
		f := &fleet{world: newWorld(t, cfg), workers: map[schema.WorkerID]*fakeWorker{}, ingresses: map[schema.IngressID]*fakeIngress{},
			poison: map[schema.RequestID]bool{}}
		f.hire("m", 2, 20)
		f.open()
		t.Repeat(f.actions())
		f.drain()
	})
}

var onDeadline = []schema.OnDeadline{"", schema.OnDeadlineDemote, schema.OnDeadlineContinue, schema.OnDeadlineCancel}

func (f *fleet) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"request": func(t *rapid.T) {
			id, ok := pick(t, "ingress", f.ingresses)
			in := f.ingresses[id]
			if !ok || !in.alive {
				t.Skip()
			}
			f.requests++
			q := core.Request{ID: rid(f.requests), Model: rapid.SampledFrom([]string{"m", "m", "m", "n"}).Draw(t, "model"), Tenant: "t", Ingress: id, Kind: schema.KindChat,
				PromptTokens: rapid.Int32Range(1, 200).Draw(t, "prompt"), MaxTokens: rapid.Int32Range(1, 100).Draw(t, "max"),
				Budget: time.Duration(rapid.IntRange(0, 5).Draw(t, "budget")) * time.Second, TTFTBudget: time.Duration(rapid.IntRange(0, 2).Draw(t, "ttft")) * time.Second,
				Class: rapid.SampledFrom([]schema.Class{"", schema.BestEffort, schema.Guaranteed}).Draw(t, "class"), OnDeadline: rapid.SampledFrom(onDeadline).Draw(t, "late")}
			f.poison[q.ID] = rapid.IntRange(0, 15).Draw(t, "poison") == 0
			in.answers[q.ID] = &answer{}
			f.add(q)
		},
		"store": func(t *rapid.T) {
			if f.group == nil {
				t.Skip()
			}
			f.store(rapid.IntRange(1, len(f.group)).Draw(t, "n"))
		},
		"append answers": func(t *rapid.T) {
			if !f.stored {
				t.Skip()
			}
			f.acknowledge()
		},
		"store and die": func(t *rapid.T) {
			if n := len(f.group); n > 0 {
				f.store(rapid.IntRange(0, n).Draw(t, "stored"))
			}
			f.boot() // also if the append was stored and not answered
			for _, w := range f.workers {
				clear(w.verdicts) // nobody waits for these answers
			}
			// What the log holds now may be heard before the first Ready.
			for range rapid.IntRange(0, 2).Draw(t, "events") {
				switch rapid.IntRange(0, 2).Draw(t, "event") {
				case 0:
					f.leave(t)
				case 1:
					if w := f.workers[f.anyWorker(t)]; !f.fold.Down(w.id) {
						f.write(&schema.Event{Type: schema.WorkerDown, Worker: w.id, Pool: pool, Reason: string(schema.DownLost), Source: "another"})
					}
				}
				f.tail()
			}
		},
		"speed": func(t *rapid.T) {
			f.c.SetSpeed(f.anyWorker(t), deadline.Speed{Step: time.Duration(rapid.IntRange(0, 50).Draw(t, "step")) * time.Millisecond,
				PrefillToken: time.Duration(rapid.IntRange(0, 5).Draw(t, "prefill")) * time.Millisecond})
		},
		"all goes well": func(*rapid.T) {
			for range 3 {
				f.step()
				f.round()
			}
		},
		"tail": func(t *rapid.T) {
			if !f.tail() {
				t.Skip()
			}
		},
		"dispatch": func(t *rapid.T) {
			id, ok := pick(t, "worker", f.dispatches)
			if !ok {
				t.Skip()
			}
			result := rapid.SampledFrom([]core.Result{core.Answered, core.Answered, core.Answered, core.NoAnswer, core.NoListener}).Draw(t, "result")
			if w := f.workers[id]; result == core.NoAnswer && w.alive && rapid.Bool().Draw(t, "arrived") {
				f.take(w, f.dispatches[id]) // only the answer is lost
			}
			f.answerDispatch(id, result)
		},
		"dispatch arrives": func(t *rapid.T) {
			id, ok := pick(t, "worker", f.dispatches)
			w := f.workers[id]
			if !ok || !w.alive || w.verdicts[f.dispatches[id].Number] != nil {
				t.Skip()
			}
			w.verdicts[f.dispatches[id].Number] = f.take(w, f.dispatches[id]) // and is answered later
		},
		"seal": func(t *rapid.T) {
			id, ok := pick(t, "request", f.seals)
			if !ok {
				t.Skip()
			}
			f.answerSeal(id, rapid.SampledFrom([]core.Result{core.Answered, core.Answered, core.NoAnswer, core.NoListener}).Draw(t, "result"))
		},
		"bury": func(t *rapid.T) {
			id, ok := pick(t, "request", f.letters)
			if !ok {
				t.Skip()
			}
			f.bury(id)
		},
		"generate": func(t *rapid.T) {
			w := f.workers[f.anyWorker(t)]
			id, ok := pick(t, "request", w.owned)
			if !ok || !w.alive {
				t.Skip()
			}
			f.emit(w, id, rapid.IntRange(0, 3).Draw(t, "finish") == 0, rapid.IntRange(0, 9).Draw(t, "reach") < 7)
		},
		"worker stores": func(t *rapid.T) {
			if w := f.workers[f.anyWorker(t)]; len(w.outbox) > 0 {
				f.flush(w, 1)
			}
		},
		"worker hears a cancel": func(t *rapid.T) {
			if len(f.cancels) == 0 {
				t.Skip()
			}
			x := f.cancels[0]
			f.cancels = f.cancels[1:]
			if rapid.Bool().Draw(t, "lost") {
				return
			}
			f.hear(x)
		},
		"client leaves": f.leave,
		"worker dies": func(t *rapid.T) {
			w := f.workers[f.anyWorker(t)]
			w.alive, w.beating = false, false
			w.owned = map[schema.RequestID]*job{}
			w.outbox = w.outbox[:rapid.IntRange(0, len(w.outbox)).Draw(t, "in flight")]
		},
		"worker falls silent": func(t *rapid.T) { f.workers[f.anyWorker(t)].beating = false },
		"worker drains": func(t *rapid.T) {
			if w := f.workers[f.anyWorker(t)]; !w.draining {
				w.draining = true
			} else if len(w.owned) == 0 && len(w.outbox) == 0 && w.alive {
				w.alive, w.beating = false, false
				w.outbox = append(w.outbox, schema.Event{Type: schema.WorkerDown, Worker: w.id, Pool: pool, Reason: string(schema.DownDrained), Source: string(w.id)})
			}
		},
		"worker starts": func(t *rapid.T) {
			f.hire(rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model"), rapid.Int32Range(1, 3).Draw(t, "slots"), rapid.Int32Range(1, 30).Draw(t, "pages"))
		},
		"ingress dies": func(t *rapid.T) {
			id, _ := pick(t, "ingress", f.ingresses)
			f.ingresses[id].alive = rapid.IntRange(0, 3).Draw(t, "survives") > 0
		},
		"ingress starts": func(*rapid.T) { f.open() },
		"time passes": func(t *rapid.T) {
			f.pass(time.Duration(rapid.IntRange(1, 10).Draw(t, "steps")) * 500 * time.Millisecond)
		},
		"": func(*rapid.T) { f.step() },
	}
}

func (f *fleet) leave(t *rapid.T) {
	id, _ := pick(t, "ingress", f.ingresses)
	in := f.ingresses[id]
	q, ok := pick(t, "request", in.answers)
	if !ok || !in.alive {
		return
	}
	delete(in.answers, q)
	f.write(&schema.Event{Type: schema.CancelRequested, Request: q, Reason: "disconnect", Source: string(id)})
}

func (f *fleet) anyWorker(t *rapid.T) schema.WorkerID {
	id, _ := pick(t, "worker", f.workers)
	return id
}

func (f *fleet) hear(x schema.Cancel) {
	for _, id := range slices.Sorted(maps.Keys(f.workers)) {
		if w := f.workers[id]; w.alive && w.owned[x.Request] != nil {
			f.end(w, x.Request, schema.Cancelled, string(x.Reason))
		}
	}
}

func (f *fleet) bury(id schema.RequestID) {
	f.buried[id]++
	delete(f.letters, id)
	f.c.Buried(id, f.now)
}

// round answers what was asked: the log, and dispatches.
func (f *fleet) round() {
	for f.tail() {
	}
	if f.group != nil {
		f.store(len(f.group))
	}
	f.acknowledge()
	for _, id := range slices.Sorted(maps.Keys(f.dispatches)) {
		f.answerDispatch(id, core.Answered)
	}
}

// drain lets everything come to its end: nothing more is lost, and there are good workers for all.
func (f *fleet) drain() {
	f.t.Helper()
	f.hire("m", 4, 100)
	f.hire("n", 4, 100)
	for round := 0; ; round++ {
		f.step()
		f.round()
		for _, id := range slices.Sorted(maps.Keys(f.seals)) {
			result := core.Answered
			if !f.ingresses[f.seals[id].Ingress].alive {
				result = core.NoListener
			}
			f.answerSeal(id, result)
		}
		for _, id := range slices.Sorted(maps.Keys(f.letters)) {
			f.bury(id)
		}
		for _, x := range f.cancels {
			f.hear(x)
		}
		f.cancels = nil
		for _, id := range slices.Sorted(maps.Keys(f.workers)) {
			w := f.workers[id]
			for _, q := range slices.Sorted(maps.Keys(w.owned)) {
				// What nobody waits for only ends by a cancel.
				if in := f.ingresses[w.owned[q].ingress]; w.alive {
					f.emit(w, q, round%3 == 2 && in.alive && in.answers[q] != nil, true)
				}
			}
			f.flush(w, len(w.outbox))
		}
		f.pass(500 * time.Millisecond)
		if len(f.c.Live()) == 0 && f.tailed == len(f.log) && f.group == nil {
			break
		}
		if round > 400 {
			f.t.Fatalf("not drained: %v", f.c.Live())
		}
	}
	for _, q := range f.world.requests {
		if f.settled[q.ID] == "" {
			f.t.Fatalf("request %s has no terminal event", num(q.ID))
		}
	}
	for id, r := range f.fold.Requests {
		if r.Phase != schema.PhaseUnknown {
			f.t.Fatalf("request %s is left in the fold: %+v", num(id), *r)
		}
	}
	for _, b := range f.c.Stats(f.now).Workers {
		if b.InFlight != 0 || b.Pages != 0 {
			f.t.Fatalf("worker %s still books %d requests and %d pages", b.Worker, b.InFlight, b.Pages)
		}
	}
}
