package worker

import (
	"fmt"
	"log/slog"
	"strconv"

	"github.com/cadence-slo/cadence/worker/batch"
)

// Fits returns ErrConfig for a key that asks for more than the engine has. What Planner takes by default, it cuts instead.
func (c *Config) Fits(i Info) error {
	step := i.BatchTokens
	if c.BatchTokens > 0 {
		step = min(step, c.BatchTokens)
	}
	switch {
	case c.BatchTokens > i.BatchTokens:
		return fmt.Errorf("%w: batch_tokens is %d, allowed: 0 to %d, which the engine takes in a step", ErrConfig, c.BatchTokens, i.BatchTokens)
	case c.Mode == string(batch.FIFO): // whatever max_batch says
		return nil
	case c.MaxBatch > i.Sequences:
		return fmt.Errorf("%w: max_batch is %d, allowed: 0 to %d, the engine's sequence ids", ErrConfig, c.MaxBatch, i.Sequences)
	case c.MaxBatch > step:
		return fmt.Errorf("%w: max_batch is %d, allowed: 0 to %d, the tokens of a step", ErrConfig, c.MaxBatch, step)
	}
	return nil
}

// setting is one as it took effect, in the words of Config's keys.
type setting struct{ key, value string }

// settings are those that say how a worker schedules its engine.
func settings(c *Config, p *batch.Config) []setting {
	return []setting{
		{"mode", string(p.Mode)},
		{"prefill_order", c.PrefillOrder},
		{"max_batch", strconv.Itoa(p.MaxBatch)},
		{"batch_tokens", strconv.Itoa(p.BatchTokens)},
		{"chunk_tokens", strconv.Itoa(p.ChunkTokens)},
		{"itl_target", p.ITLTarget.String()},
		{"kv", c.KV},
		{"page_tokens", strconv.Itoa(p.PageTokens)},
		{"kv_overcommit", strconv.FormatFloat(p.Overcommit, 'g', -1, 64)},
		{"prefix_cache", strconv.FormatBool(p.PrefixCache)},
		{"cache_output", strconv.FormatBool(p.CacheOutput)},
		{"prefix_sharing", c.PrefixSharing},
	}
}

// logSettings tells once what took effect, and which settings did not and why.
func logSettings(log *slog.Logger, c *Config, p *batch.Config, inEffect []setting) {
	attrs := make([]any, 0, len(inEffect))
	for _, s := range inEffect {
		attrs = append(attrs, slog.String(s.key, s.value))
	}
	log.Info("worker settings", attrs...)
	changed := func(key string, asked, got any, why string) {
		log.Warn("setting changed", "key", key, "asked", asked, "in_effect", got, "reason", why)
	}
	if c.PrefixCache && p.Contiguous {
		changed("prefix_cache", true, false, "contiguous KV has none")
	}
	if p.Mode == batch.FIFO && c.MaxBatch > 1 {
		changed("max_batch", c.MaxBatch, p.MaxBatch, "fifo runs one request at a time")
	}
	if c.ChunkTokens > p.ChunkTokens {
		changed("chunk_tokens", c.ChunkTokens, p.ChunkTokens, "a step takes no more")
	}
}
