package openai

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden with what the code writes now")

const testRequest = schema.RequestID("01890a5d-ac96-774b-bcce-b302099a8057")

func testHead(kind schema.Kind) Head {
	return Head{Kind: kind, Request: testRequest, Model: `qwen2.5 "0.5b"`, Created: time.Unix(1700000000, 999_999_999), Fingerprint: "fp_1"}
}

// golden compares got with testdata/name byte for byte.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update to accept):\n got: %s\nwant: %s", file, got, want)
	}
}

// wholeStream is a stream of every kind of event.
func wholeStream(kind schema.Kind, usage bool) []byte {
	s := NewStream(testHead(kind), usage)
	var b []byte
	n := int64(0)
	if kind == schema.KindChat {
		b = s.AppendRole(b, n)
		n++
	}
	b = s.AppendText(b, n, "Héllo")
	b = append(b, PingComment...)
	b = s.AppendText(b, n+1, " \"wörld\"\n\u2028🎈")
	b = s.AppendFinish(b, n+2, schema.FinishLength)
	if usage {
		b = s.AppendUsage(b, n+3, Usage{PromptTokens: 11, CompletionTokens: 2, CachedTokens: 8})
	}
	return append(b, Done...)
}

func TestStreamGolden(t *testing.T) {
	golden(t, "chat_stream.golden", wholeStream(schema.KindChat, false))
	golden(t, "chat_stream_usage.golden", wholeStream(schema.KindChat, true))
	golden(t, "completion_stream.golden", wholeStream(schema.KindCompletion, false))
	golden(t, "completion_stream_usage.golden", wholeStream(schema.KindCompletion, true))

	s := NewStream(testHead(schema.KindChat), true)
	broken := s.AppendError(s.AppendText(s.AppendRole(nil, 0), 1, "half an ans"), 2, WorkerLost())
	golden(t, "chat_stream_broken.golden", broken)
	if bytes.Contains(broken, []byte("[DONE]")) {
		t.Error("a broken stream has a [DONE]")
	}
}

func TestResponseGolden(t *testing.T) {
	u := Usage{PromptTokens: 11, CompletionTokens: 2}
	golden(t, "chat_response.golden", AppendResponse(nil, testHead(schema.KindChat), "Hi\tthere.", nil, schema.FinishStop, u))
	golden(t, "completion_response.golden", AppendResponse(nil, testHead(schema.KindCompletion), "", nil, schema.FinishLength, u))
	golden(t, "models.golden", AppendModels(nil, []Model{
		{ID: "a", Created: time.Unix(1, 0), OwnedBy: "cadence", ContextTokens: 4096}, {ID: "b/c", Created: time.Unix(2, 0), OwnedBy: "x"}}))
	golden(t, "models_none.golden", AppendModels(nil, nil))
}

// testLogprobs are of tokens with half a character, equal texts and extreme values.
func testLogprobs() []Logprob {
	tok := func(text string, p float32) TokenLogprob { return TokenLogprob{Token: []byte(text), Logprob: p} }
	return []Logprob{
		{TokenLogprob: tok(" \"H", -0.25), Top: []TokenLogprob{tok(" \"H", -0.25), tok("h\n", -1.5)}},
		{TokenLogprob: tok("\xf0\x9f", -9999), Top: []TokenLogprob{tok("é", -1e-7), tok("é", -3)}, Offset: 3},
		{TokenLogprob: tok("\x8e\x88", float32(math.Copysign(0, -1))), Offset: 3},
	}
}

func TestLogprobsGolden(t *testing.T) {
	u := Usage{PromptTokens: 11, CompletionTokens: 3}
	for name, kind := range map[string]schema.Kind{"chat": schema.KindChat, "completion": schema.KindCompletion} {
		golden(t, name+"_response_logprobs.golden", AppendResponse(nil, testHead(kind), " \"H🎈", testLogprobs(), schema.FinishStop, u))
		s := NewStream(testHead(kind), false)
		b := s.AppendTokens(nil, 1, " \"H", testLogprobs()[:1])
		b = s.AppendTokens(b, 2, "", testLogprobs()[1:2])
		golden(t, name+"_stream_logprobs.golden", s.AppendTokens(b, 3, "🎈", testLogprobs()[2:]))
		none := AppendResponse(nil, testHead(kind), "", []Logprob{}, schema.FinishStop, u)
		if !json.Valid(none) || !bytes.Contains(none, []byte(`"logprobs":{`)) {
			t.Errorf("no tokens: %s", none)
		}
	}
}

