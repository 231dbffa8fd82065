package llama

import (
	"errors"
	"fmt"
	"runtime"
)

// Token is an entry of the model's vocabulary, in [0, Facts.Vocab).
type Token = int32

// NoToken stands for a special token that the model does not have.
const NoToken Token = -1

// SeqID names a sequence of a context, in [0, ContextOptions.Sequences).
type SeqID = int32

// Pos is the position of a token in its sequence, from 0.
type Pos = int32

// MaxSequences is the most sequences that one context can hold.
const MaxSequences = 256

// Errors of this package. What a function returns wraps one of them and says which file, token or sequence it was.
var (
	ErrNotBuilt      = errors.New("llama: built without llama.cpp: rebuild with `make build`")
	ErrNotInit       = errors.New("llama: Init has not been called")
	ErrInit          = errors.New("llama: initialisation failed")
	ErrOptions       = errors.New("llama: bad option")
	ErrLoad          = errors.New("llama: model cannot be loaded")
	ErrUnsupported   = errors.New("llama: model is of a kind that cannot be served")
	ErrVocabOnly     = errors.New("llama: model was loaded without weights")
	ErrContext       = errors.New("llama: context cannot be created")
	ErrClosed        = errors.New("llama: already closed")
	ErrInUse         = errors.New("llama: model still has open contexts")
	ErrBadToken      = errors.New("llama: token is not in the vocabulary")
	ErrTokenize      = errors.New("llama: text cannot be tokenized")
	ErrBatchFull     = errors.New("llama: batch is full")
	ErrBadBatch      = errors.New("llama: invalid batch")
	ErrNoSlot        = errors.New("llama: no free KV cells for the batch")
	ErrAborted       = errors.New("llama: decoding was interrupted")
	ErrDecode        = errors.New("llama: decoding failed")
	ErrNoLogits      = errors.New("llama: row has no logits")
	ErrBadSequence   = errors.New("llama: bad sequence or range")
	ErrGrammar       = errors.New("llama: text is no grammar")
	ErrNotAllowed    = errors.New("llama: the grammar does not allow the token")
	ErrPartialRemove = errors.New("llama: model cannot forget part of a sequence")
)

// Device is something that llama.cpp can compute on.
type Device struct {
	Name             string `json:"name"`
	Description      string `json:"description"`
	Kind             string `json:"kind"` // cpu, gpu, igpu or accel
	MemoryFreeBytes  uint64 `json:"memory_free_bytes"`
	MemoryTotalBytes uint64 `json:"memory_total_bytes"`
}

// ModelOptions says how [LoadModel] loads.
type ModelOptions struct {
	VocabOnly bool // tokenizer and metadata only: no weights, no [NewContext]
	GPULayers int  // how many layers to put on a GPU, where a backend for one is loaded; 0 or more
	Mmap      bool // map the file instead of reading it
	Mlock     bool // keep the weights in memory, where the system lets us
	Repack    bool // rearrange weights for the CPU's vector units: 2 × faster prefill for more loading time and memory
}

// DefaultModelOptions is a full model on the CPU.
func DefaultModelOptions() ModelOptions { return ModelOptions{Mmap: true, Repack: true} }

// Validate wraps [ErrOptions].
func (o ModelOptions) Validate() error {
	if o.GPULayers < 0 || o.GPULayers > 1<<20 {
		return fmt.Errorf("%w: GPULayers is %d, allowed: 0 to %d", ErrOptions, o.GPULayers, 1<<20)
	}
	return nil
}

// ContextOptions sizes a [Context].
type ContextOptions struct {
	Cells            int // KV cells of all sequences together, one per token; rounded up to a multiple of 256
	BatchTokens      int // most tokens in one Decode; at most Cells
	MicroBatchTokens int // most tokens that are computed at once, which sizes the compute buffers; at most BatchTokens
	Sequences        int // sequence ids; at most MaxSequences
	Threads          int // for batches of one token
	BatchThreads     int // for larger batches
}

// DefaultContextOptions suits a small model: 8,192 cells, 64 sequences, one thread. More threads than idle cores make decoding
// slower by orders of magnitude, because they spin at barriers.
func DefaultContextOptions() ContextOptions {
	return ContextOptions{Cells: 8192, BatchTokens: 512, MicroBatchTokens: 512, Sequences: 64, Threads: 1, BatchThreads: 1}
}

// Validate wraps [ErrOptions] and names the first option that is out of range.
func (o ContextOptions) Validate() error {
	maxThreads := max(512, runtime.NumCPU())
	for _, c := range []struct {
		name        string
		value, most int
		reason      string
	}{
		{"Cells", o.Cells, 1 << 24, ""},
		{"BatchTokens", o.BatchTokens, o.Cells, " (Cells)"},
		{"MicroBatchTokens", o.MicroBatchTokens, o.BatchTokens, " (BatchTokens)"},
		{"Sequences", o.Sequences, MaxSequences, ""},
		{"Threads", o.Threads, maxThreads, ""},
		{"BatchThreads", o.BatchThreads, maxThreads, ""},
	} {
		if c.value < 1 || c.value > c.most {
			return fmt.Errorf("%w: %s is %d, allowed: 1 to %d%s", ErrOptions, c.name, c.value, c.most, c.reason)
		}
	}
	return nil
}

// Facts is what is known of a loaded model. Texts are "" and numbers 0 when the file does not state them.
type Facts struct {
	Path          string `json:"path"`
	Name          string `json:"name"`
	Architecture  string `json:"architecture"`
	Description   string `json:"description"`
	Quantisation  string `json:"quantisation"`
	Parameters    uint64 `json:"parameters"`
	SizeBytes     uint64 `json:"size_bytes"` // of the weights
	Vocab         int    `json:"vocab_tokens"`
	ContextTokens int    `json:"context_tokens"` // what the model was trained for
	Layers        int    `json:"layers"`
	KVBytes       uint64 `json:"kv_bytes_per_token"`
	BOS           Token  `json:"bos_id"` // NoToken when there is none
	EOS           Token  `json:"eos_id"` // NoToken when there is none
	BOSText       string `json:"bos_text"`
	EOSText       string `json:"eos_text"`
	AddBOS        bool   `json:"add_bos"` // Tokenize with addSpecial puts BOS in front
	AddEOS        bool   `json:"add_eos"` // Tokenize with addSpecial puts EOS at the end
	ChatTemplate  string `json:"chat_template"`
	VocabOnly     bool   `json:"vocab_only"`
}
