package scheduler_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// worker speaks the worker's side of the protocol. Its tokens are attempt*1000 + index, so that a splice shows.
type worker struct {
	r      *rig
	id     schema.WorkerID
	client *streams.Client
	events *streams.EventWriter
	auto   int // tokens after which a request finishes by itself; 0: the test drives it
	slots  int32

	mu      sync.Mutex
	jobs    map[schema.RequestID]*job
	seen    map[schema.RequestID]uint32 // last attempt taken
	took    int                         // attempts accepted
	answer  func(*schema.Dispatch) schema.Verdict
	epoch   uint64
	dead    bool
	taken   chan struct{} // closed at the next accepted attempt
	beating context.CancelFunc
	end     context.CancelFunc
	done    sync.WaitGroup
}

type job struct {
	attempt uint32
	request schema.Request
	have    int32
}

func (r *rig) worker(id schema.WorkerID, slots int32, auto int) *worker {
	r.t.Helper()
	w := &worker{r: r, id: id, client: r.server.Client(r.t), auto: auto, slots: slots, jobs: map[schema.RequestID]*job{}, seen: map[schema.RequestID]uint32{}, taken: make(chan struct{})}
	life, end := context.WithCancel(context.Background())
	w.end = end
	w.events = w.client.NewEventWriter(life, 10_000, nil)
	r.t.Cleanup(func() {
		w.mute()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.events.Close(ctx); err != nil && w.alive() {
			r.t.Error(err)
		}
		end()
	})
	w.emitEvent(schema.Event{Type: schema.WorkerUp})
	if _, err := w.client.ServeDispatch(id, w.take); err != nil {
		r.t.Fatal(err)
	}
	if _, err := w.client.SubscribeCancels(w.cancel); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.beating = cancel
	w.done.Go(func() { w.beat(ctx) })
	return w
}

func (w *worker) beat(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// Errors are those of a server that is down: the next one will be heard.
		_ = w.client.PublishWorkerState(&schema.WorkerState{Worker: w.id, Pool: pool, Model: model, Interval: 100 * time.Millisecond,
			Slots: w.slots, PageTokens: 16, KVPages: 100_000})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// mute ends the heartbeats.
func (w *worker) mute() {
	w.beating()
	w.done.Wait()
}

// kill ends the worker as kill -9 would: its connection is gone, and what it held with it.
func (w *worker) kill() {
	w.mute()
	w.mu.Lock()
	w.jobs, w.dead = map[schema.RequestID]*job{}, true
	w.mu.Unlock()
	w.end()
	w.client.Close()
}

func (w *worker) take(d *schema.Dispatch) *schema.DispatchReply {
	w.mu.Lock()
	defer w.mu.Unlock()
	reply := &schema.DispatchReply{Worker: w.id, Epoch: max(w.epoch, d.Epoch)}
	stale := d.Epoch < w.epoch
	w.epoch = reply.Epoch
	for i := range d.Items {
		it := &d.Items[i]
		j := &job{attempt: it.Attempt, have: int32(len(it.Resume))}
		v := schema.VerdictAccepted
		if err := schema.Decode(it.Request, &j.request); err != nil {
			v = schema.VerdictInvalid
		} else if stale {
			v = schema.VerdictStaleEpoch
		} else if w.seen[j.request.ID] >= it.Attempt {
			v = schema.VerdictDuplicate
		} else if w.answer != nil {
			v = w.answer(d)
		} else if len(w.jobs) >= int(w.slots) {
			v = schema.VerdictFull
		}
		reply.Verdicts = append(reply.Verdicts, v)
		if v != schema.VerdictAccepted {
			continue
		}
		w.seen[j.request.ID] = it.Attempt
		w.took++
		w.jobs[j.request.ID] = j
		close(w.taken)
		w.taken = make(chan struct{})
		if w.auto > 0 {
			w.generate(j.request.ID, w.auto-int(j.have))
			w.finish(j.request.ID)
		}
	}
	return reply
}

// generate sends n tokens of a request. The caller holds mu.
func (w *worker) generate(id schema.RequestID, n int) {
	j := w.jobs[id]
	for range n {
		c := &schema.Chunk{Request: id, Attempt: j.attempt, Index: j.have, IDs: schema.Tokens{int32(j.attempt)*1000 + j.have}}
		j.have++
		if err := w.client.PublishChunk(j.request.Ingress, c); err != nil {
			w.r.t.Error(err)
		}
	}
}

// finish ends a request. The caller holds mu.
func (w *worker) finish(id schema.RequestID) {
	j := w.jobs[id]
	c := &schema.Chunk{Request: id, Attempt: j.attempt, Index: j.have,
		Finish: &schema.Finish{Reason: schema.FinishStop, PromptTokens: int32(len(j.request.Prompt)), OutputTokens: j.have}}
	if err := w.client.PublishChunk(j.request.Ingress, c); err != nil {
		w.r.t.Error(err)
	}
	w.ended(id, schema.Finished, "stop")
}

func (w *worker) ended(id schema.RequestID, t schema.Type, reason string) {
	j := w.jobs[id]
	delete(w.jobs, id)
	w.emitEvent(schema.Event{Type: t, Request: id, Attempt: j.attempt, Reason: reason, OutputTokens: j.have})
}

func (w *worker) emitEvent(e schema.Event) {
	e.Time, e.Source, e.Worker, e.Pool, e.Model = time.Now().UnixNano(), string(w.id), w.id, pool, model
	if err := w.events.Emit(&e); err != nil {
		w.r.t.Error(err)
	}
}

func (w *worker) cancel(c *schema.Cancel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs[c.Request] != nil {
		w.ended(c.Request, schema.Cancelled, string(c.Reason))
	}
}

// do lets the test drive the worker.
func (w *worker) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *worker) alive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.dead
}

