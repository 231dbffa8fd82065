package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cadence-slo/cadence/schema"
)

// event is what a client makes of one server-sent event.
type event struct{ id, data string }

// readEvents parses a stream by the rules of the event-stream format.
func readEvents(t *testing.T, stream []byte) (events []event) {
	t.Helper()
	var e event
	for _, line := range strings.Split(string(stream), "\n") {
		switch {
		case line == "":
			if e.data != "" {
				events = append(events, e)
			}
			e = event{}
		case strings.HasPrefix(line, ":"):
		case strings.HasPrefix(line, "id: "):
			e.id = line[len("id: "):]
		case strings.HasPrefix(line, "data: "):
			if e.data != "" {
				t.Fatalf("two data lines: %q", line)
			}
			e.data = line[len("data: "):]
		default:
			t.Fatalf("not a line of an event: %q", line)
		}
	}
	return events
}

type chunk struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Index        *int
		Text         *string
		Delta        *struct{ Role, Content *string }
		FinishReason *string `json:"finish_reason"`
		Logprobs     json.RawMessage
	}
	Usage json.RawMessage
}

// A usage chunk comes only when asked for, with empty choices and right before [DONE].
func TestStreamOrder(t *testing.T) {
	for _, kind := range []schema.Kind{schema.KindChat, schema.KindCompletion} {
		for _, usage := range []bool{false, true} {
			events := readEvents(t, wholeStream(kind, usage))
			last := len(events) - 1
			if events[last].data != "[DONE]" || events[last].id != "" {
				t.Fatalf("%s: last event %+v", kind, events[last])
			}
			text := ""
			for i, e := range events[:last] {
				if _, n, err := ParseEventID(e.id); err != nil || n != int64(i) {
					t.Errorf("%s: event %d has id %q", kind, i, e.id)
				}
				var c chunk
				if err := json.Unmarshal([]byte(e.data), &c); err != nil {
					t.Fatalf("%s: %v in %s", kind, err, e.data)
				}
				isUsage := usage && i == last-1
				if want := map[bool]int{true: 0, false: 1}[isUsage]; c.Choices == nil || len(c.Choices) != want {
					t.Errorf("%s: choices of %s", kind, e.data)
				}
				if got := string(c.Usage); isUsage != strings.HasPrefix(got, "{") || !usage && got != "" || usage && !isUsage && got != "null" {
					t.Errorf("%s: usage of %s", kind, e.data)
				}
				for _, ch := range c.Choices {
					if ch.Index == nil || *ch.Index != 0 || ch.Logprobs != nil {
						t.Errorf("%s: %s", kind, e.data)
					}
					if (ch.FinishReason != nil) != strings.Contains(e.data, `"`+string(schema.FinishLength)+`"`) {
						t.Errorf("%s: finish reason of %s", kind, e.data)
					}
					if ch.Text != nil {
						text += *ch.Text
					}
					if ch.Delta != nil && ch.Delta.Content != nil {
						text += *ch.Delta.Content
					}
					if first := kind == schema.KindChat && i == 0; first != (ch.Delta != nil && ch.Delta.Role != nil) {
						t.Errorf("%s: role of %s", kind, e.data)
					}
				}
			}
			if text != "Héllo \"wörld\"\n\u2028🎈" {
				t.Errorf("%s: text %q", kind, text)
			}
		}
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                             `""`,
		"plain é 汉 🎈 \x7f":             "\"plain é 汉 🎈 \x7f\"",
		"\"\\/":                        `"\"\\/"`,
		"\x00\x01\x1f\b\f\n\r\t":       `"\u0000\u0001\u001f\b\f\n\r\t"`,
		"a\u2028b\u2029c\u2027d\u202a": `"a\u2028b\u2029c` + "\u2027d\u202a\"",
		"\xff":                         `"\ufffd"`,
		"a\xc3":                        `"a\ufffd"`,
		"\xf0\x9f\x8e":                 `"\ufffd\ufffd\ufffd"`,
		"\xf0\x9f\x8eé":                `"\ufffd\ufffd\ufffdé"`,
		"\ufffd":                       "\"\ufffd\"",
		"<script>&":                    `"<script>&"`,
	} {
		if got := string(AppendString([]byte("x"), in)); got != "x"+want {
			t.Errorf("%q: %s, want %s", in, got[1:], want)
		}
	}
}

// What a client decodes from an event is the text that went in.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\\n", "é\u2028\u2029", "\xf0\x9f\x8e", "data: x\n\nid: 1", "\x00\x1f\x7f"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, isChat bool) {
		kind := schema.KindCompletion
		if isChat {
			kind = schema.KindChat
		}
		events := readEvents(t, NewStream(testHead(kind), false).AppendText(nil, 7, text))
		if len(events) != 1 {
			t.Fatalf("%d events", len(events))
		}
		var c chunk
		if err := json.Unmarshal([]byte(events[0].data), &c); err != nil {
			t.Fatal(err)
		}
		got := c.Choices[0].Text
		if isChat {
			got = c.Choices[0].Delta.Content
		}
		// encoding/json replaces invalid bytes one by one, as AppendString does.
		viaJSON, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var want string
		if err := json.Unmarshal(viaJSON, &want); err != nil {
			t.Fatal(err)
		}
		if *got != want || utf8.ValidString(text) && want != text {
			t.Fatalf("got %q, want %q", *got, want)
		}
	})
}

// checkCommon holds for every accepted request.
func checkCommon(t *testing.T, c Common) {
	t.Helper()
	if c.Model == "" || c.MaxTokens < 0 || c.IncludeUsage && !c.Stream || len(c.Stop) > DefaultLimits().Stops {
		t.Fatalf("accepted %+v", c)
	}
	if err := c.Sampling.Validate(); err != nil || c.Sampling.TopP == 0 || c.Sampling.RepetitionPenalty == 0 {
		t.Fatalf("accepted %+v: %v", c.Sampling, err)
	}
	for _, s := range c.Stop {
		if s == "" {
			t.Fatal("accepted an empty stop string")
		}
	}
}

