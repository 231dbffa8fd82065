package ingress_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/schema"
)

// letters spells token n as the n-th letter; token 25 and 26 are the halves of é, 27 is a control token.
type letters struct{}

func (letters) AppendPiece(dst []byte, token int32, special bool) ([]byte, error) {
	switch {
	case token == 25:
		return append(dst, 0xC3), nil
	case token == 26:
		return append(dst, 0xA9), nil
	case token == 27 && special:
		return append(dst, "<|x|>"...), nil
	case token == 27:
		return dst, nil
	case token < 0 || token > 27:
		return dst, errors.New("no such token")
	}
	return append(dst, byte('a'+token)), nil
}

// startSpelling is an ingress whose model tells log-probabilities and takes schemas.
func startSpelling(t testing.TB) *harness {
	m := mockModel()
	m.Speller = letters{}
	m.Grammar = func(text []byte) (string, error) {
		if strings.Contains(string(text), "pattern") {
			return "", errors.New("#/pattern: it is not supported")
		}
		return "root ::= " + string(text), nil
	}
	return startModels(t, config(), m)
}

// answer sends a b, the halves of é, and an end without a log-probability of its own: by two chunks, of which the first
// has no text yet.
func answer(r *run) {
	r.publish(&schema.Chunk{Attempt: 1, IDs: schema.Tokens{0}, Logprobs: &schema.Logprobs{
		Chosen: []float32{-0.5}, Top: schema.Tokens{0, 27}, TopLogprobs: []float32{-0.5, -1}}})
	r.publish(&schema.Chunk{Attempt: 1, Index: 1, IDs: schema.Tokens{1, 25, 26, 27}, Text: "abé", Logprobs: &schema.Logprobs{
		Chosen: []float32{-2, -3, 0}, Top: schema.Tokens{0, 99, 25, 26, 26, 1}, TopLogprobs: []float32{-0.25, -4, -3, -5, 0, -9999}},
		Finish: &schema.Finish{Reason: schema.FinishStop, PromptTokens: 1, OutputTokens: 5}})
}

type chatLogprobs struct {
	Content []struct {
		Token   string
		Logprob float32
		Bytes   []int
		Top     []struct {
			Token   string
			Logprob float32
		} `json:"top_logprobs"`
	}
}

type completionLogprobs struct {
	Tokens        []string
	TokenLogprobs []float32            `json:"token_logprobs"`
	Top           []map[string]float32 `json:"top_logprobs"`
	Offset        []int                `json:"text_offset"`
}

// choice reads the only choice of a response or chunk.
func choice[T any](t *testing.T, data string) (logprobs *T) {
	t.Helper()
	var v struct {
		Choices []struct{ Logprobs *T }
	}
	if err := json.Unmarshal([]byte(data), &v); err != nil || len(v.Choices) != 1 {
		t.Fatalf("%s: %v", data, err)
	}
	return v.Choices[0].Logprobs
}

func TestLogprobsOfChat(t *testing.T) {
	t.Parallel()
	h := startSpelling(t)
	h.serve(answer)
	body := func(more string) string { return chatBody("a", `,"logprobs":true,"top_logprobs":2`+more) }
	res := h.post(t, chatPath, body(""))
	whole := choice[chatLogprobs](t, res.body)
	var got []string
	for _, c := range whole.Content {
		line := fmt.Sprint(c.Token, c.Logprob, c.Bytes)
		for _, top := range c.Top {
			line += fmt.Sprint(" ", top.Token, top.Logprob)
		}
		got = append(got, line)
	}
	want := []string{`a-0.5 [97] a-0.5 <|x|>-1`, `b-2 [98] a-0.25 -4`, `\xc3-3 [195] \xc3-3 \xa9-5`, `\xa90 [169] \xa90 b-9999`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	s := h.open(t, chatPath, body(`,"stream":true`))
	s.next() // the role
	var streamed chatLogprobs
	for _, text := range []string{"", "abé"} {
		e := s.next()
		if got := e.text(t); got != text {
			t.Errorf("text %q, want %q", got, text)
		}
		streamed.Content = append(streamed.Content, choice[chatLogprobs](t, e.data).Content...)
	}
	if !reflect.DeepEqual(&streamed, whole) {
		t.Errorf("streamed %+v\nwhole    %+v", streamed, whole)
	}
	if events, _ := s.rest(); len(events) != 2 || strings.Contains(events[0].data, "logprobs") {
		t.Errorf("end %+v", events)
	}
	// Nobody else gets any, whatever the worker sends.
	if res := h.post(t, chatPath, chatBody("a", "")); strings.Contains(res.body, "logprobs") {
		t.Errorf("not asked for: %s", res.body)
	}
}

func TestLogprobsOfCompletion(t *testing.T) {
	t.Parallel()
	h := startSpelling(t)
	asked := make(chan int32, 8)
	h.serve(func(r *run) { asked <- r.Logprobs; answer(r) })
	body := func(more string) string { return `{"model":"mock-1","prompt":"a","logprobs":2` + more + `}` }
	want := &completionLogprobs{
		Tokens: []string{"a", "b", `bytes:\xc3`, `bytes:\xa9`}, TokenLogprobs: []float32{-0.5, -2, -3, 0},
		Top:    []map[string]float32{{"a": -0.5, "<|x|>": -1}, {"a": -0.25, "": -4, "b": -2}, {`bytes:\xc3`: -3, `bytes:\xa9`: -5}, {`bytes:\xa9`: 0, "b": -9999}},
		Offset: []int{0, 1, 2, 2},
	}
	res := h.post(t, completionPath, body(""))
	if got := choice[completionLogprobs](t, res.body); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if n := <-asked; n != 3 {
		t.Errorf("the worker was asked for %d", n)
	}
	s := h.open(t, completionPath, body(`,"stream":true`))
	var got completionLogprobs
	for range 2 {
		part := choice[completionLogprobs](t, s.next().data)
		got.Tokens, got.TokenLogprobs = append(got.Tokens, part.Tokens...), append(got.TokenLogprobs, part.TokenLogprobs...)
		got.Top, got.Offset = append(got.Top, part.Top...), append(got.Offset, part.Offset...)
	}
	if !reflect.DeepEqual(&got, want) {
		t.Errorf("streamed %+v\nwant     %+v", got, want)
	}
}

func TestResponseFormatBecomesGrammar(t *testing.T) {
	t.Parallel()
	h := startSpelling(t)
	format := func(schema string) string {
		return chatBody("a", `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":`+schema+`}}`)
	}
	e := h.post(t, chatPath, format(`{"pattern":"a"}`)).want(t, 400, "invalid_value")
	if e.Param != "response_format" || !strings.Contains(e.Message, "#/pattern: it is not supported") {
		t.Errorf("%+v", e)
	}
	asked := make(chan string, 2)
	h.serve(func(r *run) { asked <- r.Grammar; short(r) })
	h.post(t, chatPath, format(`{ "type":"null" }`))
	h.post(t, chatPath, chatBody("a", ""))
	if got := <-asked; got != `root ::= { "type":"null" }` {
		t.Errorf("grammar %q", got)
	}
	if got := <-asked; got != "" {
		t.Errorf("grammar %q of a request without", got)
	}
}
