package ingress_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, streamstest.IgnoreAckWatcher(),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // one for the process, for ever
		// Of each server; it sees only after 10 s of sleep that it is to stop.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

const (
	modelName     = "mock-1"
	contextTokens = 256
	pool          = "main"
)

// words tokenizes one token a word. The first one marks what a vocabulary would add.
type words struct{}

func (words) Tokenize(text string, addSpecial, _ bool) ([]int32, error) {
	var ids []int32
	if addSpecial {
		ids = append(ids, 1)
	}
	for w := range strings.FieldsSeq(text) {
		h := uint32(2166136261)
		for i := range len(w) {
			h = (h ^ uint32(w[i])) * 16777619
		}
		ids = append(ids, int32(2+h%30000))
	}
	return ids, nil
}

const template = `{% for m in messages %}<|{{ m.role }}|> {{ m.content }}
{% endfor %}<|assistant|>`

func mockModel() ingress.Model {
	return ingress.Model{Name: modelName, Aliases: []string{"team/alias"}, Tokenizer: words{}, ChatTemplate: template,
		ContextTokens: 4096, VocabTokens: 32000, Created: time.Unix(1_700_000_000, 0)}
}

// pipeline is a scheduler and a worker in one, as the protocol has them, scripted by the test.
type pipeline struct {
	t      testing.TB
	client *streams.Client
	// runs has each stored request, in order.
	runs   chan *run
	beat   chan schema.WorkerState // the state to send from now on
	cancel chan schema.Cancel

	mu     sync.Mutex
	events []*schema.Stored
	known  map[schema.RequestID]*run
}

// run is one stored request.
type run struct {
	p *pipeline
	schema.Request
	seq       uint64
	cancelled chan schema.CancelReason
}

func workerState() schema.WorkerState {
	return schema.WorkerState{Worker: "w1", Pool: pool, Model: modelName, Interval: 100 * time.Millisecond, Slots: 64, ContextTokens: contextTokens, PageTokens: 16, KVPages: 1000}
}

func startPipeline(t testing.TB, client *streams.Client) *pipeline {
	p := &pipeline{t: t, client: client, runs: make(chan *run, 4096), beat: make(chan schema.WorkerState), cancel: make(chan schema.Cancel, 4096), known: map[schema.RequestID]*run{}}
	tail, err := client.TailRequests(t.Context(), pool, 0, func(q streams.StoredRequest) {
		r := &run{p: p, seq: q.Seq, cancelled: make(chan schema.CancelReason, 16)}
		if err := schema.Decode(q.Body, &r.Request); err != nil {
			t.Error(err)
			return
		}
		p.mu.Lock()
		p.known[r.ID] = r
		p.mu.Unlock()
		p.runs <- r
	})
	if err != nil {
		t.Fatal(err)
	}
	events, _, err := client.TailEvents(t.Context(), 0, nil, func(e *schema.Stored, _ uint64) {
		p.mu.Lock()
		p.events = append(p.events, e)
		p.mu.Unlock()
	}, func(seq uint64, _ []byte, err error) { t.Errorf("event %d: %v", seq, err) })
	if err != nil {
		t.Fatal(err)
	}
	cancels, err := client.SubscribeCancels(func(c *schema.Cancel) {
		p.cancel <- *c
		p.mu.Lock()
		r := p.known[c.Request]
		p.mu.Unlock()
		if r != nil {
			select {
			case r.cancelled <- c.Reason:
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		state := workerState()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if state.Worker != "" {
				_ = client.PublishWorkerState(&state)
			}
			select {
			case <-stop:
				return
			case state = <-p.beat:
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		tail.Stop()
		events.Stop()
		_ = cancels.Unsubscribe()
	})
	return p
}

// serve answers every request with its text until the test ends.
func (p *pipeline) serve(answer func(*run)) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case r := <-p.runs:
				wg.Go(func() { answer(r) })
			case <-stop:
				return
			}
		}
	})
	p.t.Cleanup(func() { close(stop); wg.Wait() })
}

// next returns the next stored request.
func (p *pipeline) next() *run {
	p.t.Helper()
	return streamstest.Receive(p.t, p.runs)
}

// of returns the events of a request, of the given types, in stored order.
func (p *pipeline) of(id schema.RequestID, types ...schema.Type) (list []*schema.Stored) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		for _, t := range types {
			if e.Request == id && e.Type == t {
				list = append(list, e)
			}
		}
	}
	return list
}

// event waits for an event of a request.
func (p *pipeline) event(id schema.RequestID, typ schema.Type) *schema.Stored {
	p.t.Helper()
	var found *schema.Stored
	eventually(p.t, fmt.Sprintf("%s of %s", typ, id), func() bool {
		if list := p.of(id, typ); len(list) > 0 {
			found = list[0]
		}
		return found != nil
	})
	return found
}

// word is the text of a token: it tells request, attempt and index.
func (r *run) word(attempt uint32, i int32) string {
	return fmt.Sprintf("%s.%d.%d ", r.ID[len(r.ID)-6:], attempt, i)
}

func (r *run) words(attempt uint32, from, to int32) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(r.word(attempt, i))
	}
	return b.String()
}

func (r *run) publish(c *schema.Chunk) {
	c.Request = r.ID
	if err := r.p.client.PublishChunk(r.Ingress, c); err != nil {
		r.p.t.Error(err)
	}
}

// tokens sends the tokens [from, to), one a chunk.
func (r *run) tokens(attempt uint32, from, to int32) {
	for i := from; i < to; i++ {
		r.publish(&schema.Chunk{Attempt: attempt, Index: i, IDs: schema.Tokens{i}, Text: r.word(attempt, i)})
	}
}