func checkError(t *testing.T, err *Error) {
	t.Helper()
	if err.Status != 400 && err.Status != 413 || err.Message == "" || err.Reason == "" || err.Type != TypeInvalidRequest {
		t.Fatalf("%+v", err)
	}
	if !json.Valid(err.AppendJSON(nil)) {
		t.Fatalf("%s", err.AppendJSON(nil))
	}
}

// A body is either refused with a message, or is JSON in which encoding/json sees the same messages.
func FuzzParseChat(f *testing.F) {
	for _, s := range []string{"", "{", chat(""), chat(`"max_tokens":1e18,"stop":["a"],"stream":true,"stream_options":{"include_usage":true}`),
		chat(`"n":2`), `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d\ude00"}]},{"role":"assistant","content":null}]}`,
		chat(`"seed":-1,"top_p":1e-50,"logit_bias":{"1":2}`), `{"model":"m","model":"n"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		kept := bytes.Clone(body)
		r, err := ParseChat(body, DefaultLimits())
		if !bytes.Equal(kept, body) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			checkError(t, err)
			return
		}
		checkCommon(t, r.Common)
		var oracle map[string]json.RawMessage
		if err := json.Unmarshal(body, &oracle); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		var messages []map[string]json.RawMessage
		if err := json.Unmarshal(oracle["messages"], &messages); err != nil || len(messages) != len(r.Messages) {
			t.Fatalf("%d messages, oracle has %d, %v", len(r.Messages), len(messages), err)
		}
		for i, m := range messages {
			var text string
			var parts []map[string]json.RawMessage
			switch {
			case json.Unmarshal(m["content"], &text) == nil:
			case json.Unmarshal(m["content"], &parts) == nil:
				for j, p := range parts {
					var part string
					if err := json.Unmarshal(p["text"], &part); err != nil {
						t.Fatal(err)
					}
					if j > 0 {
						text += "\n"
					}
					text += part
				}
			default:
				t.Fatalf("accepted content %s", m["content"])
			}
			if text != r.Messages[i].Content {
				t.Fatalf("message %d: %q, oracle %q", i, r.Messages[i].Content, text)
			}
		}
	})
}

func FuzzParseCompletion(f *testing.F) {
	for _, s := range []string{"", completion(""), `{"model":"m","prompt":[1,2,3]}`, `{"model":"m","prompt":[[0]]}`, `{"model":"m","prompt":["x"],"logprobs":null}`,
		`{"model":"m","prompt":[1e2,2147483647]}`, completion(`"best_of":1,"echo":false,"suffix":""`)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseCompletion(body, DefaultLimits())
		if err != nil {
			checkError(t, err)
			return
		}
		checkCommon(t, r.Common)
		if (r.Prompt == "") == (len(r.PromptTokens) == 0) || r.MaxTokens < 1 {
			t.Fatalf("accepted %+v", r)
		}
		var oracle map[string]json.RawMessage
		if err := json.Unmarshal(body, &oracle); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		var text string
		var texts []string
		var ids []float64
		var nested [][]float64
		switch p := oracle["prompt"]; {
		case json.Unmarshal(p, &text) == nil:
		case json.Unmarshal(p, &texts) == nil:
			text = texts[0]
		case json.Unmarshal(p, &ids) == nil:
		case json.Unmarshal(p, &nested) == nil:
			ids = nested[0]
		default:
			t.Fatalf("accepted prompt %s", p)
		}
		if text != r.Prompt || len(ids) != len(r.PromptTokens) {
			t.Fatalf("prompt %q %v, oracle %q %v", r.Prompt, r.PromptTokens, text, ids)
		}
		for i, id := range ids {
			if id != float64(r.PromptTokens[i]) {
				t.Fatalf("token %d is %d, oracle %v", i, r.PromptTokens[i], id)
			}
		}
	})
}

// An event costs nothing but its bytes: go test -bench=Append -benchmem ./ingress/openai
func TestAppendTextDoesNotAllocate(t *testing.T) {
	for _, kind := range []schema.Kind{schema.KindChat, schema.KindCompletion} {
		s := NewStream(testHead(kind), true)
		buf := make([]byte, 0, 4096)
		n := int64(0)
		if got := testing.AllocsPerRun(100, func() {
			buf = s.AppendText(buf[:0], n, " wörld\n\u2028🎈")
			n++
		}); got != 0 {
			t.Errorf("%s: %v allocations per event", kind, got)
		}
	}
}

func BenchmarkAppendText(b *testing.B) {
	s := NewStream(testHead(schema.KindChat), false)
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	n := int64(0)
	for b.Loop() {
		buf = s.AppendText(buf[:0], n, " token")
		n++
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkAppendString(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 20) + "\n\"é\""
	buf := make([]byte, 0, 4096)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendString(buf[:0], text)
	}
}

// 500 tokens of text in one message: go test -bench=Parse -benchmem ./ingress/openai
func BenchmarkParseChat(b *testing.B) {
	body := []byte(`{"model":"qwen2.5-0.5b-instruct","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"` +
		strings.Repeat("word ", 500) + `"}],"max_tokens":128,"temperature":0.7,"stream":true,"stream_options":{"include_usage":true}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseChat(body, DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseCompletionTokens(b *testing.B) {
	body := []byte(`{"model":"m","prompt":[` + strings.TrimSuffix(strings.Repeat("12345,", 500), ",") + `],"max_tokens":128}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCompletion(body, DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}
