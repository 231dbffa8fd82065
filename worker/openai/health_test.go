package openai

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
)

// While the server is gone its requests are held, so that the worker can give them up; it is well again when it
// answers.
func TestHealth(t *testing.T) {
	u := newUpstream(t)
	u.set("/v1/completions", events(say("ab"), cutOff))
	cfg := quick(u)
	cfg.Hold, cfg.HealthInterval, cfg.Poll = time.Hour, 5*time.Millisecond, time.Millisecond
	cfg.Dialect = DialectVLLM // asks /health
	b := open(t, cfg)
	if err := b.Healthy(); err != nil {
		t.Fatal(err)
	}
	u.set("/health", status(503, `{"error":{"message":"loading"}}`))
	if err := b.Start(0, ask(10)); err != nil {
		t.Fatal(err)
	}
	rows := make([]batch.Row, 1)
	for b.Healthy() == nil {
		if err := b.Step(one(0), rows); err != nil || rows[0].Err != nil {
			t.Fatal(err, rows[0].Err)
		}
	}
	var f *Fault
	if err := b.Healthy(); !errors.As(err, &f) || !errors.Is(f, ErrUnhealthy) || f.Status != 503 || f.Message != "loading" {
		t.Errorf("health: %v", err)
	}
	for range 10 {
		rows[0] = batch.Row{}
		if err := b.Step(one(0), rows); err != nil || rows[0].Err != nil {
			t.Fatal(err, rows[0].Err)
		}
	}
	if err := b.Apply(batch.Move{Kind: batch.MoveTrim, Dst: 0}); err != nil {
		t.Fatal(err)
	}
	u.set("/health", text("{}"))
	until(t, func() bool { return b.Healthy() == nil })

	// A server that only stops to answer its health counts as gone, too, after some tries.
	u.set("/health", func(_ http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	until(t, func() bool { return b.Healthy() != nil })
}

// A server that comes back with another model or context is not served under the name of the first; one that comes back
// as it was is.
func TestComesBackAsAnother(t *testing.T) {
	llama := func(context int, build, name string, size int) func(*upstream) {
		return func(u *upstream) {
			u.set("/props", text(fmt.Sprintf(`{"total_slots":3,"default_generation_settings":{"n_ctx":%d},"build_info":%q}`, context, build)))
			u.set("/v1/models", text(fmt.Sprintf(`{"data":[{"id":%q,"owned_by":"llamacpp","meta":{"n_vocab":%d,"size":%d}}]}`, name, mock.Vocab, size)))
		}
	}
	vllm := func(list string) func(*upstream) {
		return func(u *upstream) { u.set("/v1/models", text(`{"data":[`+list+`]}`)) }
	}
	const m = `{"id":"m","owned_by":"vllm","root":"/w/m","max_model_len":2048}`
	for _, c := range []struct {
		name           string
		change         func(*Config)
		first, another func(*upstream)
		says           string // of the error; empty: it counts as the same
	}{
		{name: "llama-server, same", first: llama(512, "b1", "m", 7), another: llama(512, "b1", "m", 7)},
		{name: "llama-server, model", first: llama(512, "b1", "m", 7), another: llama(512, "b1", "n", 7), says: "model:n"},
		{name: "llama-server, model under a configured name", change: func(c *Config) { c.UpstreamModel = "x" }, first: llama(512, "b1", "m", 7), another: llama(512, "b1", "n", 7), says: "model:n"},
		{name: "llama-server, weights under the same name", first: llama(512, "b1", "m", 7), another: llama(512, "b1", "m", 8), says: "bytes:8"},
		{name: "llama-server, context", first: llama(512, "b1", "m", 7), another: llama(256, "b1", "m", 7), says: "context:256"},
		{name: "llama-server, build", first: llama(512, "b1", "m", 7), another: llama(512, "b2", "m", 7), says: "build:b2"},
		{name: "llama-server, vocabulary", first: llama(512, "b1", "m", 7), another: func(u *upstream) {
			u.set("/v1/models", text(`{"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_vocab":5}}]}`))
		}, says: "tokenizer has"},
		{name: "vLLM, another beside ours", first: vllm(m), another: vllm(`{"id":"n","owned_by":"vllm","max_model_len":9},` + m)},
		{name: "vLLM, model", first: vllm(m), another: vllm(`{"id":"n","owned_by":"vllm","max_model_len":2048}`), says: "has n"},
		{name: "vLLM, context", first: vllm(m), another: vllm(strings.Replace(m, "2048", "1024", 1)), says: "context:1024"},
		{name: "vLLM, weights under the same name", first: vllm(m), another: vllm(strings.Replace(m, "/w/m", "/w/n", 1)), says: "root:/w/n"},
		{name: "another kind of server", first: llama(512, "b1", "m", 7), another: func(u *upstream) { u.set("/props", nil); vllm(m)(u) }, says: "dialect:vllm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUpstream(t)
			c.first(u)
			cfg := quick(u)
			cfg.HealthInterval = 2 * time.Millisecond
			if c.change != nil {
				c.change(&cfg)
			}
			b := open(t, cfg)
			fingerprint := b.Info().Fingerprint
			u.set("/health", status(503, `{"error":{"message":"loading"}}`))
			until(t, func() bool { return b.Healthy() != nil })
			if err := b.Healthy(); errors.Is(err, ErrChanged) {
				t.Fatalf("while it is away: %v", err)
			}
			c.another(u)
			var asked atomic.Int32
			u.set("/health", func(http.ResponseWriter, *http.Request) { asked.Add(1) })
			if c.says == "" {
				until(t, func() bool { return b.Healthy() == nil })
			} else {
				until(t, func() bool { return asked.Load() > 3 })
				if err := b.Healthy(); !errors.Is(err, ErrUnhealthy) || !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "restart") {
					t.Fatalf("health: %v", err)
				}
				c.first(u)
				until(t, func() bool { return b.Healthy() == nil })
			}
			if got := b.Info().Fingerprint; got != fingerprint {
				t.Errorf("fingerprint %s, was %s", got, fingerprint)
			}
		})
	}
}