// flush returns when NATS has what the pipeline sent.
func (p *pipeline) flush(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// finish ends the answer after n tokens.
func (r *run) finish(attempt uint32, n int32, reason schema.FinishReason) {
	r.publish(&schema.Chunk{Attempt: attempt, Index: n, Finish: &schema.Finish{Reason: reason, PromptTokens: int32(len(r.Prompt)), CachedTokens: 2, OutputTokens: n}})
}

// short answers with up to 8 tokens, as the request bounds them.
func short(r *run) {
	n, reason := min(r.MaxTokens, 8), schema.FinishStop
	if n == r.MaxTokens {
		reason = schema.FinishLength
	}
	r.tokens(1, 0, n)
	r.finish(1, n, reason)
}

// harness is an ingress with everything around it.
type harness struct {
	*pipeline
	nats   *streamstest.Server
	in     *ingress.Server
	url    string
	stop   context.CancelFunc
	result chan error
}

func config() ingress.Config {
	cfg := ingress.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Pool = pool
	cfg.Heartbeat = 50 * time.Millisecond
	cfg.Watch = 20 * time.Millisecond
	cfg.DrainTimeout = 10 * time.Second
	cfg.KeepAlive = time.Hour // a comment would take what is late along
	return cfg
}

func start(t testing.TB, cfg ingress.Config) *harness {
	t.Helper()
	h := startDown(t, cfg)
	eventually(t, "readiness", func() bool { return h.get(t, "/ready").StatusCode == http.StatusOK })
	return h
}

// startModels serves other models.
func startModels(t testing.TB, cfg ingress.Config, models ...ingress.Model) *harness {
	t.Helper()
	nats := streamstest.Start(t)
	h := startOn(t, cfg, nats.Client(t), nats.Client(t), models...)
	eventually(t, "readiness", func() bool { return h.get(t, "/ready").StatusCode == http.StatusOK })
	return h
}

// startDown does not wait for readiness.
func startDown(t testing.TB, cfg ingress.Config) *harness {
	t.Helper()
	nats := streamstest.Start(t)
	h := startOn(t, cfg, nats.Client(t), nats.Client(t), mockModel())
	h.nats = nats
	return h
}

// newServer makes an ingress.
func newServer(t testing.TB, cfg ingress.Config, client *streams.Client, models ...ingress.Model) *ingress.Server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("INGRESS_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	in, err := ingress.New(cfg, ingress.Deps{Client: client, Models: models, Registry: prometheus.NewRegistry(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// startOn has a client for the pipeline and one for the ingress.
func startOn(t testing.TB, cfg ingress.Config, mine, its *streams.Client, models ...ingress.Model) *harness {
	t.Helper()
	h := &harness{result: make(chan error, 1)}
	h.pipeline = startPipeline(t, mine)
	in := newServer(t, cfg, its, models...)
	h.in = in
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	ready := make(chan struct{})
	go func() { h.result <- in.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-h.result:
		t.Fatal(err)
	}
	h.url = "http://" + in.Addr().String()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-h.result:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("ingress did not stop within 20s")
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return h
}

// eventually polls until ok, for at most 10 s.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no %s within 10s", what)
		}
	}
}

func (h *harness) do(t testing.TB, q *http.Request) *http.Response {
	t.Helper()
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func (h *harness) request(t testing.TB, method, path, body string, headers ...string) *http.Request {
	t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	q, err := http.NewRequestWithContext(ctx, method, h.url+path, rd)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	return q
}

// reply is a response that was read to its end.
type reply struct {
	*http.Response
	body string
}

func (h *harness) call(t testing.TB, method, path, body string, headers ...string) reply {
	t.Helper()
	return readAll(t, h.do(t, h.request(t, method, path, body, headers...)))
}

func readAll(t testing.TB, res *http.Response) reply {
	t.Helper()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("body after %q: %v", b, err)
	}
	return reply{res, string(b)}
}

func (h *harness) get(t testing.TB, path string, headers ...string) reply {
	t.Helper()
	return h.call(t, http.MethodGet, path, "", headers...)
}

func (h *harness) post(t testing.TB, path, body string, headers ...string) reply {
	t.Helper()
	return h.call(t, http.MethodPost, path, body, headers...)
}

// metric is the value of a counter without labels.
func (h *harness) metric(t testing.TB, name string) (n int) {
	t.Helper()
	for line := range strings.Lines(h.get(t, "/metrics").body) {
		if _, err := fmt.Sscanf(line, name+" %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"
)

func chatBody(content, more string) string {
	q, _ := json.Marshal(content)
	return `{"model":"` + modelName + `","messages":[{"role":"user","content":` + string(q) + `}]` + more + `}`
}

// apiError is OpenAI's error object.
type apiError struct {
	Message, Type, Param, Code, Reason string
	RetryAfter                         int `json:"retry_after"`
}

// fault reads the error of a response.
func (r reply) fault(t testing.TB) apiError {
	t.Helper()
	var v struct{ Error *apiError }
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || v.Error == nil {
		t.Fatalf("status %d, no error object in %q: %v", r.StatusCode, r.body, err)
	}
	return *v.Error
}

// want fails unless the response is an error of that status and code.
func (r reply) want(t testing.TB, status int, code string) apiError {
	t.Helper()
	e := r.fault(t)
	if r.StatusCode != status || e.Code != code {
		t.Fatalf("status %d, %+v, want %d %s", r.StatusCode, e, status, code)
	}
	return e
}
