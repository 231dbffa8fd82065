package worker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/mock"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		os.Exit(child(url))
	}
	goleak.VerifyTestMain(m, streamstest.IgnoreAckWatcher())
}

// rig is a worker on a real server, and what the rest of the system sees of it.
type rig struct {
	t       testing.TB
	srv     *streamstest.Server
	client  *streams.Client // scheduler and ingress
	backend *mock.Backend
	wrap    func(*mock.Backend) worker.Backend // nil: the backend as it is
	w       *worker.Worker
	reg     *prometheus.Registry
	stop    context.CancelFunc // begins the drain
	done    chan error         // what Run returned

	mu     sync.Mutex
	cond   *sync.Cond
	chunks map[schema.RequestID][]*schema.Chunk
	events []schema.Event
	states []schema.WorkerState
}

type setting func(*worker.Config, *mock.Config)

func start(t testing.TB, set ...setting) *rig {
	t.Helper()
	r := newRig(t)
	r.run(set...)
	return r
}

// newRig starts a server and listens, without a worker.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, srv: streamstest.Start(t), chunks: map[schema.RequestID][]*schema.Chunk{}, done: make(chan error, 1)}
	r.cond = sync.NewCond(&r.mu)
	r.client = r.srv.Client(t)
	if _, err := r.client.SubscribeChunks("i1", func(c *schema.Chunk) {
		r.note(func() { r.chunks[c.Request] = append(r.chunks[c.Request], c) })
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.SubscribeWorkerStates(func(s *schema.WorkerState) { r.note(func() { r.states = append(r.states, *s) }) }); err != nil {
		t.Fatal(err)
	}
	tail, _, err := r.client.TailEvents(t.Context(), 0, schema.Types, func(e *schema.Stored, _ uint64) {
		r.note(func() { r.events = append(r.events, e.Event) })
	}, func(seq uint64, body []byte, err error) { t.Errorf("event %d: %v: %s", seq, err, body) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tail.Stop)
	return r
}

func (r *rig) run(set ...setting) {
	r.t.Helper()
	cfg, m := worker.DefaultConfig(), mock.FreeConfig()
	cfg.Pool, cfg.StepSample = "p", 1
	m.Sequences, m.KVCells, m.ContextTokens = 8, 2048, 512
	for _, s := range set {
		s(&cfg, &m)
	}
	var err error
	if r.backend, err = mock.New(m); err != nil {
		r.t.Fatal(err)
	}
	var engine worker.Backend = r.backend
	if r.wrap != nil {
		engine = r.wrap(r.backend)
	}
	r.reg = prometheus.NewRegistry()
	if r.w, err = worker.New(cfg, r.srv.Client(r.t), engine, slog.New(slog.DiscardHandler), r.reg); err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.done <- r.w.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		if err := r.ended(); err != nil {
			r.t.Errorf("worker ended: %v", err)
		}
		if n := r.backend.Cells(); n != 0 {
			r.t.Errorf("%d cells are left in the backend", n)
		}
		if err := r.backend.Close(); err != nil {
			r.t.Error(err)
		}
	})
	r.wait("worker_up", func() bool { return r.w.Ready() && r.count(schema.WorkerUp) > 0 })
}

// ended waits for Run's return, and gives its error once.
func (r *rig) ended() error {
	r.t.Helper()
	select {
	case err, ok := <-r.done:
		if ok {
			close(r.done)
		}
		return err
	case <-time.After(20 * time.Second):
		r.t.Fatal("the worker does not end")
		return nil
	}
}

func (r *rig) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.cond.Broadcast()
}

// wait returns when cond, called with r.mu held after each message, holds.
func (r *rig) wait(what string, cond func() bool) {
	r.t.Helper()
	late := false
	timer := time.AfterFunc(15*time.Second, func() { r.note(func() { late = true }) })
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		if late {
			var seen strings.Builder
			for i := range r.events {
				e := &r.events[i]
				seen.WriteString("\n" + string(e.Type) + " " + string(e.Request) + " " + string(e.Worker) + " " + e.Reason)
			}
			r.t.Fatalf("waited in vain for %s; events:%s", what, seen.String())
		}
		r.cond.Wait()
	}
}

// count is the number of events of a type. The caller holds r.mu, as in wait.
func (r *rig) count(typ schema.Type) (n int) {
	for i := range r.events {
		if r.events[i].Type == typ {
			n++
		}
	}
	return n
}

// of returns a request's events of an attempt, in the order of the log.
func (r *rig) of(id schema.RequestID, attempt uint32) (events []schema.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Request == id && e.Attempt == attempt {
			events = append(events, e)
		}
	}
	return events
}

func types(events []schema.Event) (out []schema.Type) {
	for i := range events {
		out = append(out, events[i].Type)
	}
	return out
}

// lastState returns the newest heartbeat for which ok holds, waiting for it.
func (r *rig) lastState(what string, ok func(*schema.WorkerState) bool) schema.WorkerState {
	r.t.Helper()
	var s schema.WorkerState
	r.wait(what, func() bool {
		if n := len(r.states); n > 0 {
			s = r.states[n-1]
			return ok(&s)
		}
		return false
	})
	return s
}

// metrics are the worker's: counters, gauges, and how many observations a histogram has; labels follow the name after
// slashes.
func (r *rig) metrics() map[string]float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

