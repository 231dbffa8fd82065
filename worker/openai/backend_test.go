package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
)

// Whatever goes wrong with the server fails the request, after the tokens that came, with an error that says so. Never
// does it look like an end.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		serve   http.HandlerFunc
		change  func(*Config)
		ignore  bool // ignore_eos
		text    string
		want    error
		status  int
		message string
		after   time.Duration
	}{
		{name: "400", serve: status(400, `{"error":{"message":"prompt is  too\nlong","type":"x"}}`), want: ErrStatus, status: 400, message: "prompt is too long"},
		{name: "401", serve: status(401, `{"error":"no key"}`), want: ErrStatus, status: 401, message: "no key"},
		{name: "404", serve: status(404, `{"message":"no such model"}`), want: ErrStatus, status: 404, message: "no such model"},
		{name: "429", serve: status(429, `slow down`, "Retry-After", "3"), want: ErrStatus, status: 429, message: "slow down", after: 3 * time.Second},
		{name: "500", serve: status(500, ``), want: ErrStatus, status: 500},
		{name: "503", serve: status(503, `{"detail":"loading"}`, "Retry-After", "soon"), want: ErrStatus, status: 503, message: "loading"},
		{name: "redirect", serve: status(307, ``, "Location", "http://127.0.0.1:1/"), want: ErrStatus, status: 307},
		{name: "no stream", serve: text(`{"choices":[{"text":"all at once"}]}`), want: ErrProtocol, status: 200},
		{name: "malformed JSON", serve: events(say("ab"), `{"choices":[{"te`, doneMark), text: "ab", want: ErrProtocol, status: 200},
		{name: "text is a number", serve: events(`{"choices":[{"index":0,"text":7}]}`, doneMark), want: ErrProtocol, status: 200},
		{name: "endless line", serve: events("data: "+strings.Repeat("x", maxEvent+8)+"\n\n", hang), want: ErrProtocol, status: 200},
		{name: "endless event", serve: events(strings.Repeat("data: "+strings.Repeat("x", 1<<16)+"\n", 17)+"\n\n", hang), want: ErrProtocol, status: 200},
		{name: "death before the stream", serve: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: ErrUnreachable},
		{name: "death before the first token", serve: events(cutOff), want: ErrCut, status: 200},
		{name: "death in mid-stream", serve: events(say("ab"), say("c"), cutOff), text: "abc", want: ErrCut, status: 200},
		{name: "death inside of an event", serve: events(say("ab"), raw+"data: {\"choi"), text: "ab", want: ErrCut, status: 200},
		{name: "clean end of the body in mid-stream", serve: events(say("ab")), text: "ab", want: ErrCut, status: 200},
		{name: "DONE without finish_reason", serve: events(say("ab"), doneMark), text: "ab", want: ErrCut, status: 200},
		{name: "nothing but DONE", serve: events(doneMark), want: ErrEmpty, status: 200},
		{name: "a stop without a token", serve: events(stopped, nothing, doneMark), want: ErrEmpty, status: 200},
		{name: "an empty body", serve: events(), want: ErrCut, status: 200},
		{name: "error in mid-stream", serve: events(say("ab"), `{"error":{"message":"out of memory","code":500}}`), text: "ab", want: ErrReported, status: 200, message: "out of memory"},
		{name: "error event", serve: events(say("ab"), "event: error\ndata: {\"message\":\"boom\"}\n\n"), text: "ab", want: ErrReported, status: 200, message: "boom"},
		{name: "error field", serve: events("error: {\"message\":\"bang\"}\n\n"), want: ErrReported, status: 200, message: "bang"},
		{name: "aborted", serve: events(say("ab"), `{"choices":[{"index":0,"text":"","finish_reason":"abort"}]}`, doneMark), text: "ab", want: ErrReported, status: 200, message: "abort"},
		{name: "slow start", serve: events(hang), change: func(c *Config) { c.FirstToken = 30 * time.Millisecond }, want: ErrSlowStart, status: 200},
		{name: "no headers", serve: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, change: func(c *Config) { c.FirstToken = 30 * time.Millisecond }, want: ErrSlowStart},
		{name: "stall", serve: events(say("ab"), hang), change: func(c *Config) { c.Stall = 30 * time.Millisecond }, text: "ab", want: ErrStalled, status: 200},
		{name: "stop although told to ignore it", serve: events(say("ab"), stopped, used, doneMark), ignore: true, text: "ab", want: ErrEnd, status: 200},
		{name: "cut at the very end", serve: events(say("abcdefghij"), cutOff), text: "abcdefghi", want: ErrCut, status: 200},
		{name: "more than asked for", serve: events(say(strings.Repeat("x", 100)), hang), text: "xxxxxxxxx", want: ErrProtocol, status: 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUpstream(t)
			u.set("/v1/completions", c.serve)
			cfg := quick(u)
			if c.change != nil {
				c.change(&cfg)
			}
			s := ask(10)
			s.IgnoreEOS = c.ignore
			a := drive(t, open(t, cfg), 0, s)
			var f *Fault
			if !errors.As(a.err, &f) || !errors.Is(f, c.want) || f.Status != c.status || f.RetryAfter != c.after || !strings.Contains(f.Error(), c.message) {
				t.Errorf("got %v, want %v with status %d", a.err, c.want, c.status)
			}
			if f != nil && !strings.Contains(f.Error(), u.URL) {
				t.Errorf("%v does not name the upstream", f)
			}
			if a.text != c.text || a.counted {
				t.Errorf("text %q, counted %t, want %q", a.text, a.counted, c.text)
			}
		})
	}
}

