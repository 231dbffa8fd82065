package batch

import (
	"errors"
	"fmt"
)

// ErrConfig is returned by Config.Validate; the message names the key and the allowed values.
var ErrConfig = errors.New("batch: invalid configuration")

// Config bounds a step. It does not change in a Planner's life.
type Config struct {
	PageTokens  int // tokens in a KV page, ≥ 1
	KVPages     int // pages of the engine's KV cache, ≥ 1
	Sequences   int // sequence ids, in [1, 256] (llama.cpp's limit)
	MaxBatch    int // sequences that run at once, in [1, Sequences]
	BatchTokens int // tokens fed in one step, ≥ MaxBatch
	ChunkTokens int // tokens of one sequence's prefill fed in one step, in [1, BatchTokens]
	// ContextTokens bounds prompt and output of one sequence, ≥ 2.
	ContextTokens int
}

// DefaultConfig returns a configuration for a small engine: 8,192 tokens of KV, 32 sequences.
func DefaultConfig() Config {
	return Config{
		PageTokens: 16, KVPages: 512, Sequences: 32, MaxBatch: 32, BatchTokens: 512, ChunkTokens: 256, ContextTokens: 4096,
	}
}

// Validate returns ErrConfig for the first key that is outside its range.
func (c *Config) Validate() error {
	in := func(key string, v, lo, hi int) error {
		if v < lo || v > hi {
			return fmt.Errorf("%w: %s is %d, allowed are %d to %d", ErrConfig, key, v, lo, hi)
		}
		return nil
	}
	const many = 1 << 30
	return errors.Join(
		in("page_tokens", c.PageTokens, 1, 1<<16),
		in("kv_pages", c.KVPages, 1, many),
		in("sequences", c.Sequences, 1, 256),
		in("max_batch", c.MaxBatch, 1, c.Sequences),
		in("batch_tokens", c.BatchTokens, c.MaxBatch, many),
		in("chunk_tokens", c.ChunkTokens, 1, c.BatchTokens),
		in("context_tokens", c.ContextTokens, 2, many),
	)
}

// Pages returns how many pages hold the given number of tokens.
func (c *Config) Pages(tokens int) int { return (tokens + c.PageTokens - 1) / c.PageTokens }

// Longest returns the largest prompt + output that one sequence can have: the context, or all of the KV cache.
func (c *Config) Longest() int { return min(c.ContextTokens, c.KVPages*c.PageTokens) }