// errorSamples has one of every constructor.
func errorSamples() []*Error {
	return []*Error{
		InvalidJSON("it is empty"),
		InvalidParameter("stop[1]", "it is %s", "empty"),
		MissingParameter("messages[0].role"),
		Unsupported("n", "only one"),
		ContextLengthExceeded("messages", 5000, 4096),
		ModelNotFound("gpt-\"5\""),
		NotFound("GET", "/v1/nothing"),
		MethodNotAllowed("PUT", "POST, OPTIONS"),
		PayloadTooLarge(1 << 20),
		Unauthorized(),
		Refused("price", 1500*time.Millisecond),
		TenantLimited("8 concurrent requests", 0),
		Draining(5 * time.Second),
		NotReady("no worker has the model loaded", time.Second),
		DeadlineExceeded(),
		WorkerLost(),
		Internal(),
	}
}

func TestErrorGolden(t *testing.T) {
	var b []byte
	for _, e := range errorSamples() {
		b = append(b, http.StatusText(e.Status)...)
		for name, value := range e.Headers {
			b = append(b, " | "+name+": "+value...)
		}
		b = append(b, '\n')
		b = append(e.AppendJSON(b), '\n')
	}
	golden(t, "errors.golden", b)
}

// Every error body has OpenAI's four fields, whatever is in them, and says nothing twice.
func TestErrorShape(t *testing.T) {
	for _, e := range errorSamples() {
		var body map[string]map[string]any
		if err := json.Unmarshal(e.AppendJSON(nil), &body); err != nil {
			t.Fatalf("%v: %v", e, err)
		}
		obj := body["error"]
		for _, key := range []string{"message", "type", "param", "code"} {
			if _, has := obj[key]; !has {
				t.Errorf("%v: no %s", e, key)
			}
		}
		if obj["message"] != e.Message || obj["type"] != e.Type || obj["reason"] != string(e.Reason) || e.Reason == "" {
			t.Errorf("%v: %v", e, obj)
		}
		if e.Status < 400 || e.Status > 599 || e.Error() == "" {
			t.Errorf("%v: status %d", e, e.Status)
		}
	}
	if e := ModelNotFound("nope"); e.Status != 404 || e.Code != "model_not_found" || !strings.Contains(e.Message, "'nope'") {
		t.Errorf("%+v", e)
	}
	long := ModelNotFound(strings.Repeat("é", 1000))
	if len(long.Message) > 500 || !strings.Contains(long.Message, "é…'") {
		t.Errorf("a long name is not cut at a rune's edge: %q", long.Message)
	}
}

// A refusal has a Retry-After of whole seconds, at least one: a fraction is not allowed there and 0 would mean now.
func TestRetryAfter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "1", 0: "1", time.Nanosecond: "1", time.Second: "1", time.Second + 1: "2", 59500 * time.Millisecond: "60",
		48 * time.Hour: "3600", 1<<63 - 1: "3600",
	} {
		for _, e := range []*Error{Refused("queue_full", d), TenantLimited("x", d), Draining(d), NotReady("x", d)} {
			got := map[string]string{}
			for name, value := range e.Headers {
				got[name] = value
			}
			if got["Retry-After"] != want || !strings.Contains(string(e.AppendJSON(nil)), `"retry_after":`+want+`}`) {
				t.Errorf("%v after %v: %v, want %s", e.Reason, d, got, want)
			}
		}
	}
	for name := range Internal().Headers {
		t.Errorf("an internal error has a header %s", name)
	}
}

func TestEventID(t *testing.T) {
	for _, n := range []int64{0, 1, 9, 10, 1<<63 - 1} {
		id := string(AppendEventID(nil, string(testRequest), n))
		r, m, err := ParseEventID(id)
		if err != nil || r != string(testRequest) || m != n {
			t.Errorf("%s: %s %d %v", id, r, m, err)
		}
	}
	for _, id := range []string{"", "/", "a", "a/", "/1", "a/-1", "a/+1", "a/01", "a/1.0", "a/1 ", " a/1", "a/1/2", "a b/1", "a\n/1", "é/1", "a./1", "a*/1", "a>/1",
		"a/9223372036854775808", strings.Repeat("a", 200) + "/1"} {
		if r, n, err := ParseEventID(id); err == nil {
			t.Errorf("%q: accepted as %s %d", id, r, n)
		}
	}
}
