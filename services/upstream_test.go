package services

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/mock"
	"github.com/cadence-slo/cadence/worker/openai"
)

// A worker in front of another server has the tokenizer's name and vocabulary, and the server's sizes.
func TestOpenUpstream(t *testing.T) {
	keys := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		keys <- r.Header.Get("Authorization")
		if _, err := io.WriteString(w, `{"data":[{"id":"theirs","max_model_len":777}]}`); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cli, err := parse(t, "worker", "--nats-url=nats://h:1", "--backend=openai", "--tokenizer=mock", "--upstream="+srv.URL+"/v1/", "--upstream-key-file="+key, "--permits=5")
	if err != nil {
		t.Fatal(err)
	}
	w := &cli.Worker
	e, err := openEngine(t.Context(), testGlobals(t), &w.ModelFlags, &w.EngineFlags, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := <-keys; got != "Bearer sk-1" {
		t.Errorf("key %q", got)
	}
	i := e.backend.Info()
	if i.Backend != "openai" || i.Model != e.model.Name || i.Vocab != mock.Vocab || i.Sequences != 5 || i.ContextTokens != 777 || e.model.ContextTokens != 777 {
		t.Errorf("%+v, %+v", i, e.model)
	}
	// Clients ask for it as they would ask the server, or by a name of ours.
	if want := []string{"theirs", "default"}; !slices.Equal(e.model.Aliases, want) {
		t.Errorf("aliases %q, want %q", e.model.Aliases, want)
	}
	// The ingress needs no server.
	front, err := openEngine(t.Context(), testGlobals(t), &w.ModelFlags, &EngineFlags{KVTokens: 1024, Sequences: 1, EngineBatch: 64, Threads: 1}, true)
	if err != nil || front.backend != nil || front.model.Name != e.model.Name {
		t.Errorf("%+v, %v", front, err)
	}
}

// An ingress alone is told the server's name for the model, if clients are to use it; of a file, the file's.
func TestUpstreamName(t *testing.T) {
	for name, want := range map[string][]string{
		"": {"default"}, "Qwen/Qwen2.5-0.5B": {"Qwen/Qwen2.5-0.5B", "default"}, "/models/q.gguf": {"q", "default"}, "default": {"default"}, "mock": {"default"},
	} {
		m := ModelFlags{Backend: backendOpenAI, Model: "synth:tiny", Tokenizer: backendMock}
		e, err := openEngine(t.Context(), testGlobals(t), &m, &EngineFlags{KVTokens: 1024, Sequences: 1, EngineBatch: 64, Threads: 1, UpstreamFlags: UpstreamFlags{UpstreamModel: name}}, true)
		if err != nil || !slices.Equal(e.model.Aliases, want) {
			t.Errorf("%q: %+v, %v", name, e, err)
		}
	}
}

// What is wrong with the flags is told with their names, before anything is asked of a server.
func TestUpstreamFlags(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := UpstreamFlags{Upstream: "http://127.0.0.1:1", UpstreamDialect: "auto", UpstreamPrompt: "ids", UpstreamFirstToken: time.Second, UpstreamStall: time.Second}
	for name, c := range map[string]struct {
		change func(*UpstreamFlags)
		want   error
		says   string
	}{
		"no server":  {func(u *UpstreamFlags) { u.Upstream = "" }, ErrFlags, "upstream is empty"},
		"no key":     {func(u *UpstreamFlags) { u.UpstreamKeyFile = missing }, ErrFlags, "upstream-key-file"},
		"empty key":  {func(u *UpstreamFlags) { u.UpstreamKeyFile = empty }, ErrFlags, "upstream-key-file"},
		"no address": {func(u *UpstreamFlags) { u.Upstream = "127.0.0.1:1" }, openai.ErrConfig, "url is"},
		"permits":    {func(u *UpstreamFlags) { u.Permits = 257 }, openai.ErrConfig, "permits is 257"},
		"stall":      {func(u *UpstreamFlags) { u.UpstreamStall = 0 }, openai.ErrConfig, "stall is"},
	} {
		u := good
		c.change(&u)
		m := ModelFlags{Backend: backendOpenAI, Model: "synth:tiny", Tokenizer: backendMock}
		_, err := openEngine(t.Context(), testGlobals(t), &m, &EngineFlags{KVTokens: 1024, Sequences: 1, EngineBatch: 64, Threads: 1, UpstreamFlags: u}, false)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
