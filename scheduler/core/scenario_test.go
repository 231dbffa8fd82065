package core_test

import (
	"bufio"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/schema/schematest"
)

var update = flag.Bool("update", false, "write what the scenarios do into testdata instead of comparing")

// Scenario files in testdata are commands, each followed by what the scheduler then wanted to be done (indented).
//
//	config KEY=VALUE…           before anything else: max_attempts, max_queue_wait, max_group, max_batch_bytes
//	worker ID [model=m slots=2 pages=0 page_tokens=16 context=0 draining=false]     a heartbeat; the first stores worker_up
//	ingress ID…                 heartbeats
//	request N… [model=m prompt=10 max=10 budget=0 grace=0 ingress=i1 class= ttft=0 late= min=0]   stored in REQUESTS, and read
//	speed ID STEP [prefill=0]   of a worker's engine
//	store                       the append in flight is stored
//	tail                        the log is read to its end
//	go                          store and tail until there is nothing more to do
//	answer WORKER VERDICT…      to the dispatch in flight; one verdict for all is enough; silent, nobody: no answer
//	finished|failed|cancelled N WORKER [attempt=1]                                  the worker stores its terminal event
//	cancel N [REASON]           the ingress stores cancel_requested
//	down WORKER                 the worker stores worker_down (drained)
//	sealed N TOKENS|finish|unknown|silent|nobody                                    the answer to a seal
//	buried N                    the dead letter is stored
//	unreadable N | unreadable none
//	tick DURATION [ID…]         time passes, with heartbeats from the named workers and ingresses
//	deaf                        the connection was lost until now
//	claim                       another scheduler claims the pool
//	restart                     a new scheduler claims the pool and folds the log
//	state                       prints what the scheduler has in hand
//
// `go test ./scheduler/core -run Scenarios -update` writes the output lines anew: read the diff.
func TestScenarios(t *testing.T) {
	schematest.Scenarios(t, "testdata/*.txt", *update, replay)
}

// script is a scenario that is being played.
type script struct {
	t       *testing.T
	w       *world
	beats   map[schema.WorkerID]*schema.WorkerState
	out     strings.Builder
	verb    string
	names   []string
	options map[string]string
}

func replay(t *testing.T, text string) string {
	s := &script{t: t, beats: map[schema.WorkerID]*schema.WorkerState{}}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "\t") {
			continue // the output of an earlier run
		}
		s.out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s.parse(line)
		if s.verb == "config" {
			s.config()
			continue
		}
		if s.w == nil {
			s.w = newWorld(t, core.DefaultConfig(pool, "s"))
		}
		s.do(line)
		for _, o := range s.w.step() {
			s.say("%s", o)
		}
		if len(s.options) > 0 {
			t.Fatalf("%q: unknown options %v", line, s.options)
		}
	}
	return s.out.String()
}

func (s *script) say(format string, args ...any) { fmt.Fprintf(&s.out, "\t"+format+"\n", args...) }

func (s *script) fatal(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n"+format, append([]any{s.out.String()}, args...)...)
}

func (s *script) parse(line string) {
	fields := strings.Fields(line)
	s.verb, s.names, s.options = fields[0], nil, map[string]string{}
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			s.options[k] = v
		} else {
			s.names = append(s.names, f)
		}
	}
}

func (s *script) option(key, def string) string {
	v, ok := s.options[key]
	delete(s.options, key)
	if !ok {
		return def
	}
	return v
}

func (s *script) int(key string, def int) int32 {
	n, err := strconv.Atoi(s.option(key, strconv.Itoa(def)))
	if err != nil {
		s.fatal("%v", err)
	}
	return int32(n)
}

func (s *script) duration(key string, def time.Duration) time.Duration {
	return parseDuration(s.t, s.option(key, def.String()))
}

