//go:build llama && cgo

package llama

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cadence-slo/cadence/worker/gguf"
)

// logged collects llama.cpp's log, which comes from any thread.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var (
	llamaLog logged
	modelDir string // of the test binary's run
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if _, err := LoadModel("any", DefaultModelOptions()); !errors.Is(err, ErrNotInit) {
			fmt.Fprintln(os.Stderr, "LoadModel before Init:", err)
			return 1
		}
		logger := slog.New(slog.NewTextHandler(&llamaLog, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if err := Init(logger, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		dir, err := os.MkdirTemp("", "llama-test-*")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		modelDir = dir
		return m.Run()
	}())
}

// spec gives the shape of a preset; "small" is one with Qwen2's pre-tokenizer that is quick to write.
func spec(t testing.TB, name string) gguf.Spec {
	t.Helper()
	if name == "small" {
		return gguf.Spec{
			Name: name, Architecture: gguf.ArchQwen2, Layers: 1, Embedding: 64, Heads: 2, KVHeads: 1, FeedForward: 64, Vocab: 2048,
			Context: 4096, RopeBase: 10_000, NormEpsilon: 1e-6, Tied: true, Embeddings: gguf.Q8_0, Matrices: gguf.Q8_0, PreTokenizer: "qwen2",
		}
	}
	s, err := gguf.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// modelFile writes the model once per run and returns its path.
func modelFile(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(modelDir, name+".gguf")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if _, err := gguf.SynthFile(context.Background(), path, spec(t, name), 1, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadTest(t testing.TB, name string, options ModelOptions) *Model {
	t.Helper()
	m, err := LoadModel(modelFile(t, name), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func newTestContext(t testing.TB, m *Model, options ContextOptions) *Context {
	t.Helper()
	c, err := NewContext(m, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// smallContext is enough for most tests and quick to make.
func smallContext() ContextOptions {
	o := DefaultContextOptions()
	o.Cells, o.Sequences = 1024, 8
	return o
}

func tokenize(t testing.TB, m *Model, text string) []Token {
	t.Helper()
	tokens, err := m.Tokenize(text, true, true)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// feed decodes tokens of one sequence from position pos in chunks and returns a copy of the last logits.
func feed(t testing.TB, c *Context, s SeqID, pos Pos, tokens []Token, chunk int) []float32 {
	t.Helper()
	b := NewBatch(chunk)
	row := 0
	for i, token := range tokens {
		var err error
		if row, err = b.Add(token, pos+Pos(i), i == len(tokens)-1, s); err != nil {
			t.Fatal(err)
		}
		if b.Len() == chunk || i == len(tokens)-1 {
			if err := c.Decode(b); err != nil {
				t.Fatal(err)
			}
			b.Reset()
		}
	}
	logits, err := c.Logits(row)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), logits...)
}

func best(logits []float32) Token {
	top := 0
	for i, l := range logits {
		if l > logits[top] {
			top = i
		}
	}
	return Token(top)
}

// greedy continues a sequence that ends before pos and whose last logits are given by n tokens.
func greedy(t testing.TB, c *Context, s SeqID, pos Pos, logits []float32, n int) []Token {
	t.Helper()
	var out []Token
	for range n {
		out = append(out, best(logits))
		logits = feed(t, c, s, pos, out[len(out)-1:], 1)
		pos++
	}
	return out
}

const chat = "<|im_start|>user\nPlease explain the history of computer science in a short story.<|im_end|>\n<|im_start|>assistant\n"

func TestInitCapturesLog(t *testing.T) {
	loadTest(t, "tiny", ModelOptions{VocabOnly: true})
	if text := llamaLog.String(); !strings.Contains(text, "level=DEBUG msg=llama.cpp") || !strings.Contains(text, "vocab only - skipping tensors") {
		t.Errorf("log is %q", text)
	}
	if err := Init(slog.New(slog.DiscardHandler), ""); err != nil {
		t.Errorf("second Init: %v", err)
	}
}

func TestDevicesAndSystemInfo(t *testing.T) {
	devices, err := Devices()
	if err != nil || len(devices) == 0 || devices[len(devices)-1].Kind != "cpu" || devices[len(devices)-1].MemoryTotalBytes == 0 {
		t.Errorf("devices %+v, error %v", devices, err)
	}
	if info, err := SystemInfo(); err != nil || !strings.Contains(info, "CPU") {
		t.Errorf("system info %q, error %v", info, err)
	}
	if !Built {
		t.Error("Built is false")
	}
}
