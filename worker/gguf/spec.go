package gguf

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// ErrSpec is wrapped by every complaint about the shape of a synthetic model.
var ErrSpec = errors.New("gguf: bad model shape")

// SynthVersion goes up whenever [Synth] gives other bytes for the same shape and seed: part of a cached file's name.
const SynthVersion = 1

// Architectures that [Synth] can write.
const (
	ArchLlama = "llama"
	ArchQwen2 = "qwen2"
)

// Spec is the shape of a synthetic model: a decoder-only transformer with grouped-query attention, RoPE, RMS norm and a gated feed-forward.
type Spec struct {
	Name         string     // of the preset, a file-name-safe word
	Architecture string     // ArchLlama, or ArchQwen2, whose query, key and value projections have a bias
	Layers       int        // at least 1
	Embedding    int        // width of the residual stream; a multiple of Heads and of 32
	Heads        int        // query heads
	KVHeads      int        // key and value heads; divides Heads
	FeedForward  int        // inner width of the feed-forward; a multiple of 32
	Vocab        int        // tokens, the padding rows included
	Padding      int        // rows at the end of the vocabulary that no token uses
	Context      int        // longest context that the metadata claims, in tokens
	RopeBase     float32    // base of the rotary position frequencies
	NormEpsilon  float32    // of the RMS norms
	Tied         bool       // the output projection is the embedding matrix
	Embeddings   TensorType // of the embedding and output matrices: Q8_0, Q4_0 or F16
	Matrices     TensorType // of all others: Q8_0, Q4_0 or F16
	PreTokenizer string     // how text is cut before the merges: "llama-bpe" or "qwen2"
}

// Presets lists the names that [Preset] knows, smallest model first.
func Presets() []string { return []string{"tiny", "120m", "0.5b"} }

// Preset is a ready shape:
//
//	tiny  6 M parameters, llama, Q8_0: thousands of tokens per second on one core
//	120m  121 M parameters, qwen2, Q4_0 with Q8_0 embeddings
//	0.5b  the shape of Qwen2.5-0.5B, tokenizer size included, Q4_0 with Q8_0 embeddings
func Preset(name string) (Spec, error) {
	switch name {
	case "tiny":
		return Spec{
			Name: name, Architecture: ArchLlama, Layers: 5, Embedding: 256, Heads: 4, KVHeads: 2, FeedForward: 768, Vocab: 4096,
			Context: 8192, RopeBase: 10_000, NormEpsilon: 1e-5, Embeddings: Q8_0, Matrices: Q8_0, PreTokenizer: "llama-bpe",
		}, nil
	case "120m":
		return Spec{
			Name: name, Architecture: ArchQwen2, Layers: 12, Embedding: 768, Heads: 12, KVHeads: 4, FeedForward: 2816, Vocab: 32_000,
			Context: 32_768, RopeBase: 1_000_000, NormEpsilon: 1e-6, Tied: true, Embeddings: Q8_0, Matrices: Q4_0, PreTokenizer: "qwen2",
		}, nil
	case "0.5b":
		return Spec{
			Name: name, Architecture: ArchQwen2, Layers: 24, Embedding: 896, Heads: 14, KVHeads: 2, FeedForward: 4864, Vocab: 151_936,
			Padding: 151_936 - 151_646, Context: 32_768, RopeBase: 1_000_000, NormEpsilon: 1e-6, Tied: true, Embeddings: Q8_0,
			Matrices: Q4_0, PreTokenizer: "qwen2",
		}, nil
	}
	return Spec{}, fmt.Errorf("%w: preset %q is none of %s", ErrSpec, name, strings.Join(Presets(), ", "))
}

// minVocab is the smallest vocabulary that can encode any text: 256 bytes and the special tokens.
const minVocab = 256 + len(specialTokens)

// Validate reports the first field that [Synth] cannot write, wrapping [ErrSpec].
func (s Spec) Validate() error {
	bad := func(field string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrSpec, field, value, allowed)
	}
	quantised := func(t TensorType) bool { return t == F16 || t == Q4_0 || t == Q8_0 }
	switch {
	case s.Architecture != ArchLlama && s.Architecture != ArchQwen2:
		return bad("Architecture", s.Architecture, ArchLlama+", "+ArchQwen2)
	case s.Layers < 1 || s.Layers > 512:
		return bad("Layers", s.Layers, "1 to 512")
	case s.Heads < 1 || s.Heads > 1024:
		return bad("Heads", s.Heads, "1 to 1024")
	case s.Embedding < 32 || s.Embedding > 1<<16 || s.Embedding%32 != 0 || s.Embedding%s.Heads != 0 || s.Embedding/s.Heads%2 != 0:
		return bad("Embedding", s.Embedding, "a multiple of 32 and of twice Heads, up to 65536")
	case s.KVHeads < 1 || s.Heads%s.KVHeads != 0:
		return bad("KVHeads", s.KVHeads, "a divisor of Heads")
	case s.FeedForward < 32 || s.FeedForward > 1<<18 || s.FeedForward%32 != 0:
		return bad("FeedForward", s.FeedForward, "a multiple of 32, up to 262144")
	case s.Padding < 0 || s.Padding > s.Vocab:
		return bad("Padding", s.Padding, "0 to Vocab")
	case s.Vocab-s.Padding < minVocab || s.Vocab-s.Padding > maxVocab:
		return bad("Vocab", s.Vocab, fmt.Sprintf("%d to %d, Padding not counted", minVocab, maxVocab))
	case s.Context < 1 || s.Context > math.MaxInt32:
		return bad("Context", s.Context, "1 to 2147483647")
	case !(s.RopeBase > 0):
		return bad("RopeBase", s.RopeBase, "above 0")
	case !(s.NormEpsilon > 0):
		return bad("NormEpsilon", s.NormEpsilon, "above 0")
	case !quantised(s.Embeddings):
		return bad("Embeddings", s.Embeddings, "F16, Q4_0, Q8_0")
	case !quantised(s.Matrices):
		return bad("Matrices", s.Matrices, "F16, Q4_0, Q8_0")
	case s.PreTokenizer != "llama-bpe" && s.PreTokenizer != "qwen2":
		return bad("PreTokenizer", s.PreTokenizer, "llama-bpe, qwen2")
	}
	return nil
}
