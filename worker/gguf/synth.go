package gguf

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// Scales of the random weights, in units of 1/sqrt(fan-in). They are chosen so that what the model says depends on the
// whole of its prompt and that its best token leads by a margin: text that stays the same whatever the prompt would hide a
// cache that mixes up its sequences, and near-ties would flip with the batch size.
const (
	logitScale     = 3.0 // deviation of the logits
	attentionScale = 3.0 // of queries and keys: how sharply attention selects
	valueScale     = 2.0 // of values and of what attention adds to the residual stream
	forwardScale   = 1.0 // of the feed-forward
	normSpread     = 0.05
	biasSpread     = 0.1
)

// tensors lists the weights in file order.
func (s Spec) tensors(v vocabulary) []*tensor {
	var list []*tensor
	add := func(t *tensor) { list = append(list, t) }
	vector := func(name string, n int, mean float32, std float64) {
		add(&tensor{name: name, dims: []int{n}, kind: F32, mean: mean, std: std})
	}
	matrix := func(name string, in, out int, scale float64) {
		add(&tensor{name: name, dims: []int{in, out}, kind: s.Matrices, std: scale / math.Sqrt(float64(in))})
	}
	vocabulary := func(name string, silent []bool) {
		add(&tensor{name: name, dims: []int{s.Embedding, s.Vocab}, kind: s.Embeddings, std: logitScale / math.Sqrt(float64(s.Embedding)), silent: silent})
	}
	if s.Tied {
		vocabulary("token_embd.weight", v.silent)
	} else {
		vocabulary("token_embd.weight", nil)
		vocabulary("output.weight", v.silent)
	}
	vector("output_norm.weight", s.Embedding, 1, normSpread)
	kv := s.Embedding / s.Heads * s.KVHeads
	for l := range s.Layers {
		block := fmt.Sprintf("blk.%d.", l)
		vector(block+"attn_norm.weight", s.Embedding, 1, normSpread)
		matrix(block+"attn_q.weight", s.Embedding, s.Embedding, attentionScale)
		matrix(block+"attn_k.weight", s.Embedding, kv, attentionScale)
		matrix(block+"attn_v.weight", s.Embedding, kv, valueScale)
		if s.Architecture == ArchQwen2 {
			vector(block+"attn_q.bias", s.Embedding, 0, biasSpread)
			vector(block+"attn_k.bias", kv, 0, biasSpread)
			vector(block+"attn_v.bias", kv, 0, biasSpread)
		}
		matrix(block+"attn_output.weight", s.Embedding, s.Embedding, valueScale)
		vector(block+"ffn_norm.weight", s.Embedding, 1, normSpread)
		matrix(block+"ffn_gate.weight", s.Embedding, s.FeedForward, forwardScale)
		matrix(block+"ffn_up.weight", s.Embedding, s.FeedForward, forwardScale)
		matrix(block+"ffn_down.weight", s.FeedForward, s.Embedding, forwardScale)
	}
	return list
}

// metadata lists the pairs in file order.
func (s Spec) metadata(v vocabulary, seed uint64) []entry {
	fileType := map[TensorType]uint32{F16: 1, Q4_0: 2, Q8_0: 7}[s.Matrices]
	arch := s.Architecture + "."
	return []entry{
		{"general.architecture", s.Architecture},
		{"general.type", "model"},
		{"general.name", fmt.Sprintf("synth-%s-s%d", s.Name, seed)},
		{"general.file_type", fileType},
		{"general.quantization_version", uint32(2)},
		{arch + "block_count", uint32(s.Layers)},
		{arch + "context_length", uint32(s.Context)},
		{arch + "embedding_length", uint32(s.Embedding)},
		{arch + "feed_forward_length", uint32(s.FeedForward)},
		{arch + "attention.head_count", uint32(s.Heads)},
		{arch + "attention.head_count_kv", uint32(s.KVHeads)},
		{arch + "attention.layer_norm_rms_epsilon", s.NormEpsilon},
		{arch + "rope.freq_base", s.RopeBase},
		{arch + "rope.dimension_count", uint32(s.Embedding / s.Heads)},
		{arch + "vocab_size", uint32(s.Vocab)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", s.PreTokenizer},
		{"tokenizer.ggml.tokens", v.tokens},
		{"tokenizer.ggml.token_type", v.types},
		{"tokenizer.ggml.merges", v.merges},
		{"tokenizer.ggml.bos_token_id", v.endText},
		{"tokenizer.ggml.eos_token_id", v.endTurn},
		{"tokenizer.ggml.padding_token_id", v.endText},
		{"tokenizer.ggml.add_bos_token", false},
		{"tokenizer.chat_template", ChatTemplate},
	}
}

// Synth writes a random model of shape s to w and returns its length in bytes. Equal arguments give equal bytes.
//
// The output rows of special tokens, padding and unprintable bytes are zero, so their logits are exactly 0 while the best
// of the others is far above: greedy decoding never ends a turn by itself and always gives printable ASCII. Sampling at
// temperature 1 picks a given silent token with a probability of about exp(-logit deviation²/2) / vocabulary, one in
// 400,000 per step for tiny, so a turn can end that way: tests that need a length ignore the end token. A logit bias on the
// end token reaches it at once.
//
// progress, unless nil, is called from this goroutine after every tensor. An error is that of w, or wraps [ErrSpec].
func Synth(w io.Writer, s Spec, seed uint64, progress func(done, total int64)) (int64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	v, err := newVocabulary(s)
	if err != nil {
		return 0, err
	}
	tensors := s.tensors(v)
	head, err := newHeader(s.metadata(v, seed), tensors)
	if err != nil {
		return 0, err
	}
	total := int64(head.Len())
	for _, t := range tensors {
		total += t.size() + padding(t.size())
	}
	done := int64(head.Len())
	buffered := bufio.NewWriterSize(w, 1<<20)
	if _, err := buffered.Write(head.Bytes()); err != nil {
		return 0, err
	}
	for i, t := range tensors {
		if err := t.write(buffered, seed, uint64(i)); err != nil {
			return done, err
		}
		if _, err := buffered.Write(make([]byte, padding(t.size()))); err != nil {
			return done, err
		}
		done += t.size() + padding(t.size())
		if progress != nil {
			progress(done, total)
		}
	}
	return done, buffered.Flush()
}

// SynthFile writes the model to path so that path never holds half a model: a temporary file beside it is written, synced and
// renamed. It stops with the context's error when ctx ends. See [Synth] for the rest.
func SynthFile(ctx context.Context, path string, s Spec, seed uint64, progress func(done, total int64)) (int64, error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return 0, fmt.Errorf("gguf: write %s: %w", path, err)
	}
	size, err := Synth(contextWriter{ctx, f}, s, seed, progress)
	if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return 0, fmt.Errorf("gguf: write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return size, syncDir(dir)
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	// Some file systems cannot sync a directory; the rename then is as durable as they make it.
	_ = d.Sync()
	return d.Close()
}

// contextWriter stops writing when its context ends.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.w.Write(p)
}