func parseDuration(t *testing.T, v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (s *script) id(name string) schema.RequestID {
	n, err := strconv.Atoi(name)
	if err != nil {
		s.fatal("%v", err)
	}
	return rid(n)
}

func (s *script) config() {
	cfg := core.DefaultConfig(pool, "s")
	cfg.MaxAttempts = uint32(s.int("max_attempts", int(cfg.MaxAttempts)))
	cfg.MaxQueueWait = s.duration("max_queue_wait", cfg.MaxQueueWait)
	cfg.MaxGroup = int(s.int("max_group", cfg.MaxGroup))
	cfg.MaxBatchBytes = int(s.int("max_batch_bytes", cfg.MaxBatchBytes))
	s.w = newWorld(s.t, cfg)
}

func (s *script) do(line string) {
	w := s.w
	switch s.verb {
	case "worker":
		id := schema.WorkerID(s.names[0])
		if w.fold.Workers[id] == nil && !w.fold.Down(id) {
			w.write(&schema.Event{Type: schema.WorkerUp, Worker: id, Pool: pool, Source: string(id)})
		}
		s.beats[id] = &schema.WorkerState{Worker: id, Pool: pool, Model: s.option("model", "m"), Interval: 500 * time.Millisecond,
			Slots: s.int("slots", 2), KVPages: s.int("pages", 0), PageTokens: s.int("page_tokens", 16),
			ContextTokens: s.int("context", 0), Draining: s.option("draining", "") == "true"}
		w.c.WorkerState(s.beats[id], w.now)
	case "speed":
		w.c.SetSpeed(schema.WorkerID(s.names[0]), deadline.Speed{Step: parseDuration(s.t, s.names[1]), PrefillToken: s.duration("prefill", 0)})
	case "ingress":
		s.heartbeats(s.names)
	case "request":
		q := core.Request{Model: s.option("model", "m"), Tenant: "t", Ingress: schema.IngressID(s.option("ingress", "i1")),
			Kind: schema.KindChat, PromptTokens: s.int("prompt", 10), MaxTokens: s.int("max", 10),
			Budget: s.duration("budget", 0), Grace: s.duration("grace", 0), Class: schema.Class(s.option("class", "")),
			TTFTBudget: s.duration("ttft", 0), OnDeadline: schema.OnDeadline(s.option("late", "")), MinTokens: s.int("min", 0)}
		for _, n := range s.names {
			q.ID = s.id(n)
			w.add(q)
		}
	case "unreadable":
		q := core.Request{Seq: uint64(len(w.requests) + 1), StoredAt: w.now, Body: []byte("?")}
		if s.names[0] != "none" {
			q.ID, q.Ingress = s.id(s.names[0]), "i1"
		}
		w.requests = append(w.requests, q)
		w.c.Unreadable(q, "bad json", w.now)
	case "store":
		if w.group == nil {
			s.fatal("no append in flight")
		}
		w.store(len(w.group))
		w.acknowledge()
	case "tail":
		for w.tail() {
		}
	case "go":
		s.settle()
	case "answer":
		s.answer()
	case "finished", "failed", "cancelled":
		w.write(&schema.Event{Type: schema.Type(s.verb), Request: s.id(s.names[0]), Worker: schema.WorkerID(s.names[1]),
			Attempt: uint32(s.int("attempt", 1)), Reason: "stop", Source: s.names[1]})
	case "cancel":
		reason := "disconnect"
		if len(s.names) > 1 {
			reason = s.names[1]
		}
		w.write(&schema.Event{Type: schema.CancelRequested, Request: s.id(s.names[0]), Reason: reason, Source: "i1"})
	case "down":
		w.write(&schema.Event{Type: schema.WorkerDown, Worker: schema.WorkerID(s.names[0]), Pool: pool, Reason: string(schema.DownDrained), Source: s.names[0]})
	case "sealed":
		s.sealed()
	case "buried":
		delete(w.letters, s.id(s.names[0]))
		w.c.Buried(s.id(s.names[0]), w.now)
	case "tick":
		s.tick(parseDuration(s.t, s.names[0]), s.names[1:])
	case "deaf":
		w.c.Deaf(w.now)
	case "claim":
		w.write(&schema.Event{Type: schema.Epoch, Pool: pool, Source: "other"})
	case "restart":
		w.boot()
	case "state":
		for _, id := range w.c.Live() {
			v := w.c.View(id)
			s.say("%s %s %s", tag(id, v.Attempt), v.State, v.Worker)
		}
		st := w.c.Stats(w.now)
		s.say("%d in hand, %d waiting, oldest %v", st.Live, st.Waiting, st.Oldest)
		for _, b := range st.Workers {
			s.say("%s: %d of %d slots, %d of %d pages", b.Worker, b.InFlight, b.Slots, b.Pages, b.KVPages)
		}
	default:
		s.fatal("unknown command %q", line)
	}
}

// settle stores and tails until nothing more happens.
func (s *script) settle() {
	for more := true; more; {
		for _, o := range s.w.step() {
			s.say("%s", o)
		}
		more = s.w.tail()
		if s.w.group != nil {
			s.w.store(len(s.w.group))
			s.w.acknowledge()
			more = true
		}
	}
}

func (s *script) answer() {
	w, id := s.w, schema.WorkerID(s.names[0])
	d, ok := w.dispatches[id]
	if !ok {
		s.fatal("no dispatch to %s in flight", id)
	}
	delete(w.dispatches, id)
	a := core.Answer{Worker: id, Number: d.Number}
	switch s.names[1] {
	case "silent":
		a.Result = core.NoAnswer
	case "nobody":
		a.Result = core.NoListener
	case "large":
		a.Result = core.TooLarge
	default:
		for i := range d.Items {
			a.Verdicts = append(a.Verdicts, schema.Verdict(s.names[min(i+1, len(s.names)-1)]))
		}
	}
	w.c.DispatchAnswer(a, w.now)
}

func (s *script) sealed() {
	w, id := s.w, s.id(s.names[0])
	q, ok := w.seals[id]
	if !ok {
		s.fatal("no seal of %s in flight", s.names[0])
	}
	delete(w.seals, id)
	a := core.SealAnswer{Request: id, Attempt: q.Attempt, Reply: &schema.SealReply{}}
	switch what := s.names[1]; what {
	case "silent":
		a.Result = core.NoAnswer
	case "nobody":
		a.Result = core.NoListener
	case "unknown":
	case "finish":
		a.Reply.Known, a.Reply.Finish = true, &schema.Finish{Reason: schema.FinishStop, PromptTokens: 10, OutputTokens: 7}
	default:
		n, err := strconv.Atoi(what)
		if err != nil {
			s.fatal("%v", err)
		}
		a.Reply.Known = true
		for i := range n {
			a.Reply.Relayed = append(a.Reply.Relayed, int32(i+1))
		}
	}
	w.c.Sealed(a, w.now)
}

func (s *script) heartbeats(ids []string) {
	for _, id := range ids {
		if b := s.beats[schema.WorkerID(id)]; b != nil {
			s.w.c.WorkerState(b, s.w.now)
			continue
		}
		s.w.c.IngressState(&schema.IngressState{Ingress: schema.IngressID(id), Interval: 500 * time.Millisecond}, s.w.now)
	}
}

// tick lets time pass in steps of at most 100 ms and says when something happens.
func (s *script) tick(d time.Duration, alive []string) {
	began := s.w.now
	for left := d; left > 0; {
		step := min(left, 100*time.Millisecond)
		left -= step
		s.w.now += int64(step)
		if slices.Contains(alive, "asleep") {
			continue
		}
		s.heartbeats(alive)
		s.w.c.Tick(s.w.now)
		for _, o := range s.w.step() {
			s.say("after %v: %s", time.Duration(s.w.now-began), o)
		}
	}
	if slices.Contains(alive, "asleep") {
		s.w.c.Tick(s.w.now)
	}
}
