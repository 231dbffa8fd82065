package gguf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tinySHA256 changes only together with SynthVersion: cached models and recorded results refer to these bytes.
const tinySHA256 = "5858076432798777ba736c52e5e692850cdb1a1768d87705e102fbce72da5c58"

func synth(t testing.TB, s Spec, seed uint64) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := Synth(&b, s, seed, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) {
		t.Fatalf("Synth reports %d bytes, wrote %d", n, b.Len())
	}
	return b.Bytes()
}

func preset(t testing.TB, name string) Spec {
	t.Helper()
	s, err := Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// small is a shape that is quick to write, with every feature that presets use.
func small() Spec {
	return Spec{
		Name: "small", Architecture: ArchQwen2, Layers: 2, Embedding: 64, Heads: 4, KVHeads: 2, FeedForward: 96, Vocab: 512, Padding: 8,
		Context: 1024, RopeBase: 10_000, NormEpsilon: 1e-6, Tied: true, Embeddings: Q8_0, Matrices: Q4_0, PreTokenizer: "qwen2",
	}
}

func TestSynthIsDeterministic(t *testing.T) {
	tiny := synth(t, preset(t, "tiny"), 1)
	sum := sha256.Sum256(tiny)
	if got := hex.EncodeToString(sum[:]); got != tinySHA256 {
		t.Errorf("tiny with seed 1 has SHA-256 %s, want %s: raise SynthVersion if that is meant", got, tinySHA256)
	}
	if bytes.Equal(synth(t, small(), 1), synth(t, small(), 2)) {
		t.Error("seeds 1 and 2 give the same model")
	}
	if !bytes.Equal(synth(t, small(), 3), synth(t, small(), 3)) {
		t.Error("seed 3 gives two different models")
	}
}

func TestPresets(t *testing.T) {
	within := map[string][2]float64{"tiny": {5.5e6, 6.5e6}, "120m": {115e6, 125e6}, "0.5b": {494_032_768, 494_032_768}}
	for _, name := range Presets() {
		s := preset(t, name)
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		v, err := newVocabulary(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(v.tokens) != s.Vocab || len(v.types) != s.Vocab || len(v.silent) != s.Vocab {
			t.Errorf("%s: %d tokens, %d types, want %d", name, len(v.tokens), len(v.types), s.Vocab)
		}
		var parameters float64
		for _, tensor := range s.tensors(v) {
			parameters += float64(tensor.elements())
		}
		if w := within[name]; parameters < w[0] || parameters > w[1] {
			t.Errorf("%s has %.0f parameters, want %.0f to %.0f", name, parameters, w[0], w[1])
		}
	}
	if _, err := Preset("7b"); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "tiny, 120m, 0.5b") {
		t.Errorf("Preset(7b) = %v, want the list of presets", err)
	}
}

// The vocabulary must spell every byte, and each merge must join two tokens into a third, left to right.
func TestVocabularyIsComplete(t *testing.T) {
	v, err := newVocabulary(preset(t, "120m"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, token := range v.tokens {
		if known[token] {
			t.Fatalf("token %q twice", token)
		}
		known[token] = true
	}
	for b, spelled := range byteAlphabet() {
		if v.tokens[b] != spelled {
			t.Fatalf("token %d is %q, want byte %q", b, v.tokens[b], spelled)
		}
	}
	made := map[string]bool{}
	for _, spelled := range byteAlphabet() {
		made[spelled] = true
	}
	for _, merge := range v.merges {
		left, right, _ := strings.Cut(merge, " ")
		if !made[left] || !made[right] || !known[left+right] {
			t.Fatalf("merge %q joins something that is not there yet, or into no token", merge)
		}
		made[left+right] = true
	}
	if v.tokens[v.endTurn] != TurnEnd || v.tokens[v.endText] != EndOfText {
		t.Error("ids of special tokens are wrong")
	}
}

func TestSpecValidate(t *testing.T) {
	for field, change := range map[string]func(*Spec){
		"Architecture": func(s *Spec) { s.Architecture = "gpt2" },
		"Layers":       func(s *Spec) { s.Layers = 0 },
		"Heads":        func(s *Spec) { s.Heads = 0 },
		"Embedding":    func(s *Spec) { s.Embedding = 100 },
		"KVHeads":      func(s *Spec) { s.KVHeads = 3 },
		"FeedForward":  func(s *Spec) { s.FeedForward = 33 },
		"Padding":      func(s *Spec) { s.Padding = -1 },
		"Vocab":        func(s *Spec) { s.Vocab = 256 },
		"Context":      func(s *Spec) { s.Context = 0 },
		"RopeBase":     func(s *Spec) { s.RopeBase = float32(math.NaN()) },
		"NormEpsilon":  func(s *Spec) { s.NormEpsilon = 0 },
		"Embeddings":   func(s *Spec) { s.Embeddings = F32 },
		"Matrices":     func(s *Spec) { s.Matrices = 12 },
		"PreTokenizer": func(s *Spec) { s.PreTokenizer = "" },
	} {
		s := small()
		change(&s)
		if _, err := Synth(io.Discard, s, 1, nil); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), field) {
			t.Errorf("bad %s: %v", field, err)
		}
	}
}

func TestSynthReportsProgress(t *testing.T) {
	var last, total int64
	n, err := Synth(io.Discard, small(), 1, func(done, of int64) {
		if done <= last {
			t.Errorf("progress goes from %d to %d", last, done)
		}
		last, total = done, of
	})
	if err != nil || last != n || total != n {
		t.Errorf("last progress %d of %d, size %d, error %v", last, total, n, err)
	}
}

func TestSynthFileIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.gguf")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	s := preset(t, "tiny")
	_, err := SynthFile(ctx, path, s, 1, func(done, total int64) {
		if done > total/2 {
			cancel(stop)
		}
	})
	if !errors.Is(err, stop) {
		t.Errorf("cancelled SynthFile returns %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("cancelled SynthFile leaves %v", left)
	}
	size, err := SynthFile(t.Context(), path, s, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil || int64(len(written)) != size || !bytes.Equal(written, synth(t, s, 1)) {
		t.Errorf("file has %d bytes, SynthFile says %d, error %v", len(written), size, err)
	}
	if _, err := SynthFile(t.Context(), filepath.Join(dir, "none", "model.gguf"), s, 1, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("SynthFile into a missing folder returns %v", err)
	}
}

func TestFloat16(t *testing.T) {
	for _, c := range []struct {
		in  float32
		out uint16
	}{
		{0, 0}, {1, 0x3c00}, {-2, 0xc000}, {65504, 0x7bff}, {65519, 0x7bff}, {65520, 0x7c00}, {1e9, 0x7c00},
		{0x1p-14, 0x0400}, {0x1p-24, 0x0001}, {0x1p-25, 0x0000}, {0x1.8p-25, 0x0001}, {0x1p-26, 0}, {0x1.ff8p-15, 0x03ff}, {0x1.ff4p-15, 0x03fe}, {0x1.ffcp-15, 0x0400},
		{1 + 0x1p-11, 0x3c00}, {1 + 0x3p-11, 0x3c02}, {float32(math.Inf(-1)), 0xfc00}, {float32(math.NaN()), 0x7e00},
	} {
		if got := float16(c.in); got != c.out {
			t.Errorf("float16(%g) = %#04x, want %#04x", c.in, got, c.out)
		}
	}
}

// go test -bench Synth ./worker/gguf
func BenchmarkSynthTiny(b *testing.B) {
	s := preset(b, "tiny")
	for b.Loop() {
		n, err := Synth(io.Discard, s, 1, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(n)
	}
}