// A server that is back before anyone saw it away is asked when an exchange is cut.
func TestComesBackAtOnceAsAnother(t *testing.T) {
	u := newUpstream(t)
	u.set("/v1/completions", events(say("ab"), cutOff))
	cfg := quick(u)
	cfg.HealthInterval = time.Hour
	var log bytes.Buffer
	b, err := Open(t.Context(), cfg, logTo(&log))
	if err != nil {
		t.Fatal(err)
	}
	u.set("/v1/models", text(`{"data":[{"id":"m","max_model_len":9}]}`))
	if a := drive(t, b, 0, ask(10)); !errors.Is(a.err, ErrCut) {
		t.Errorf("%+v", a)
	}
	if err := b.Healthy(); !errors.Is(err, ErrChanged) {
		t.Errorf("health: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "context:9") {
		t.Errorf("log: %s", log.String())
	}
}

// until asks again and again, within a time that only a broken test takes.
func until(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(10 * time.Second)
	defer end.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatal("not within 10 s")
		}
	}
}

// What is not configured is asked.
func TestLearns(t *testing.T) {
	type learned struct {
		dialect          Dialect
		model            string
		context, permits int
		health           string
	}
	for _, c := range []struct {
		name   string
		kind   func(*upstream)
		change func(*Config)
		want   learned
	}{
		{"plain", func(*upstream) {}, nil, learned{DialectPlain, "m", 4096, 32, "/v1/models"}},
		{"vllm", (*upstream).vllm, nil, learned{DialectVLLM, "m", 2048, 32, "/health"}},
		{"llama-server", (*upstream).llama, nil, learned{DialectLlama, "m", 512, 3, "/health"}},
		{"configured", (*upstream).llama, func(c *Config) { c.Dialect, c.ContextTokens, c.Permits = DialectPlain, 100, 2 }, learned{DialectPlain, "m", 100, 2, "/v1/models"}},
		{"no models", func(u *upstream) { u.set("/v1/models", nil) }, func(c *Config) { c.UpstreamModel, c.ContextTokens = "x", 100 }, learned{DialectPlain, "x", 100, 32, "/v1/models"}},
	} {
		u := newUpstream(t)
		c.kind(u)
		cfg := quick(u)
		cfg.Permits = 0
		if c.change != nil {
			c.change(&cfg)
		}
		b := open(t, cfg)
		i := b.Info()
		if got := (learned{b.cfg.Dialect, b.cfg.UpstreamModel, i.ContextTokens, i.Sequences, b.health}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if i.Backend != "openai" || i.Model != "served" || i.Sharing || i.KVCells != i.Sequences*i.ContextTokens || i.BatchTokens != i.KVCells || i.Vocab != mock.Vocab || i.Fingerprint == "" {
			t.Errorf("%s: %+v", c.name, i)
		}
	}
}

// Settings that do not fit the server are told at the start.
func TestDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   func(*upstream)
		change func(*Config)
		want   error
		says   string
	}{
		{"another model", func(*upstream) {}, func(c *Config) { c.UpstreamModel = "x" }, ErrConfig, `"x"`},
		{"no context", func(u *upstream) { u.set("/v1/models", text(`{"data":[{"id":"m"}]}`)) }, func(*Config) {}, ErrConfig, "context_tokens"},
		{"no models", func(u *upstream) { u.set("/v1/models", nil) }, func(*Config) {}, ErrConfig, "upstream_model"},
		{"another vocabulary", (*upstream).llama, func(c *Config) { c.Vocab-- }, ErrConfig, "tokenizer"},
		{"wrong key", func(u *upstream) { u.set("/v1/models", status(401, `{"error":{"message":"bad key"}}`)) }, func(*Config) {}, ErrStatus, "bad key"},
		{"not JSON", func(u *upstream) { u.set("/v1/models", text(`<html>`)) }, func(*Config) {}, ErrProtocol, "/v1/models"},
		{"a tokenizer without an end", func(*upstream) {}, func(c *Config) { c.Vocab = 10 }, ErrConfig, "tokenizer"},
	} {
		u := newUpstream(t)
		c.kind(u)
		cfg := quick(u)
		c.change(&cfg)
		b, err := Open(t.Context(), cfg, logTo(new(bytes.Buffer)))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if b != nil {
			t.Errorf("%s: opened", c.name)
		}
	}
}

// A server that still loads its model is waited for.
func TestWaitsForTheServer(t *testing.T) {
	u := newUpstream(t)
	var asked atomic.Int32
	u.set("/v1/models", func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			status(503, `{"error":{"message":"Loading model"}}`)(w, r)
			return
		}
		text(`{"data":[{"id":"m","max_model_len":64}]}`)(w, r)
	})
	cfg := quick(u)
	cfg.HealthInterval = time.Millisecond
	if b := open(t, cfg); b.Info().ContextTokens != 64 {
		t.Errorf("%+v", b.Info())
	}
}
