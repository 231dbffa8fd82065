package ingress_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/schema"
)

func TestChatStream(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	s := h.open(t, chatPath, chatBody("one two three", `,"stream":true,"max_tokens":5`), "X-Request-Id", "mine/1 ")
	r := h.next()
	if r.Kind != schema.KindChat || r.Tenant != "default" || r.Pool != pool || r.MaxTokens != 5 || r.Ingress != h.in.ID() || len(r.Prompt) != 6 {
		t.Fatalf("request %+v", r.Request)
	}
	if got := s.res.Header.Get("X-Request-Id"); got != "mine/1" {
		t.Errorf("X-Request-Id %q", got)
	}
	if ct := s.res.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
		t.Errorf("content type %q", ct)
	}
	first := s.next()
	if !strings.Contains(first.data, `"role":"assistant"`) || first.id != string(r.ID)+"/0" {
		t.Fatalf("first event %+v", first)
	}
	for i := range int32(5) { // each token comes when it is there, not later
		r.tokens(1, i, i+1)
		if got := s.next().text(t); got != r.word(1, i) {
			t.Fatalf("token %d: %q", i, got)
		}
	}
	r.finish(1, 5, schema.FinishLength)
	events, _ := s.rest()
	if len(events) != 2 || !strings.Contains(events[0].data, `"finish_reason":"length"`) || events[0].id != string(r.ID)+"/6" || events[1].data != "[DONE]" {
		t.Fatalf("end %+v", events)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	d := h.event(r.ID, schema.Delivered)
	if d.Reason != string(schema.OutcomeComplete) || d.OutputTokens != 5 || d.PromptTokens != 6 || d.TTFT <= 0 || d.E2E < d.TTFT || !d.Stream {
		t.Errorf("delivered %+v", d.Event)
	}
	if rec := h.event(r.ID, schema.Received); rec.ClientRequest != "mine/1" || rec.PromptTokens != 6 {
		t.Errorf("received %+v", rec.Event)
	}
	if adm := h.event(r.ID, schema.Admitted); adm.RequestSeq != r.seq {
		t.Errorf("admitted %+v, stored at %d", adm.Event, r.seq)
	}
}

func TestUsageOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	h.serve(short)
	for _, path := range []string{chatPath, completionPath} {
		prompt := `"prompt":"a b c"`
		if path == chatPath {
			prompt = `"messages":[{"role":"user","content":"a b c"}]`
		}
		plain, _ := h.open(t, path, `{"model":"mock-1",`+prompt+`,"stream":true,"max_tokens":20}`).rest()
		for _, e := range plain {
			if strings.Contains(e.data, `"usage":{`) {
				t.Errorf("%s: usage without being asked: %s", path, e.data)
			}
		}
		events, _ := h.open(t, path, `{"model":"mock-1",`+prompt+`,"stream":true,"max_tokens":20,"stream_options":{"include_usage":true}}`).rest()
		n := len(events)
		var v struct {
			Choices []any
			Usage   map[string]any
		}
		if err := json.Unmarshal([]byte(events[n-2].data), &v); err != nil {
			t.Fatal(err)
		}
		if events[n-1].data != "[DONE]" || v.Choices == nil || len(v.Choices) != 0 || v.Usage["completion_tokens"] != 8.0 ||
			!reflect.DeepEqual(v.Usage["prompt_tokens_details"], map[string]any{"cached_tokens": 2.0}) {
			t.Errorf("%s: end of stream %+v", path, events[n-2:])
		}
	}
}

func TestWholeAnswer(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	h.serve(short)
	res := h.post(t, chatPath, chatBody("a b", `,"max_completion_tokens":3`))
	var v struct {
		ID, Object, Model string
		Choices           []struct {
			Message      struct{ Role, Content string }
			FinishReason string `json:"finish_reason"`
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Total      int `json:"total_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(res.body), &v); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s: %v", res.StatusCode, res.body, err)
	}
	id := schema.RequestID(res.Header.Get("X-Cadence-Request-Id"))
	r := &run{Request: schema.Request{ID: id}}
	c := v.Choices[0]
	if v.ID != "chatcmpl-"+string(id) || v.Object != "chat.completion" || c.Message.Content != r.words(1, 0, 3) || c.FinishReason != "length" ||
		v.Usage.Completion != 3 || v.Usage.Prompt != 5 || v.Usage.Total != 8 || v.Usage.Details.Cached != 2 {
		t.Fatalf("%+v", v)
	}
	if d := h.event(id, schema.Delivered); d.Reason != string(schema.OutcomeComplete) || d.Stream || d.TTFT <= 0 {
		t.Errorf("delivered %+v", d.Event)
	}
	// Another name of the model is echoed.
	if res := h.post(t, completionPath, `{"model":"team/alias","prompt":[5,6,7]}`); !strings.Contains(res.body, `"model":"team/alias"`) {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}

// A failure after the stream has begun is told in the stream, which then has no [DONE]; before it, by a status.
func TestFailure(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	for _, c := range []struct {
		code   schema.FailureCode
		status int
		want   string
	}{
		{schema.FailedEngine, 500, "internal_error"},
		{schema.FailedWorkerLost, 502, "worker_lost"},
		{schema.FailedTimeout, 503, "timeout"},
		{schema.FailedCancelled, 503, "cancelled"},
	} {
		fail := func(r *run) {
			r.tokens(1, 0, 2)
			r.publish(&schema.Chunk{Attempt: 0, Index: 0, Error: &schema.Error{Code: c.code, Message: "secret detail"}})
		}
		s := h.open(t, chatPath, chatBody("x", `,"stream":true`))
		r := h.next()
		fail(r)
		events, text := s.rest()
		lastOne := events[len(events)-1]
		if text != r.words(1, 0, 2) || !strings.Contains(lastOne.data, `"code":"`+c.want+`"`) || strings.Contains(lastOne.data, "secret") || s.err != nil {
			t.Errorf("%s, streamed: %q, then %q, %v", c.code, text, lastOne.data, s.err)
		}
		if d := h.event(r.ID, schema.Delivered); d.Reason != string(schema.OutcomeError) {
			t.Errorf("%s: delivered %+v", c.code, d.Event)
		}
		got := make(chan reply, 1)
		go func() { got <- h.post(t, chatPath, chatBody("x", "")) }()
		fail(h.next())
		res := <-got
		if e := res.want(t, c.status, c.want); c.status == 503 && c.want == "timeout" && (res.Header.Get("Retry-After") == "" || e.RetryAfter < 1) {
			t.Errorf("%s: no Retry-After: %+v", c.code, res.Header)
		}
	}
}

func TestCompletionHeaderComesBeforeTheFirstToken(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	// open returns when the header is here; no token was sent.
	s := h.open(t, completionPath, `{"model":"mock-1","prompt":"a","stream":true,"max_tokens":2}`)
	r := h.next()
	r.tokens(1, 0, 2)
	r.finish(1, 2, schema.FinishStop)
	events, text := s.rest()
	if text != r.words(1, 0, 2) || events[0].id != string(r.ID)+"/0" {
		t.Fatalf("%q %+v", text, events)
	}
}