// waitFor waits until the worker has taken a request.
func (w *worker) waitFor(id schema.RequestID) {
	w.r.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		w.mu.Lock()
		_, ok := w.seen[id]
		taken := w.taken
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-taken:
		case <-limit.C:
			w.r.t.Fatalf("%s did not get %s within %v", w.id, id, patience)
		}
	}
}

// relay waits until a worker has a request, lets it generate n tokens and waits until the client has them.
func (in *ingress) relay(w *worker, id schema.RequestID, n int) {
	in.r.t.Helper()
	w.waitFor(id)
	w.do(func() { w.generate(id, n) })
	in.until("tokens", id, func(a *answer) bool { return len(a.tokens) == n })
}

func (w *worker) holds() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs)
}

// ingress speaks the ingress's side of the protocol.
type ingress struct {
	r       *rig
	id      schema.IngressID
	client  *streams.Client
	beating context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{}
	clients map[schema.RequestID]*answer
}

// answer is what a client has got.
type answer struct {
	tokens schema.Tokens
	sealed uint32
	finish *schema.Finish
	err    *schema.Error
}

func (r *rig) ingress(id schema.IngressID) *ingress {
	r.t.Helper()
	in := &ingress{r: r, id: id, client: r.server.Client(r.t), changed: make(chan struct{}), clients: map[schema.RequestID]*answer{}}
	if _, err := in.client.SubscribeChunks(id, in.chunk); err != nil {
		r.t.Fatal(err)
	}
	if _, err := in.client.ServeSeal(id, in.seal); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	in.beating = cancel
	in.done.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			_ = in.client.PublishIngressState(&schema.IngressState{Ingress: id, Interval: 100 * time.Millisecond})
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	r.t.Cleanup(in.mute)
	return in
}

func (in *ingress) mute() {
	in.beating()
	in.done.Wait()
}

func (in *ingress) kill() {
	in.mute()
	in.client.Close()
}

func (in *ingress) chunk(c *schema.Chunk) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.clients[c.Request]
	switch {
	case a == nil || a.finish != nil || a.err != nil:
		return
	case c.Error != nil:
		a.err = c.Error
	case c.Attempt <= a.sealed:
		return
	case c.Index != int32(len(a.tokens)):
		in.r.t.Errorf("%s: token %d after %d", c.Request, c.Index, len(a.tokens))
	default:
		a.tokens = append(a.tokens, c.IDs...)
		a.finish = c.Finish
	}
	close(in.changed)
	in.changed = make(chan struct{})
}

func (in *ingress) seal(s *schema.Seal) *schema.SealReply {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.clients[s.Request]
	if a == nil {
		return &schema.SealReply{}
	}
	a.sealed = max(a.sealed, s.Attempt)
	return &schema.SealReply{Known: true, Relayed: slices.Clone(a.tokens), Finish: a.finish}
}

// submit stores a request and returns its id.
func (in *ingress) submit(change func(*schema.Request)) schema.RequestID {
	in.r.t.Helper()
	id := newID(in.r.t)
	q := &schema.Request{ID: id, Pool: pool, Model: model, Tenant: "t", Ingress: in.id, Kind: schema.KindChat, Received: time.Now().UnixNano(),
		Prompt: schema.Tokens{1, 2, 3}, MaxTokens: 100}
	if change != nil {
		change(q)
	}
	in.mu.Lock()
	in.clients[id] = &answer{}
	in.mu.Unlock()
	body, err := schema.Encode(q)
	if err != nil {
		in.r.t.Fatal(err)
	}
	if _, err := in.client.PublishRequest(in.r.t.Context(), pool, id, body); err != nil {
		in.r.t.Fatal(err)
	}
	return id
}

// leave is what an ingress does when a client goes away.
func (in *ingress) leave(id schema.RequestID) {
	in.r.t.Helper()
	in.mu.Lock()
	delete(in.clients, id)
	in.mu.Unlock()
	e := &schema.Event{Type: schema.CancelRequested, Time: time.Now().UnixNano(), Source: string(in.id), Request: id, Pool: pool, Reason: string(schema.CancelDisconnect)}
	if _, err := in.client.PublishEvent(in.r.t.Context(), e); err != nil {
		in.r.t.Fatal(err)
	}
	if err := in.client.PublishCancel(&schema.Cancel{Request: id, Reason: schema.CancelDisconnect}); err != nil {
		in.r.t.Fatal(err)
	}
}

// until waits until a client's answer is as ok wants it, and returns a copy.
func (in *ingress) until(what string, id schema.RequestID, ok func(*answer) bool) answer {
	in.r.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		in.mu.Lock()
		a, changed := in.clients[id], in.changed
		if a != nil && ok(a) {
			defer in.mu.Unlock()
			return answer{tokens: slices.Clone(a.tokens), sealed: a.sealed, finish: a.finish, err: a.err}
		}
		in.mu.Unlock()
		select {
		case <-changed:
		case <-limit.C:
			in.r.t.Fatalf("%s of %s: not within %v", what, id, patience)
		}
	}
}

func (in *ingress) complete(id schema.RequestID) answer {
	in.r.t.Helper()
	return in.until("the whole answer", id, func(a *answer) bool { return a.finish != nil })
}

// spliced is the answer whose tokens came from these attempts: counts[i] of attempt i+1.
func spliced(counts ...int) schema.Tokens {
	var out schema.Tokens
	for i, n := range counts {
		for range n {
			out = append(out, int32(i+1)*1000+int32(len(out)))
		}
	}
	return out
}

func sameTokens(t *testing.T, got, want schema.Tokens) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("client got %v, want %v", got, want)
	}
}