// idle waits until nothing is reserved, and fails the test unless the pages in use by then are those of cached prefixes.
func (r *rig) idle() {
	r.t.Helper()
	r.lastState("an idle heartbeat", func(s *schema.WorkerState) bool { return s.Running+s.Waiting == 0 && s.KVFreePages == s.KVPages })
	m := r.metrics()
	// The engine gives a room back before it counts its pages.
	for end := time.Now().Add(5 * time.Second); (m["cadence_worker_kv_used_pages"] != m["cadence_worker_kv_cached_pages"] || m["cadence_worker_running"] != 0) && time.Now().Before(end); m = r.metrics() {
		runtime.Gosched()
	}
	if m["cadence_worker_kv_reserved_pages"] != 0 || m["cadence_worker_running"] != 0 || m["cadence_worker_kv_used_pages"] != m["cadence_worker_kv_cached_pages"] {
		r.t.Errorf("with nothing to do, %v requests run, %v pages are reserved, %v used, %v cached", m["cadence_worker_running"],
			m["cadence_worker_kv_reserved_pages"], m["cadence_worker_kv_used_pages"], m["cadence_worker_kv_cached_pages"])
	}
}

func newID(t testing.TB) schema.RequestID {
	t.Helper()
	id, err := schema.NewID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return schema.RequestID(id)
}

func newRequest(t testing.TB, prompt []int32, maxTokens int32) *schema.Request {
	return &schema.Request{ID: newID(t), Pool: "p", Model: "mock", Tenant: "t", Ingress: "i1", Kind: schema.KindChat, Received: 1,
		Prompt: prompt, MaxTokens: maxTokens, Sampling: schema.Sampling{Seed: 11}}
}

func item(t testing.TB, req *schema.Request, attempt uint32, resume ...int32) schema.DispatchItem {
	t.Helper()
	body, err := schema.Encode(req)
	if err != nil {
		t.Fatal(err)
	}
	return schema.DispatchItem{Attempt: attempt, Resume: resume, Request: body}
}

func (r *rig) dispatch(epoch uint64, items ...schema.DispatchItem) []schema.Verdict {
	r.t.Helper()
	return r.dispatchTo(r.w.ID(), epoch, items...)
}

func (r *rig) dispatchTo(w schema.WorkerID, epoch uint64, items ...schema.DispatchItem) []schema.Verdict {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	reply, err := r.client.Dispatch(ctx, w, &schema.Dispatch{Pool: "p", Epoch: epoch, Items: items})
	if err != nil {
		r.t.Fatal(err)
	}
	if reply.Worker != w {
		r.t.Fatalf("%s answers for %s", reply.Worker, w)
	}
	return reply.Verdicts
}

// flush returns when the server has what the rig has sent.
func (r *rig) flush() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.client.Flush(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// accept dispatches one item that must be accepted.
func (r *rig) accept(req *schema.Request, attempt uint32, resume ...int32) {
	r.t.Helper()
	if v := r.dispatch(1, item(r.t, req, attempt, resume...)); v[0] != schema.VerdictAccepted {
		r.t.Fatalf("verdict %s", v[0])
	}
}

// answer is what an ingress makes of an attempt's chunks.
type answer struct {
	ids    []int32
	text   string
	finish *schema.Finish
	fault  *schema.Error
}

// answer waits for the end of an attempt, and checks that its chunks follow each other from index from on.
func (r *rig) answer(id schema.RequestID, attempt uint32, from int) answer {
	r.t.Helper()
	var a answer
	r.wait("the end of "+string(id), func() bool {
		a = answer{}
		for _, c := range r.chunks[id] {
			if c.Attempt != attempt {
				continue
			}
			if a.finish != nil || a.fault != nil {
				r.t.Fatalf("a chunk after the end: %+v", c)
			}
			if int(c.Index) != from+len(a.ids) {
				r.t.Fatalf("chunk at %d after %d tokens", c.Index, from+len(a.ids))
			}
			a.ids, a.text, a.finish, a.fault = append(a.ids, c.IDs...), a.text+c.Text, c.Finish, c.Error
		}
		return a.finish != nil || a.fault != nil
	})
	return a
}

// settled waits for an attempt's terminal event, and returns all of its events.
func (r *rig) settled(id schema.RequestID, attempt uint32) []schema.Event {
	r.t.Helper()
	r.wait("the terminal event of "+string(id), func() bool {
		for i := range r.events {
			if e := &r.events[i]; e.Request == id && e.Attempt == attempt && e.Type.Terminal() {
				return true
			}
		}
		return false
	})
	return r.of(id, attempt)
}

// say is what the mock says.
func say(req *schema.Request, attempt uint32, n int, resume ...int32) (ids []int32) {
	for range n {
		ids = append(ids, mock.Next(mock.FreeConfig(), req.Sampling.Seed, attempt, true, req.Prompt, resume, ids))
	}
	return ids
}

func textOf(t testing.TB, ids ...int32) string {
	t.Helper()
	var b []byte
	for _, id := range ids {
		var err error
		if b, err = (mock.Tokenizer{}).AppendPiece(b, id, false); err != nil {
			t.Fatal(err)
		}
	}
	return string(b)
}

func (a answer) check(t testing.TB, ids []int32, text string, reason schema.FinishReason) {
	t.Helper()
	if a.fault != nil || a.finish == nil || a.finish.Reason != reason {
		t.Fatalf("ended with %+v, %+v; want %s", a.finish, a.fault, reason)
	}
	if !slices.Equal(a.ids, ids) {
		t.Fatalf("tokens %v, want %v", a.ids, ids)
	}
	if a.text != text {
		t.Fatalf("text %q, want %q", a.text, text)
	}
}

// gate holds the engine's steps up until it is opened.
type gate struct {
	once sync.Once
	open chan struct{}
	at   chan struct{} // has room for one: a step has come to the gate
}

func newGate() *gate { return &gate{open: make(chan struct{}), at: make(chan struct{}, 1)} }

func (g *gate) pass() {
	select {
	case g.at <- struct{}{}:
	default:
	}
	<-g.open
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

var errBoom = errors.New("boom")