func TestRefusedConnection(t *testing.T) {
	u := newUpstream(t)
	b := open(t, quick(u))
	u.Close()
	a := drive(t, b, 0, ask(10))
	if !errors.Is(a.err, ErrUnreachable) {
		t.Errorf("got %v", a.err)
	}
	if err := b.Healthy(); !errors.Is(err, ErrUnhealthy) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("health: %v", err)
	}
}

// An answer has the text, the end and the counts that the server says.
func TestAnswers(t *testing.T) {
	kato, err := mock.Tokenizer{}.Tokenize(" kato", false, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		kind   func(*upstream)
		serve  http.HandlerFunc
		max    int
		ignore bool
		output []int32
		text   string
		tokens int // rows, the end included
		usage  worker.Usage
	}{
		{name: "stop", serve: events(": ping\n\n", say("a"), say("b kato"), stopped, used, doneMark), max: 10, text: "ab kato", tokens: 4,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishStop}},
		{name: "stop at once", serve: events(stopped, used, doneMark), max: 10, tokens: 1,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishStop}},
		{name: "length", serve: events(say("abc"), full, used, doneMark), max: 3, text: "abc", tokens: 3,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishLength}},
		{name: "length with fewer tokens of ours", serve: events(say(" kato"), full, used, doneMark), max: 5, text: " kato", tokens: 2,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishLength}},
		{name: "length with more tokens of ours", serve: events(say("abcd"), full, used, doneMark), max: 3, text: "abc", tokens: 3,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishLength}},
		{name: "stop with more tokens of ours", serve: events(say("abcd"), stopped, used, doneMark), max: 3, text: "abc", tokens: 3,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishLength}},
		{name: "finish and text in one event", serve: events(`{"choices":[{"index":0,"text":"ab","finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":3}}`, doneMark), max: 10,
			text: "ab", tokens: 3, usage: worker.Usage{PromptTokens: 4, OutputTokens: 3, Finish: schema.FinishStop}},
		{name: "cached tokens", serve: events(say("ab"), stopped, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}`, doneMark), max: 10,
			text: "ab", tokens: 3, usage: worker.Usage{PromptTokens: 3, CachedTokens: 2, OutputTokens: 3, Finish: schema.FinishStop}},
		{name: "no details of the prompt", serve: events(say("ab"), stopped, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3,"prompt_tokens_details":null}}`, doneMark), max: 10,
			text: "ab", tokens: 3, usage: worker.Usage{PromptTokens: 3, OutputTokens: 3, Finish: schema.FinishStop}},
		{name: "negative usage", serve: events(say("ab"), stopped, `{"choices":[],"usage":{"prompt_tokens":-3,"completion_tokens":-5}}`, doneMark), max: 10,
			text: "ab", tokens: 3, usage: worker.Usage{PromptTokens: 3, OutputTokens: 3, Finish: schema.FinishStop}},
		{name: "usage beyond any context", serve: events(say("ab"), stopped, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1000000000000000000}}`, doneMark), max: 10,
			text: "ab", tokens: 3, usage: worker.Usage{PromptTokens: 3, OutputTokens: 3, Finish: schema.FinishStop}},
		{name: "no usage", serve: events(say("ab"), stopped, doneMark), max: 10, text: "ab", tokens: 3,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 3, Finish: schema.FinishStop}},
		{name: "no DONE after the finish", serve: events(say("ab"), stopped), max: 10, text: "ab", tokens: 3,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 3, Finish: schema.FinishStop}},
		{name: "resumed", serve: events(say("ab"), stopped, used, doneMark), max: 10, output: []int32{68, 69}, text: "ab", tokens: 3,
			usage: worker.Usage{PromptTokens: 1, OutputTokens: 7, Finish: schema.FinishStop}},
		{name: "CRLF and several data lines", serve: events("data: {\"choices\":[{\"index\":0,\r\ndata: \"text\":\"ab\"}]}\r\n\r\n"+"\n\n", stopped, used, doneMark), max: 10, text: "ab", tokens: 3,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishStop}},
		{name: "character in two events", serve: events("data: {\"choices\":[{\"index\":0,\"text\":\"a\xf0\x9f\"}]}\n\n", "data: {\"choices\":[{\"index\":0,\"text\":\"\x98\x80\"}]}\n\n", stopped, used, doneMark), max: 10,
			text: "a😀", tokens: 6, usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishStop}},
		{name: "character that is never complete", serve: events("data: {\"choices\":[{\"index\":0,\"text\":\"a\xf0\x9f\"}]}\n\n", stopped, used, doneMark), max: 10,
			text: "a\uFFFD", tokens: 5, usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishStop}},
		{name: "escapes", serve: events(`{"choices":[{"index":0,"text":"\"\\\/\b\f\n\r\t\u0041\ud83d\ude00\ud83d"}]}`, stopped, used, doneMark), max: 30,
			text: "\"\\/\b\f\n\r\tA😀\uFFFD", tokens: 17, usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishStop}},
		{name: "other choices", serve: events(`{"choices":[{"index":1,"text":"zzz","finish_reason":"stop"},{"index":0,"text":"ab"}]}`, stopped, used, doneMark), max: 10, text: "ab", tokens: 3,
			usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishStop}},

		{name: "vLLM: ids", kind: (*upstream).vllm, serve: events(`{"choices":[{"index":0,"text":"a","token_ids":[97]}]}`,
			fmt.Sprintf(`{"choices":[{"index":0,"text":" kato","token_ids":[%d,%d],"finish_reason":"stop"}]}`, kato[0], mock.TurnEnd), used, doneMark),
			max: 10, text: "a kato", tokens: 3, usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishStop}},
		{name: "vLLM: text behind ids", kind: (*upstream).vllm, serve: events(`{"choices":[{"index":0,"text":"","token_ids":[195]}]}`,
			`{"choices":[{"index":0,"text":"é","token_ids":[169]}]}`, `{"choices":[{"index":0,"text":"","token_ids":[195],"finish_reason":"length"}]}`, used, doneMark),
			max: 9, text: "é\xc3", tokens: 4, usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishLength}},
		{name: "vLLM: the end ignored", kind: (*upstream).vllm, serve: events(fmt.Sprintf(`{"choices":[{"index":0,"text":"a","token_ids":[97,%d]}]}`, mock.TurnEnd),
			`{"choices":[{"index":0,"text":"b","token_ids":[98],"finish_reason":"length"}]}`, used, doneMark),
			ignore: true, max: 3, text: "ab", tokens: 3, usage: worker.Usage{PromptTokens: 3, OutputTokens: 7, Finish: schema.FinishLength}},

		{name: "llama-server: ids", kind: (*upstream).llama, serve: events(`{"content":"a","tokens":[97],"stop":false}`, fmt.Sprintf(`{"content":"","tokens":[%d],"stop":false}`, mock.TurnEnd),
			`{"content":"","tokens":[],"stop":true,"stop_type":"eos","tokens_predicted":2,"tokens_evaluated":3}`),
			max: 10, text: "a", tokens: 2, usage: worker.Usage{PromptTokens: 3, OutputTokens: 2, Finish: schema.FinishStop}},
		{name: "llama-server: cached tokens", kind: (*upstream).llama, serve: events(`{"content":"a","tokens":[97],"stop":false}`,
			`{"content":"","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":1,"tokens_evaluated":3,"timings":{"cache_n":2,"prompt_ms":0.5}}`), max: 1,
			text: "a", tokens: 1, usage: worker.Usage{PromptTokens: 3, CachedTokens: 2, OutputTokens: 1, Finish: schema.FinishLength}},
		{name: "llama-server: only the last id of a character", kind: (*upstream).llama, serve: events(`{"content":"é","tokens":[169],"stop":false}`, `{"content":"b","tokens":[98],"stop":false}`,
			`{"content":"","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":3,"tokens_evaluated":3}`),
			max: 3, text: "éb", tokens: 3, usage: worker.Usage{PromptTokens: 3, OutputTokens: 3, Finish: schema.FinishLength}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUpstream(t)
			if c.kind != nil {
				c.kind(u)
			}
			u.set("/v1/completions", c.serve)
			u.set("/completion", c.serve)
			s := ask(c.max)
			s.IgnoreEOS, s.Output = c.ignore, c.output
			a := drive(t, open(t, quick(u)), 0, s)
			if a.err != nil {
				t.Fatal(a.err)
			}
			if a.text != c.text || a.tokens != c.tokens {
				t.Errorf("%q of %d tokens, want %q of %d", a.text, a.tokens, c.text, c.tokens)
			}
			if !a.counted || a.usage != c.usage {
				t.Errorf("usage %+v (%t), want %+v", a.usage, a.counted, c.usage)
			}
		})
	}
}

// Every dialect is asked for what a request wants, and for nothing by default.
func TestBodies(t *testing.T) {
	s := ask(9)
	s.Output = []int32{68}
	s.Sampling = schema.Sampling{Temperature: 0.5, TopK: 7, TopP: 0.75, MinP: 0.25, RepetitionPenalty: 1.5, PresencePenalty: 1, FrequencyPenalty: -1, Seed: 5}
	seeded := fmt.Sprint(seed(5, 1))
	for dialect, want := range map[Dialect][2]string{
		DialectPlain: {
			`{"model":"m","prompt":[65,66,67],"stream":true,"stream_options":{"include_usage":true},"max_tokens":9,"temperature":0,"top_p":1,"presence_penalty":0,"frequency_penalty":0,"seed":0}`,
			`{"model":"m","prompt":[65,66,67,68],"stream":true,"stream_options":{"include_usage":true},"max_tokens":9,"temperature":0.5,"top_p":0.75,"top_k":7,"min_p":0.25,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"seed":` + seeded + `,"ignore_eos":true}`},
		DialectVLLM: {
			`{"model":"m","prompt":[65,66,67],"stream":true,"stream_options":{"include_usage":true},"max_tokens":9,"temperature":0,"top_p":1,"top_k":0,"min_p":0,"presence_penalty":0,"frequency_penalty":0,"repetition_penalty":1,"seed":0,"return_token_ids":true}`,
			`{"model":"m","prompt":[65,66,67,68],"stream":true,"stream_options":{"include_usage":true},"max_tokens":9,"temperature":0.5,"top_p":0.75,"top_k":7,"min_p":0.25,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"seed":` + seeded + `,"ignore_eos":true,"return_token_ids":true}`},
		DialectLlama: {
			`{"prompt":[65,66,67],"stream":true,"n_predict":9,"temperature":0,"top_p":1,"top_k":0,"min_p":0,"presence_penalty":0,"frequency_penalty":0,"repeat_penalty":1,"repeat_last_n":12,"seed":0,"return_tokens":true}`,
			`{"prompt":[65,66,67,68],"stream":true,"n_predict":9,"temperature":0.5,"top_p":0.75,"top_k":7,"min_p":0.25,"presence_penalty":1,"frequency_penalty":-1,"repeat_penalty":1.5,"repeat_last_n":13,"seed":` + seeded + `,"ignore_eos":true,"return_tokens":true}`},
	} {
		c := Config{Dialect: dialect, UpstreamModel: "m", Tokenizer: mock.Tokenizer{}}
		for i, s := range []*worker.Start{ask(9), s} {
			s.IgnoreEOS = i == 1
			got, err := c.body(s)
			if err != nil || string(got) != want[i] {
				t.Errorf("%s:\n got %s (%v)\nwant %s", dialect, got, err, want[i])
			}
		}
	}
	c := Config{Dialect: DialectPlain, PromptText: true, Tokenizer: mock.Tokenizer{}}
	s.Prompt, s.Output = []int32{mock.TurnStart, 65}, []int32{66}
	if got, err := c.body(s); err != nil || !strings.Contains(string(got), `"prompt":"\u003c|im_start|\u003eAB"`) {
		t.Errorf("%s, %v", got, err)
	}
}

// beginner is a tokenizer whose texts begin with a token of their own.
type beginner struct{ mock.Tokenizer }

func (b beginner) Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error) {
	ids, err := b.Tokenizer.Tokenize(text, addSpecial, parseSpecial)
	if addSpecial {
		ids = append([]int32{mock.TurnStart}, ids...)
	}
	return ids, err
}

// A prompt of text does not spell the token that the server puts before it; token ids are sent as they are.
func TestBeginningIsTheServers(t *testing.T) {
	for _, c := range []struct {
		prompt []int32
		text   bool
		want   string
	}{
		{[]int32{mock.TurnStart, 65}, true, `"A"`},
		{[]int32{mock.TurnStart, mock.TurnStart, 65}, true, `"\u003c|im_start|\u003eA"`},
		{[]int32{65, mock.TurnStart}, true, `"A\u003c|im_start|\u003e"`},
		{[]int32{mock.EndOfText, 65}, true, `"\u003c|endoftext|\u003eA"`},
		{nil, true, `""`},
		{[]int32{mock.TurnStart, 65}, false, fmt.Sprintf(`[%d,65]`, mock.TurnStart)},
	} {
		cfg := Config{Dialect: DialectPlain, PromptText: c.text, Tokenizer: beginner{}}
		s := ask(9)
		s.Prompt = c.prompt
		if got, err := cfg.body(s); err != nil || !strings.Contains(string(got), `"prompt":`+c.want+`,`) {
			t.Errorf("%v: %s, %v, want %s", c.prompt, got, err, c.want)
		}
	}
}

// A cancelled request's exchange is closed, whatever it waits for, and its place can be used at once.
func TestTrimCancels(t *testing.T) {
	u := newUpstream(t)
	gone := make(chan struct{}, 4)
	u.set("/v1/completions", func(w http.ResponseWriter, r *http.Request) {
		events(say("ab"), hang)(w, r)
		gone <- struct{}{}
	})
	cfg := quick(u)
	cfg.Permits = 1
	b := open(t, cfg)
	if err := b.Start(0, ask(10)); err != nil {
		t.Fatal(err)
	}
	rows := []batch.Row{{Wait: true}}
	for rows[0].Wait {
		if err := b.Step(one(0), rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Apply(batch.Move{Kind: batch.MoveTrim, Dst: 0}); err != nil {
		t.Fatal(err)
	}
	<-gone
	u.set("/v1/completions", events(say("ab"), stopped, used, doneMark))
	if a := drive(t, b, 0, ask(10)); a.err != nil || a.text != "ab" {
		t.Errorf("after a cancel: %+v", a)
	}
	if err := b.Apply(batch.Move{Kind: batch.MoveCopy, Src: 0, Dst: 0, Tokens: 3}); !errors.Is(err, ErrMove) {
		t.Errorf("a copy: %v", err)
	}
}

// No more requests than permits are open at the server, though sequences are started anew while old exchanges end.
func TestPermits(t *testing.T) {
	u := newUpstream(t)
	var open1, most atomic.Int32
	u.set("/v1/completions", func(w http.ResponseWriter, r *http.Request) {
		n := open1.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		defer open1.Add(-1)
		events(say("ab"), stopped, used, doneMark)(w, r)
	})
	cfg := quick(u)
	cfg.Permits = 2
	b := open(t, cfg)
	for range 20 {
		for seq := range batch.SeqID(2) {
			if err := b.Start(seq, ask(10)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for seq := range batch.SeqID(2) {
		if a := drive(t, b, seq, ask(10)); a.err != nil {
			t.Error(a.err)
		}
	}
	// A server counts a request until its handler has returned, which is after the client has gone.
	if most.Load() > 2+1 {
		t.Errorf("%d at once", most.Load())
	}
}

// A step without news is short, and one with news does not wait for the others.
func TestStep(t *testing.T) {
	u := newUpstream(t)
	release := make(chan struct{})
	u.set("/v1/completions", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		events(say("a"), hang)(w, r)
	})
	cfg := quick(u)
	b := open(t, cfg)
	for seq := range batch.SeqID(2) {
		if err := b.Start(seq, ask(10)); err != nil {
			t.Fatal(err)
		}
	}
	both := &batch.Batch{Entries: []batch.Entry{one(0).Entries[0], one(1).Entries[0]}}
	rows := make([]batch.Row, 2)
	if err := b.Step(both, rows); err != nil || !rows[0].Wait || !rows[1].Wait {
		t.Fatalf("%+v, %v", rows, err)
	}
	// An entry that only feeds tokens is done at once.
	feeds := one(0)
	feeds.Entries[0].Sample = false
	rows = make([]batch.Row, 1)
	if err := b.Step(feeds, rows); err != nil || rows[0].Wait {
		t.Fatalf("%+v, %v", rows, err)
	}
	release <- struct{}{}
	rows = make([]batch.Row, 2)
	for {
		if err := b.Step(both, rows); err != nil {
			t.Fatal(err)
		}
		if rows[0].Wait != rows[1].Wait {
			return
		}
	}
}

// The key goes to the server and nowhere else.
func TestKey(t *testing.T) {
	const key = "sk-never-shown"
	u := newUpstream(t)
	u.set("/v1/completions", status(500, "boom"))
	cfg := quick(u)
	cfg.Key = key
	var log bytes.Buffer
	b, err := Open(t.Context(), cfg, logTo(&log))
	if err != nil {
		t.Fatal(err)
	}
	a := drive(t, b, 0, ask(3))
	u.mu.Lock()
	for _, h := range u.headers {
		if h.Get("Authorization") != "Bearer "+key {
			t.Errorf("header %q", h.Get("Authorization"))
		}
	}
	u.mu.Unlock()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.URL = "http://user:" + key + "@host"
	shown := fmt.Sprintf("%v %+v %#v %v %v %s", cfg.Key, cfg.Key, cfg.Key, cfg.Validate(), a.err, log.String())
	if strings.Contains(shown, key) {
		t.Errorf("shown: %s", shown)
	}
}

func TestConfig(t *testing.T) {
	good := DefaultConfig()
	good.URL, good.Model, good.Tokenizer, good.Vocab = "http://h:1/p", "m", mock.Tokenizer{}, 10
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(*Config){
		"url": func(c *Config) { c.URL = "h:1" }, "key": func(c *Config) { c.Key = "a\nb" }, "model": func(c *Config) { c.Model = "" },
		"dialect": func(c *Config) { c.Dialect = "x" }, "context_tokens": func(c *Config) { c.ContextTokens = 1 }, "permits": func(c *Config) { c.Permits = 257 },
		"tokenizer": func(c *Config) { c.Tokenizer = nil }, "vocab": func(c *Config) { c.Vocab = 0 }, "connect": func(c *Config) { c.Connect = 0 },
		"first_token": func(c *Config) { c.FirstToken = 0 }, "stall": func(c *Config) { c.Stall = 0 }, "health_interval": func(c *Config) { c.HealthInterval = 0 },
		"health_timeout": func(c *Config) { c.HealthTimeout = 0 }, "health_failures": func(c *Config) { c.HealthFailures = 0 }, "hold": func(c *Config) { c.Hold = -1 },
		"poll": func(c *Config) { c.Poll = 0 },
	} {
		c := good
		change(&c)
		if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), ": "+key+" is ") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Whatever a server sends, reading it ends, and no text is made up: what is spelled is what was said.
func FuzzStream(f *testing.F) {
	for _, s := range []string{say("ab"), stopped, full, used, doneMark, `{"content":"a","tokens":[97]}`, `{"error":1}`, "{\"choices\":[{\"text\":\"\xf0\"}]}"} {
		f.Add("data: "+s+"\n\n", true)
	}
	f.Add("event: x\ndata:a\r\ndata: b\n:c\n\nerror: {}\n\n", false)
	f.Fuzz(func(t *testing.T, body string, llama bool) {
		dialect := DialectPlain
		if llama {
			dialect = DialectLlama
		}
		r := newEventReader(strings.NewReader(body))
		spell := speller{tokenizer: mock.Tokenizer{}}
		var said, spelled []byte
		for {
			e, err := r.next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, ErrProtocol) {
					t.Fatal(err)
				}
				return
			}
			d, err := dialect.read(&e)
			if err != nil {
				continue
			}
			ids, err := spell.add(nil, d.text, nil)
			if err != nil {
				continue
			}
			said = append(said, d.text...)
			for _, id := range ids {
				if spelled, err = (mock.Tokenizer{}).AppendPiece(spelled, id, false); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.HasPrefix(said, spelled) || len(said)-len(spelled) > 3 {
				t.Fatalf("said %q, spelled %q", said, spelled)
			}
		}
	})
}
