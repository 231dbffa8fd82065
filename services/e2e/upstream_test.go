package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/llamaserver"
	"github.com/cadence-slo/cadence/schema"
)

// exact are flags with which a llama-server's answer to a request does not depend on those before.
var exact = []string{"--no-cache-prompt", "--flash-attn", "off"}

// startUpstream runs the real llama-server on a model of random weights.
func startUpstream(t *testing.T, model string) *llamaserver.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	s, err := llamaserver.Start(ctx, llamaserver.Options{Model: model, Threads: 1, Slots: 4, Context: 16384, ExtraArgs: exact})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("llama-server said:\n%s", s.Process().Tail(40))
		}
	})
	return s
}

// synthetic makes the model.
func synthetic(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if out, err := exec.CommandContext(t.Context(), binary, "model", "synth", "tiny", "--out", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// completed is what a server made of a prompt.
type completed struct {
	Text   string
	Finish string
	Usage  struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

// complete streams a completion and calls more, if not nil, after each event with text. An answer without [DONE] is an
// error.
func complete(ctx context.Context, url string, body map[string]any, more func()) (completed, error) {
	var c completed
	body["stream"], body["stream_options"] = true, map[string]bool{"include_usage": true}
	text, err := json.Marshal(body)
	if err != nil {
		return c, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(text))
	if err != nil {
		return c, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, err := io.ReadAll(resp.Body)
		return c, errors.Join(fmt.Errorf("%s: %s", resp.Status, said), err)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return c, nil
		}
		var chunk struct {
			Error   json.RawMessage
			Choices []struct {
				Text   string
				Finish string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Error) > 0 {
			return c, errors.Join(fmt.Errorf("event %s", data), err)
		}
		for _, x := range chunk.Choices {
			c.Text += x.Text
			if x.Finish != "" {
				c.Finish = x.Finish
			}
			if x.Text != "" && more != nil {
				more()
			}
		}
		if chunk.Usage != nil {
			c.Usage.Prompt, c.Usage.Completion = chunk.Usage.Prompt, chunk.Usage.Completion
		}
	}
	return c, errors.Join(errors.New("no [DONE]"), lines.Err())
}

// A worker in front of the real llama-server says what that says, and counts as it counts.
func TestUpstreamSaysTheSame(t *testing.T) {
	model := synthetic(t)
	peer := startUpstream(t, model)
	s := startUp(t, "--no-analytics", "--backend", "openai", "--tokenizer", model, "--upstream", peer.URL)
	for _, c := range []struct {
		prompt string
		max    int
	}{
		{"Once upon a time", 40}, {"The quick brown fox", 200}, {"naïve 東京 😀", 60}, {strings.Repeat("word ", 300), 30}, {"x", 1}, {"fn main() {\n\t", 500},
	} {
		body := map[string]any{"prompt": c.prompt, "max_tokens": c.max, "temperature": 0}
		want, err := complete(t.Context(), peer.URL, body, nil)
		if err != nil {
			t.Fatal(err)
		}
		body["model"] = s.model()
		got, err := complete(t.Context(), s.url, body, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%q:\n got %+v\nwant %+v", c.prompt, got, want)
		}
		if len(want.Text) == 0 {
			t.Errorf("%q: the server says nothing", c.prompt)
		}
	}
}

// native asks llama-server's own API.
func native(t *testing.T, url, path string, body, answer any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+path, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(said, answer)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s, %v", path, resp.Status, said, err)
	}
}

// A llama-server is killed (SIGKILL) under a stream. The stream goes on at another worker's from the token where it was,
// so that its text is what the first had said and what the second makes of that; the worker whose server is gone takes
// no more requests.
func TestUpstreamDies(t *testing.T) {
	const prompt, total = "Once upon a time", 1500
	model := synthetic(t)
	peers := map[string]*llamaserver.Server{"worker-a": startUpstream(t, model), "worker-b": startUpstream(t, model)}
	front := func(name string) []string {
		return []string{"--backend", "openai", "--tokenizer", model, "--upstream", peers[name].URL}
	}
	d := deploy(t, []string{"worker-a"}, front("worker-a")...)
	events := 0
	got, err := complete(t.Context(), d.url, map[string]any{"model": d.model(), "prompt": prompt, "max_tokens": total, "temperature": 0, "ignore_eos": true}, func() {
		if events++; events != 20 {
			return
		}
		d.services["worker-b"] = &service{args: append([]string{"worker", "--nats-url", d.natsURL, "--name", "worker-b", "--metrics-listen", freeAddr(t)}, front("worker-b")...)}
		if err := peers["worker-a"].Kill(); err != nil {
			t.Error(err)
		}
		if err := d.restart("worker-b"); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := said(d.services["worker-a"].p, "worker fenced"); err != nil {
		t.Error(err)
	}
	splice, log := 0, d.log()
	eventually(t, 10*time.Second, "the seal in the log", func() error {
		stored, err := log.read()
		for _, e := range stored {
			if e.Type == schema.Sealed {
				splice = int(e.OutputTokens)
				return nil
			}
		}
		return errors.Join(errors.New("no sealed"), err)
	})
	if splice < 20 || splice >= total {
		t.Fatalf("sealed after %d tokens", splice)
	}
	// What the servers say themselves; both say the same to the same request.
	peer := peers["worker-b"].URL
	var ids struct{ Tokens []int }
	native(t, peer, "/tokenize", map[string]any{"content": prompt, "add_special": true, "parse_special": true}, &ids)
	greedy := func(n int) (out struct {
		Content string
		Tokens  []int
	}) {
		native(t, peer, "/completion", map[string]any{"prompt": ids.Tokens, "n_predict": n, "temperature": 0, "ignore_eos": true, "return_tokens": true}, &out)
		return out
	}
	want := completed{Finish: "length"}
	want.Usage.Prompt, want.Usage.Completion = len(ids.Tokens), total
	first := greedy(total)
	ids.Tokens = append(ids.Tokens, first.Tokens[:splice]...)
	var before struct{ Content string }
	native(t, peer, "/detokenize", map[string]any{"tokens": first.Tokens[:splice]}, &before)
	want.Text = before.Content + greedy(total-splice).Content
	if got != want {
		t.Errorf("spliced after %d tokens:\n got %+v\nwant %+v", splice, got, want)
	}
}

// The last worker's server dies: the client is told, and nothing looks like an end.
func TestUpstreamDiesAlone(t *testing.T) {
	model := synthetic(t)
	peer := startUpstream(t, model)
	s := startUp(t, "--no-analytics", "--scheduler-max-queue-wait", "2s", "--backend", "openai", "--tokenizer", model, "--upstream", peer.URL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events := 0
	got, err := complete(ctx, s.url, map[string]any{"model": s.model(), "prompt": "Once upon a time", "max_tokens": 1500, "temperature": 0, "ignore_eos": true}, func() {
		if events++; events == 20 {
			if err := peer.Kill(); err != nil {
				t.Error(err)
			}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "error") || events < 20 || got.Finish != "" || ctx.Err() != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}
