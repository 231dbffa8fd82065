//go:build llama && cgo

package llama

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/worker/gguf"
)

func TestFacts(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	f := m.Facts()
	s := spec(t, "tiny")
	if f.Name != "synth-tiny-s1" || f.Architecture != "llama" || f.Quantisation != "Q8_0" || !strings.Contains(f.Description, "Q8_0") ||
		f.Parameters != 6_032_128 || f.SizeBytes < 6_000_000 || f.Vocab != s.Vocab || f.ContextTokens != s.Context || f.Layers != s.Layers ||
		f.KVBytes != 2560 || f.BOSText != gguf.EndOfText || f.EOSText != gguf.TurnEnd || f.EOS != Token(s.Vocab-1) || f.AddBOS || f.AddEOS ||
		f.ChatTemplate != gguf.ChatTemplate || f.VocabOnly || f.Path != modelFile(t, "tiny") {
		t.Errorf("facts are %+v", f)
	}
	if v, ok := m.Metadata("llama.context_length"); !ok || v != "8192" {
		t.Errorf("context_length is %q, %t", v, ok)
	}
	if v, ok := m.Metadata("tokenizer.chat_template"); !ok || v != gguf.ChatTemplate {
		t.Errorf("chat_template is %q, %t", v, ok)
	}
	for _, key := range []string{"none", "tokenizer.ggml.tokens"} {
		if v, ok := m.Metadata(key); ok {
			t.Errorf("%s is %q", key, v)
		}
	}
	if !m.IsEOG(f.EOS) || !m.IsEOG(f.BOS) || m.IsEOG('a') || m.IsEOG(-1) || m.IsEOG(Token(f.Vocab)) {
		t.Error("IsEOG is wrong")
	}
	if !m.IsControl(f.EOS) || m.IsControl('a') || m.IsControl(-1) || m.IsControl(Token(f.Vocab)) {
		t.Error("IsControl is wrong")
	}
}

func TestLoadModelErrors(t *testing.T) {
	dir := t.TempDir()
	good, err := os.ReadFile(modelFile(t, "small"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("model file has no %q", old)
		}
		return bytes.ReplaceAll(good, []byte(old), []byte(new))
	}
	for name, c := range map[string]struct {
		path string
		want error
		says string
	}{
		"missing":              {filepath.Join(dir, "absent.gguf"), fs.ErrNotExist, "absent.gguf"},
		"no model":             {write("text.gguf", []byte("this is no model")), gguf.ErrNotGGUF, "text.gguf"},
		"truncated":            {write("half.gguf", good[:len(good)/2]), gguf.ErrTruncated, "half.gguf"},
		"unknown architecture": {write("arch.gguf", replace("qwen2", "qwen?")), ErrLoad, "unknown model architecture: 'qwen?'"},
		"missing tensor":       {write("tensor.gguf", replace("output_norm.weight", "output_nerm.weight")), ErrLoad, "missing tensor 'output_norm.weight'"},
		"missing key":          {write("key.gguf", replace("qwen2.block_count", "qwen2.block_caunt")), ErrLoad, "qwen2.block_count"},
		"unknown tokenizer":    {write("tokenizer.gguf", replace("\x04\x00\x00\x00\x00\x00\x00\x00gpt2", "\x04\x00\x00\x00\x00\x00\x00\x00gpt9")), ErrLoad, "unknown tokenizer"},
		"no tokenizer":         {write("none.gguf", replace("\x04\x00\x00\x00\x00\x00\x00\x00gpt2", "\x04\x00\x00\x00\x00\x00\x00\x00none")), ErrUnsupported, "no tokenizer"},
	} {
		m, err := LoadModel(c.path, DefaultModelOptions())
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !errors.Is(err, ErrLoad) && !errors.Is(c.want, ErrUnsupported) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.says)
		}
		if m != nil {
			t.Errorf("%s: model returned", name)
		}
	}
	if _, err := LoadModel(modelFile(t, "small"), ModelOptions{GPULayers: -1}); !errors.Is(err, ErrOptions) {
		t.Errorf("bad option: %v", err)
	}
}

func TestCloseOrder(t *testing.T) {
	m, err := LoadModel(modelFile(t, "small"), DefaultModelOptions())
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewContext(m, smallContext())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); !errors.Is(err, ErrInUse) {
		t.Errorf("closing a model in use: %v", err)
	}
	feed(t, c, 0, 0, []Token{1, 2, 3}, 3) // both still work
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("closing the context: %v", err)
		}
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Errorf("closing the model: %v", err)
		}
	}
	b := NewBatch(1)
	if _, err := b.Add(1, 0, true, 0); err != nil {
		t.Fatal(err)
	}
	_, tokenize := m.Tokenize("a", false, false)
	_, piece := m.AppendPiece(nil, 1, false)
	_, context := NewContext(m, smallContext())
	_, logits := c.Logits(0)
	_, position := c.SeqPosMax(0)
	for name, err := range map[string]error{
		"Tokenize": tokenize, "AppendPiece": piece, "NewContext": context, "Logits": logits, "SeqPosMax": position, "Decode": c.Decode(b),
		"SeqCopy": c.SeqCopy(0, 1, 0, -1), "SeqRemove": c.SeqRemove(0, 0, -1), "SetThreads": c.SetThreads(1, 1),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	c.Clear()
	c.Interrupt()
	if m.IsEOG(0) || m.IsControl(0) || m.Facts().Vocab != 2048 {
		t.Error("closed model answers wrongly")
	}
	if _, ok := m.Metadata("general.name"); ok {
		t.Error("closed model has metadata")
	}
}
