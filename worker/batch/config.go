package batch

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
)

// ErrConfig is returned by Config.Validate; the message names the key and the allowed values.
var ErrConfig = errors.New("batch: invalid configuration")

// Mode says when waiting sequences may join.
type Mode string

// The modes; the empty one is Continuous.
const (
	// Continuous lets a sequence join in any step that has room for it.
	Continuous Mode = "continuous"
	// Static waits until MaxBatch sequences wait, or one has waited for StaticWait, starts them together, and admits
	// nobody before the last has ended.
	Static Mode = "static"
	// FIFO runs one sequence at a time.
	FIFO Mode = "fifo"
)

// Order says who gets a step's token budget first. The other gets what is left, which may be nothing: with PrefillFirst, a
// steady stream of prompts longer than the budget holds up those that decode.
type Order string

// The orders; the empty one is DecodeFirst.
const (
	DecodeFirst  Order = "decode_first"
	PrefillFirst Order = "prefill_first"
)

// Config bounds a step. It does not change in a Planner's life.
type Config struct {
	PageTokens  int // tokens in a KV page, ≥ 1
	KVPages     int // pages of the engine's KV cache, ≥ 1
	Sequences   int // sequence ids, in [1, 256] (llama.cpp's limit); those that no running sequence needs hold cached prefixes
	MaxBatch    int // sequences that run at once, in [1, Sequences]
	BatchTokens int // tokens fed in one step, ≥ MaxBatch
	ChunkTokens int // tokens of one sequence's prefill fed in one step, in [1, BatchTokens]
	// ContextTokens bounds prompt and output of one sequence, ≥ 2.
	ContextTokens int

	Mode       Mode
	StaticWait time.Duration // ≥ 0
	Order      Order
	// ITLTarget, if above 0, shrinks prefill so that a step in which sequences decode is predicted to take no longer.
	ITLTarget time.Duration
	// Contiguous reserves one run of pages for the whole of a sequence when it starts, instead of pages as it grows.
	Contiguous bool
	// PrefixCache keeps the cells of prompts and finds them again. It needs paged allocation.
	PrefixCache bool
	// CacheOutput also keeps what was generated, for the next turn of a conversation.
	CacheOutput bool
	// Overcommit is how many pages may be promised to running sequences for each that there is, in [1, 16]; 0 is 1.
	// Sequences seldom reach their longest output: above 1 more of them run, and some may be preempted.
	Overcommit float64
	// MaxPreemptions is how often a sequence gives way before it is spared as long as another can; 0 is 3.
	MaxPreemptions int
	// Speed is the engine's, for as long as too few steps were seen to tell it; the zero value is not known.
	Speed deadline.Speed
}

// DefaultConfig returns a configuration for a small engine: 8,192 tokens of KV, 32 running sequences.
func DefaultConfig() Config {
	return Config{
		PageTokens: 16, KVPages: 512, Sequences: 64, MaxBatch: 32, BatchTokens: 512, ChunkTokens: 256, ContextTokens: 4096,
		PrefixCache: true,
	}
}

// Validate returns ErrConfig for each key that is outside its range.
func (c *Config) Validate() error {
	in := func(key string, v, lo, hi int) error {
		if v < lo || v > hi {
			return fmt.Errorf("%w: %s is %d, allowed are %d to %d", ErrConfig, key, v, lo, hi)
		}
		return nil
	}
	one := func(key string, ok bool, v any, allowed string) error {
		if !ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, key, v, allowed)
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
		one("mode", c.Mode == "" || c.Mode == Continuous || c.Mode == Static || c.Mode == FIFO, c.Mode, "continuous, static, fifo"),
		one("order", c.Order == "" || c.Order == DecodeFirst || c.Order == PrefillFirst, c.Order, "decode_first, prefill_first"),
		one("static_wait", c.StaticWait >= 0, c.StaticWait, "0 and more"),
		one("itl_target", c.ITLTarget >= 0, c.ITLTarget, "0 (off) and more"),
		one("prefix_cache", !c.PrefixCache || !c.Contiguous, c.PrefixCache, "false with contiguous allocation"),
		one("cache_output", !c.CacheOutput || c.PrefixCache, c.CacheOutput, "false without a prefix cache"),
		one("overcommit", c.Overcommit == 0 || c.Overcommit >= 1 && c.Overcommit <= 16, c.Overcommit, "1 to 16"),
		in("max_preemptions", c.MaxPreemptions, 0, many),
		one("speed", c.Speed.PrefillToken >= 0 && c.Speed.Step >= 0, c.Speed, "0 (not known) and more"),
	)
}

// Pages returns how many pages hold the given number of tokens.
func (c *Config) Pages(tokens int) int { return (tokens + c.PageTokens - 1) / c.PageTokens }

// Longest returns the largest prompt + output that one sequence can have: the context, or all of the KV cache.
func (c *Config) Longest() int { return min(c.ContextTokens, c.KVPages*c.PageTokens) }

// Promises returns how many pages may be promised to running sequences.
func (c *Config) Promises() int { return int(math.Round(float64(c.KVPages) * max(c.Overcommit, 1))) }

// Fit returns what an attempt at a request comes to here: how many tokens it may still generate, of the maxTokens that its
// client allows and resume of which earlier attempts generated, and how many pages its peak takes. Its prompt must be shorter
// than Longest.
func (c *Config) Fit(prompt, resume, maxTokens int) (maxNew, pages int) {
	fed, longest := prompt+resume, c.Longest()
	maxNew = max(0, min(maxTokens-resume, longest-fed))
	return maxNew, c.Pages(min(fed+maxNew, longest))
}
