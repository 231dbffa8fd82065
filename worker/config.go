package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrConfig is returned by Config.Validate; the message names the key and the allowed values.
var ErrConfig = errors.New("worker: invalid configuration")

// Config is a worker's settings; what depends on the model comes from its Backend.
type Config struct {
	Name string `help:"name of this worker; each of its lives gets an id that begins with it" default:"worker"`
	Pool string `help:"pool that this worker serves" default:"default"`

	PageTokens  int `help:"tokens in a KV page" default:"16"`
	MaxBatch    int `help:"requests that run at once; 0: as many as the engine has sequence ids" default:"0"`
	BatchTokens int `help:"most tokens fed in one step; 0: as many as the engine takes" default:"0"`
	ChunkTokens int `help:"most tokens of one prefill fed in one step" default:"256"`

	Heartbeat    time.Duration `help:"interval of heartbeats" default:"250ms"`
	HeartbeatGap time.Duration `help:"least time between two heartbeats, which also follow changes" default:"50ms"`
	// FenceAfter is how long the worker may be silent before it gives up what it runs: at most as long as the scheduler
	// waits before it declares a worker lost.
	FenceAfter time.Duration `help:"silence after which this worker abandons its requests and comes back under a new id" default:"2s"`
	Grace      time.Duration `help:"how long running requests may go on after the signal to stop" default:"30s"`

	StepSample int `help:"store every n-th engine step in STEPS; 1: all" default:"16"`
	Remember   int `help:"ended attempts remembered, so that a late repetition of a dispatch does not run again" default:"65536"`
}

// DefaultConfig returns the defaults of the flags.
func DefaultConfig() Config {
	return Config{
		Name: "worker", Pool: "default",
		PageTokens: 16, ChunkTokens: 256,
		Heartbeat: 250 * time.Millisecond, HeartbeatGap: 50 * time.Millisecond,
		FenceAfter: 2 * time.Second, Grace: 30 * time.Second,
		StepSample: 16, Remember: 1 << 16,
	}
}

// maxName leaves room in a worker id for the part that tells lives apart.
const maxName = 64 - 13

// Validate returns ErrConfig, naming the first key that is outside its range.
func (c *Config) Validate() error {
	for _, k := range []struct {
		key     string
		ok      bool
		value   any
		allowed string
	}{
		{"name", schema.ValidName(c.Name) && len(c.Name) <= maxName, c.Name, fmt.Sprintf("1 to %d of [A-Za-z0-9_-]", maxName)},
		{"pool", schema.ValidName(c.Pool), c.Pool, "1 to 64 of [A-Za-z0-9_-]"},
		{"page_tokens", c.PageTokens >= 1 && c.PageTokens <= 1<<16, c.PageTokens, "1 to 65536"},
		{"max_batch", c.MaxBatch >= 0 && c.MaxBatch <= 256, c.MaxBatch, "0 (all of the engine's) to 256"},
		{"batch_tokens", c.BatchTokens >= 0, c.BatchTokens, "0 (all that the engine takes) and more"},
		{"chunk_tokens", c.ChunkTokens >= 1, c.ChunkTokens, "1 and more"},
		{"heartbeat", c.Heartbeat > 0, c.Heartbeat, "more than 0"},
		{"heartbeat_gap", c.HeartbeatGap >= 0 && c.HeartbeatGap <= c.Heartbeat, c.HeartbeatGap, "0 to heartbeat"},
		{"fence_after", c.FenceAfter > c.Heartbeat, c.FenceAfter, "more than heartbeat"},
		{"grace", c.Grace >= 0, c.Grace, "0 and more"},
		{"step_sample", c.StepSample >= 1, c.StepSample, "1 (all) and more"},
		{"remember", c.Remember >= 1, c.Remember, "1 and more"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	return nil
}

// planner is how the configuration uses an engine.
func (c *Config) planner(i Info) batch.Config {
	b := batch.Config{
		PageTokens: c.PageTokens, KVPages: i.KVCells / c.PageTokens, Sequences: i.Sequences,
		MaxBatch: i.Sequences, BatchTokens: i.BatchTokens, ContextTokens: i.ContextTokens,
	}
	if c.MaxBatch > 0 {
		b.MaxBatch = min(b.MaxBatch, c.MaxBatch)
	}
	if c.BatchTokens > 0 {
		b.BatchTokens = min(b.BatchTokens, c.BatchTokens)
	}
	b.MaxBatch = min(b.MaxBatch, b.BatchTokens)
	b.ChunkTokens = min(c.ChunkTokens, b.BatchTokens)
	return b
}
