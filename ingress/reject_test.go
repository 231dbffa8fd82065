package ingress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

func TestClientMistakes(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	h.serve(short)
	message := func(m string) string { return `{"model":"mock-1","messages":[` + m + `]}` }
	for _, c := range []struct {
		name, path, body string
		status           int
		code, param      string
	}{
		{"no JSON", chatPath, `{"model"`, 400, "invalid_json", ""},
		{"no choices, streamed", chatPath, chatBody("a", `,"stream":true,"n":0`), 400, "invalid_value", "n"},
		{"two choices, streamed", chatPath, chatBody("a", `,"stream":true,"n":2`), 400, "unsupported_parameter", "n"},
		{"max_tokens 0", chatPath, chatBody("a", `,"max_tokens":0`), 400, "invalid_value", "max_tokens"},
		{"max_tokens -1", chatPath, chatBody("a", `,"max_tokens":-1`), 400, "invalid_value", "max_tokens"},
		{"max_tokens text", chatPath, chatBody("a", `,"max_tokens":"12"`), 400, "invalid_value", "max_tokens"},
		{"no messages", chatPath, message(""), 400, "invalid_value", "messages"},
		{"no content", chatPath, message(`{"role":"user"}`), 400, "missing_required_parameter", "messages[0].content"},
		{"unknown role", chatPath, message(`{"role":"robot","content":"a"}`), 400, "invalid_value", "messages[0].role"},
		{"logprobs", chatPath, chatBody("a", `,"logprobs":true,"top_logprobs":3`), 400, "unsupported_parameter", "logprobs"},
		{"response_format", completionPath, `{"model":"mock-1","prompt":"a","response_format":{"type":"json_object"}}`, 400, "unsupported_parameter", "response_format"},
		{"unknown model", chatPath, `{"model":"nope","messages":[{"role":"user","content":"a"}]}`, 404, "model_not_found", "model"},
		{"token outside the vocabulary", completionPath, `{"model":"mock-1","prompt":[5,32000]}`, 400, "invalid_value", "prompt[1]"},
		{"unknown path", "/v1/embeddings", `{}`, 404, "unknown_url", ""},
	} {
		res := h.post(t, c.path, c.body)
		e := res.fault(t)
		if res.StatusCode != c.status || e.Code != c.code || e.Param != c.param || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s: %d %+v, want %d %s %q", c.name, res.StatusCode, e, c.status, c.code, c.param)
		}
	}
	for name, m := range map[string]string{
		"text parts":             `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
		"assistant without text": `{"role":"user","content":"a"},{"role":"assistant","content":null},{"role":"user","content":"b"}`,
	} {
		if res := h.post(t, chatPath, message(m)); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", name, res.StatusCode, res.body)
		}
	}
	for name, headers := range map[string][]string{
		"X-SLO-E2E-Ms":      {"X-SLO-E2E-Ms", "1.5"},
		"X-SLO-Class":       {"X-SLO-Class", "gold"},
		"X-Resume-Grace-Ms": {"X-Resume-Grace-Ms", "-1"},
		"X-Tenant":          {"X-Tenant", "a.b"},
		"Content-Encoding":  {"Content-Encoding", "gzip"},
		"Last-Event-ID":     {"Last-Event-ID", "x"},
	} {
		res := h.post(t, chatPath, chatBody("a", ""), headers...)
		if e := res.fault(t); res.StatusCode/100 != 4 || e.Param != name {
			t.Errorf("bad %s: %d %+v", name, res.StatusCode, e)
		}
	}
	if res := h.get(t, chatPath); res.want(t, 405, "method_not_supported").Type == "" || res.Header.Get("Allow") == "" {
		t.Errorf("GET: %+v", res.Header)
	}
	if res := h.call(t, http.MethodDelete, completionPath, ""); res.want(t, 405, "method_not_supported").Type == "" || res.Header.Get("Allow") == "" {
		t.Errorf("DELETE: %+v", res.Header)
	}
	if st := h.in.Stats(); st.Open != 0 || st.Waiting != 0 || st.WaitingBytes != 0 {
		t.Errorf("places are lost: %+v", st)
	}
}

func TestContextIsTheWorkers(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	prompt := strings.Repeat("w ", contextTokens-1) // and the one that the vocabulary adds
	res := h.post(t, completionPath, `{"model":"mock-1","prompt":"`+prompt+`","stream":true}`)
	e := res.want(t, 400, "context_length_exceeded")
	if !strings.Contains(e.Message, strconv.Itoa(contextTokens)) || strings.Count(e.Message, strconv.Itoa(contextTokens)) < 2 || e.Param != "prompt" {
		t.Errorf("both numbers are to be named: %q", e.Message)
	}
	if ct := res.Header.Get("Content-Type"); strings.Contains(ct, "event-stream") {
		t.Errorf("content type %q", ct)
	}
	for _, c := range []struct {
		more string
		want int32
	}{
		{"", contextTokens - 4},
		{`,"max_tokens":2147483647`, contextTokens - 4},
		{`,"max_tokens":1000000000000000000`, contextTokens - 4},
		{`,"max_completion_tokens":7`, 7},
	} {
		s := h.open(t, chatPath, chatBody("a", `,"stream":true`+c.more))
		r := h.next()
		if r.MaxTokens != c.want || len(r.Prompt) != 4 {
			t.Errorf("%s: max_tokens %d after %d, want %d", c.more, r.MaxTokens, len(r.Prompt), c.want)
		}
		short(r)
		s.rest()
	}
}

func TestPromisesReachThePipeline(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.MaxGrace = 3 * time.Second
	h := start(t, cfg)
	s := h.open(t, chatPath, chatBody("a", `,"stream":true,"temperature":0,"seed":7,"stop":["END"],"ignore_eos":true`),
		"X-SLO-E2E-Ms", "60000", "X-SLO-Class", "guaranteed", "X-Resume-Grace-Ms", "99999999", "X-Tenant", "acme")
	r := h.next()
	if r.Budget <= 0 || r.Budget > time.Minute || r.Class != schema.BestEffort || r.Grace != 3*time.Second || r.Tenant != "acme" ||
		r.Sampling.Temperature != 0 || r.Sampling.Seed != 7 || len(r.Stop) != 1 || !r.IgnoreEOS {
		t.Errorf("%+v", r.Request)
	}
	short(r)
	s.rest()
	// Nobody can come back to an answer that is not streamed.
	done := make(chan struct{})
	go func() { defer close(done); h.post(t, chatPath, chatBody("a", ""), "X-Resume-Grace-Ms", "500") }()
	other := h.next()
	if other.Grace != 0 || other.Sampling.Seed == 0 {
		t.Errorf("%+v", other.Request)
	}
	short(other)
	<-done
}

func TestKeysAndOrigins(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.APIKeys = []string{"acme:k-1", "acme:k-2", "beta:k-3"}
	h := start(t, cfg)
	h.serve(short)
	for _, auth := range []string{"", "Bearer", "Bearer wrong", "Basic k-1", "k-1", "Bearer k-1,k-2"} {
		res := h.post(t, chatPath, chatBody("a", ""), "Authorization", auth, "Origin", "https://app.example")
		if res.want(t, 401, "invalid_api_key"); res.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%q: a page cannot read the error", auth)
		}
		h.get(t, "/v1/models", "Authorization", auth).want(t, 401, "invalid_api_key")
	}
	for key, tenant := range map[string]string{"k-1": "acme", "k-2": "acme", "k-3": "beta"} {
		res := h.post(t, chatPath, chatBody("a", ""), "Authorization", "Bearer "+key, "X-Tenant", "other")
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", key, res.StatusCode, res.body)
		}
		if d := h.event(schema.RequestID(res.Header.Get("X-Cadence-Request-Id")), schema.Delivered); d.Tenant != tenant {
			t.Errorf("%s: tenant %s", key, d.Tenant)
		}
	}
	pre := h.call(t, http.MethodOptions, chatPath, "", "Origin", "https://app.example", "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization,content-type,x-stainless-os")
	if pre.StatusCode != http.StatusNoContent || pre.Header.Get("Access-Control-Allow-Origin") != "*" ||
		!strings.Contains(pre.Header.Get("Access-Control-Allow-Headers"), "authorization") || !strings.Contains(pre.Header.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("preflight: %d %+v", pre.StatusCode, pre.Header)
	}
	// The operator's pages need no key.
	for _, path := range []string{"/health", "/ready", "/metrics", "/stats"} {
		if res := h.get(t, path); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	models := h.get(t, "/v1/models", "Authorization", "Bearer k-1")
	if !strings.Contains(models.body, `"id":"mock-1"`) || !strings.Contains(models.body, `"id":"team/alias"`) {
		t.Errorf("models %s", models.body)
	}
	for path, status := range map[string]int{"/v1/models/mock-1": 200, "/v1/models/team/alias": 200, "/v1/models/team%2Falias": 200, "/v1/models/nope": 404} {
		if res := h.get(t, path, "Authorization", "Bearer k-1"); res.StatusCode != status {
			t.Errorf("%s: %d %s", path, res.StatusCode, res.body)
		}
	}
}

func TestRestrictedOrigins(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.CORSOrigins = []string{"https://app.example"}
	h := start(t, cfg)
	if got := h.get(t, "/v1/models", "Origin", "https://app.example").Header.Get("Access-Control-Allow-Origin"); got != "https://app.example" {
		t.Errorf("allowed origin: %q", got)
	}
	if res := h.get(t, "/v1/models", "Origin", "https://evil.example"); res.Header.Get("Access-Control-Allow-Origin") != "" || res.Header.Get("Vary") != "Origin" {
		t.Errorf("other origin: %+v", res.Header)
	}
}

// A body over the limit is refused on its header alone; the client can read why although it is still sending.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	h.serve(short)
	c := h.dial(t)
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n", chatPath)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := readAll(t, res).want(t, 413, "payload_too_large"); !strings.Contains(e.Message, "4194304") {
		t.Errorf("the limit is not named: %q", e.Message)
	}
	// One that sends it all before it reads is not reset.
	c = h.dial(t)
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n", chatPath)
	if _, err := c.Write(make([]byte, 20_000_000)); err != nil {
		t.Errorf("sending on after the refusal: %v", err)
	}
	if res, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Fatal(err)
	}
	readAll(t, res).want(t, 413, "payload_too_large")
	big := chatBody(strings.Repeat("x", 5_000_000), "")
	h.post(t, chatPath, big).want(t, 413, "payload_too_large")
	// Without a length, the limit holds too.
	q := h.request(t, http.MethodPost, chatPath, "")
	q.Body, q.ContentLength = io.NopCloser(strings.NewReader(big)), -1
	readAll(t, h.do(t, q)).want(t, 413, "payload_too_large")
	// More than NATS takes by default, and within the limit.
	if res := h.post(t, chatPath, chatBody(strings.Repeat("x", 1_300_000), "")); res.StatusCode != http.StatusOK {
		t.Errorf("1.3 MB: %d %s", res.StatusCode, res.body)
	}
}

func (h *harness) dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", h.in.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSlowSendersAreDropped(t *testing.T) {
	cfg := config()
	cfg.HeaderTimeout, cfg.BodyTimeout = 100*time.Millisecond, 200*time.Millisecond
	h := start(t, cfg)
	for name, sent := range map[string]string{
		"nothing":       "",
		"half a header": "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n",
		"half a body":   "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{",
	} {
		c := h.dial(t)
		begin := time.Now()
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c) // until the server closes
		if err != nil || time.Since(begin) > 5*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(begin))
		}
		if sent != "" && !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
			t.Errorf("%s: %q", name, answer)
		}
	}
}

func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	h.get(t, "/v1/models", "X-Long", strings.Repeat("x", 20_000)).want(t, 431, "header_too_large")
}

func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.MaxConnections = 2
	h := startDown(t, cfg)
	kept := []net.Conn{h.dial(t), h.dial(t)}
	eventually(t, "two connections", func() bool { return h.in.Stats().Connections == 2 })
	c := h.dial(t)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := readAll(t, res).want(t, 503, "capacity"); e.RetryAfter < 1 || res.Header.Get("Retry-After") == "" {
		t.Errorf("%+v", e)
	}
	kept[0].Close()
	eventually(t, "room for another connection", func() bool { return h.in.Stats().Connections < 2 })
	if res := h.get(t, "/health"); res.StatusCode != http.StatusOK {
		t.Errorf("health: %d", res.StatusCode)
	}
}

// Twelve requests at once against one place: exactly one gets it, whoever it is, and nothing is done for the others.
func TestPlacesAreTakenAtomically(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.MaxWaiting = 1
	h := start(t, cfg)
	const n = 12
	results := make(chan reply, n)
	for range n {
		go func() { results <- h.post(t, chatPath, chatBody("a", "")) }()
	}
	for range n - 1 {
		res := streamstest.Receive(t, results)
		e := res.want(t, 503, "capacity")
		if after, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || after < 1 || e.Reason != "capacity" {
			t.Errorf("Retry-After %q, %+v", res.Header.Get("Retry-After"), e)
		}
		// It is stored before it is answered.
		id := schema.RequestID(res.Header.Get("X-Cadence-Request-Id"))
		if ev := h.event(id, schema.Refused); ev.Reason != string(schema.RefusedCapacity) || ev.RetryAfter < time.Second {
			t.Errorf("refused %+v", ev.Event)
		}
		if len(h.of(id, schema.Received)) != 1 {
			eventually(t, "received", func() bool { return len(h.of(id, schema.Received)) == 1 })
		}
	}
	r := h.next()
	r.tokens(1, 0, 1)
	// The place was for waiting: with its first token it is free again.
	eventually(t, "a free place", func() bool { return h.in.Stats().Waiting == 0 })
	go func() { results <- h.post(t, chatPath, chatBody("a", "")) }()
	short(h.next())
	if res := streamstest.Receive(t, results); res.StatusCode != http.StatusOK {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	r.finish(1, 1, schema.FinishStop)
	if res := streamstest.Receive(t, results); res.StatusCode != http.StatusOK {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	if refused := h.in.Stats().Refused[schema.RefusedCapacity]; refused != n-1 {
		t.Errorf("%d refused", refused)
	}
}

func TestWaitingBytesAreBounded(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.MaxBody, cfg.MaxWaitingBytes = 100_000, 150_000
	h := start(t, cfg)
	body := chatBody(strings.Repeat("x", 90_000), "")
	first := make(chan reply, 1)
	go func() { first <- h.post(t, chatPath, body) }()
	r := h.next()
	h.post(t, chatPath, body).want(t, 503, "capacity")
	short(r)
	if res := <-first; res.StatusCode != http.StatusOK {
		t.Errorf("%d", res.StatusCode)
	}
}

func TestWithoutWorker(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	draining := workerState()
	draining.Draining = true
	h.beat <- draining
	ready := func() int { return h.get(t, "/ready").StatusCode }
	eventually(t, "not ready", func() bool { return ready() == 503 })
	res := h.post(t, chatPath, chatBody("a", `,"stream":true`))
	if e := res.want(t, 503, "not_ready"); e.Reason != "no_worker" || res.Header.Get("Retry-After") == "" {
		t.Errorf("%+v", e)
	}
	if body := h.get(t, "/ready").body; !strings.Contains(body, `"reason":"no_worker"`) {
		t.Errorf("ready: %s", body)
	}
	if res := h.get(t, "/health"); res.StatusCode != 200 {
		t.Errorf("health: %d", res.StatusCode)
	}
	h.beat <- workerState()
	eventually(t, "ready", func() bool { return ready() == 200 })
	h.beat <- schema.WorkerState{} // silence
	eventually(t, "not ready after silence", func() bool { return ready() == 503 })
}
