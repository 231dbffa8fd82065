package openai

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream is a scripted server. What it serves at a path can be changed at any time; other paths are 404.
type upstream struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	serve   map[string]http.HandlerFunc
	asked   []string // bodies of completions
	headers []http.Header
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{t: t, serve: map[string]http.HandlerFunc{}}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		u.mu.Lock()
		h := u.serve[r.URL.Path]
		if r.Method == http.MethodPost {
			u.asked = append(u.asked, string(body))
		}
		u.headers = append(u.headers, r.Header)
		u.mu.Unlock()
		if h == nil || err != nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	t.Cleanup(u.Close)
	u.set("/v1/models", text(`{"data":[{"id":"m","owned_by":"someone","max_model_len":4096}]}`))
	u.set("/health", text(`{"status":"ok"}`))
	return u
}

func (u *upstream) set(path string, h http.HandlerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.serve[path] = h
}

// llama makes it look like llama-server.
func (u *upstream) llama() {
	u.set("/props", text(`{"total_slots":3,"default_generation_settings":{"n_ctx":512},"build_info":"b1"}`))
	u.set("/v1/models", text(fmt.Sprintf(`{"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_vocab":%d}}]}`, mock.Vocab)))
}

// vllm makes it look like vLLM.
func (u *upstream) vllm() {
	u.set("/v1/models", text(`{"data":[{"id":"m","owned_by":"vllm","max_model_len":2048}]}`))
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
}

// status answers with an error.
func status(code int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// cutOff breaks the connection, hang waits until the client has gone, and what follows raw is sent as it is.
const cutOff, hang, raw = "\x00cut", "\x00hang", "\x00raw"

// events streams each text as an event's data (or as it is, if it ends with an empty line).
func events(data ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		flush(w)
		for _, d := range data {
			switch {
			case d == cutOff:
				panic(http.ErrAbortHandler)
			case d == hang:
				<-r.Context().Done()
				return
			case strings.HasPrefix(d, raw):
				fmt.Fprint(w, d[len(raw):])
			case strings.HasSuffix(d, "\n\n"):
				fmt.Fprint(w, d)
			default:
				fmt.Fprintf(w, "data: %s\n\n", d)
			}
			flush(w)
		}
	}
}

func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

// say is OpenAI's event for a text.
func say(s string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"text":%q,"finish_reason":null}]}`, s)
}

const (
	stopped  = `{"choices":[{"index":0,"text":"","finish_reason":"stop"}]}`
	full     = `{"choices":[{"index":0,"text":"","finish_reason":"length"}]}`
	nothing  = `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0}}`
	used     = `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7}}`
	doneMark = `[DONE]`
)

// quick is a configuration whose time-outs a test can wait for.
func quick(u *upstream) Config {
	c := DefaultConfig()
	c.URL, c.Model, c.Tokenizer, c.Vocab = u.URL, "served", mock.Tokenizer{}, mock.Vocab
	c.Permits, c.Hold, c.Poll = 4, 0, 5*time.Millisecond
	return c
}

func open(t *testing.T, c Config) *Backend {
	t.Helper()
	b, err := Open(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// ask is a request for at most n tokens.
func ask(n int) *worker.Start {
	return &worker.Start{Request: "r", Attempt: 1, Prompt: []int32{65, 66, 67}, MaxNew: n}
}

// one returns a step with one entry.
func one(seq batch.SeqID) *batch.Batch {
	return &batch.Batch{Step: 1, Entries: []batch.Entry{{Seq: seq, Tokens: []int32{65}, Sample: true}}}
}

// answer is what came of a request.
type answer struct {
	text    string
	tokens  int
	stopped bool
	usage   worker.Usage
	counted bool
	err     error
}

// drive runs a request to its end, as the worker would.
func drive(t *testing.T, b *Backend, seq batch.SeqID, s *worker.Start) answer {
	t.Helper()
	if err := b.Start(seq, s); err != nil {
		t.Fatal(err)
	}
	var a answer
	var out []byte
	patience := time.NewTimer(20 * time.Second)
	defer patience.Stop()
	rows := make([]batch.Row, 1)
	for a.err == nil && !a.stopped && a.tokens < s.MaxNew {
		select {
		case <-patience.C:
			t.Fatalf("no end after %d tokens", a.tokens)
		default:
		}
		rows[0] = batch.Row{}
		if err := b.Step(one(seq), rows); err != nil {
			t.Fatal(err)
		}
		row := rows[0]
		if row.Wait {
			continue
		}
		if a.err = row.Err; a.err != nil {
			break
		}
		a.tokens++
		a.stopped = row.Stop || (!s.IgnoreEOS && b.EOG(row.Token))
		if !a.stopped {
			var err error
			if out, err = b.AppendPiece(out, row.Token); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.text = string(out)
	a.usage, a.counted = b.Usage(seq)
	if err := b.Apply(batch.Move{Kind: batch.MoveTrim, Dst: seq}); err != nil {
		t.Fatal(err)
	}
	return a
}

// logTo is a logger whose lines a test can read.
func logTo(b *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
