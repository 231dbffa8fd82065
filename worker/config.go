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

	Mode         string        `help:"when waiting requests join: continuous (in any step), static (as many as run at once together, when the last ones are done) or fifo (one at a time)" enum:"continuous,static,fifo" default:"continuous"`
	StaticWait   time.Duration `help:"how long a static batch waits to be full" default:"50ms"`
	PageTokens   int           `help:"tokens in a KV page; what is left of the KV cache after whole pages is not used" default:"16"`
	MaxBatch     int           `help:"requests that run at once, at most the engine's sequence ids and tokens in a step; 0: 32, or as many as there can be; fifo runs one" default:"0"`
	BatchTokens  int           `help:"most tokens fed in one step, at most as many as the engine takes; 0: as many as that" default:"0"`
	ChunkTokens  int           `help:"most tokens of one prefill fed in one step; cut to those of a step" default:"256"`
	ITLTarget    time.Duration `help:"if not 0, prefill beside running requests is cut so that a step is predicted to take no longer" default:"0s" name:"itl-target"`
	PrefillOrder string        `help:"who gets a step's tokens first: decode-first, or prefill-first, under which running requests wait for long prompts" enum:"decode-first,prefill-first" default:"decode-first"`

	KV            string  `help:"paged (pages as a request grows) or contiguous (one run for all of it; no prefix cache)" enum:"paged,contiguous" default:"paged" name:"kv"`
	KVOvercommit  float64 `help:"KV pages promised to running requests for each there is; above 1 some are preempted and computed again when their outputs are long" default:"1" name:"kv-overcommit"`
	PrefixCache   bool    `help:"keep the KV of prompts for requests that begin alike" default:"true" negatable:""`
	CacheOutput   bool    `help:"keep the KV of answers, too, for the next turn of a conversation" default:"true" negatable:""`
	PrefixSharing string  `help:"who finds whose prefixes: tenant (each its own) or global" enum:"tenant,global" default:"tenant"`

	Heartbeat    time.Duration `help:"interval of heartbeats" default:"250ms"`
	HeartbeatGap time.Duration `help:"least time between two heartbeats, which also follow changes" default:"50ms"`
	// FenceAfter is how long the worker may be silent before it gives up what it runs: at most as long as the scheduler
	// waits before it declares a worker lost.
	FenceAfter time.Duration `help:"silence after which this worker abandons its requests and comes back under a new id" default:"2s"`
	Grace      time.Duration `help:"how long running requests may go on after the signal to stop" default:"30s"`

	// Profile is one of the names below, an embedded profile or a file.
	Profile string `help:"how fast the engine is, which is what latencies are predicted from: measure (at start-up, within three seconds), none (nothing is predicted), the name of an embedded profile, or a file of cadence calibrate. The mock states its own; another server's is not known" default:"measure" placeholder:"measure|none|NAME|FILE"`

	StepSample int `help:"store every n-th engine step in STEPS; 1: all" default:"16"`
	Remember   int `help:"ended attempts remembered, so that a late repetition of a dispatch does not run again" default:"65536"`

	// CheckInvariants verifies the planner's books after each step and stops the worker with ErrBackend if they are wrong. It
	// takes time that grows with the KV cache. The build tag invariants sets it for every worker.
	CheckInvariants bool `help:"verify the engine's books after each step" hidden:""`
	// NewPlanner, if not nil, makes the planner: for experiments with other pages or another prefix cache. Nothing is measured before
	// them, and cached prefixes are not told of.
	NewPlanner func(batch.Config) (*batch.Planner, error) `kong:"-"`
}

// DefaultConfig returns the defaults of the flags.
func DefaultConfig() Config {
	return Config{
		Name: "worker", Pool: "default",
		Mode: "continuous", StaticWait: 50 * time.Millisecond, PageTokens: 16, ChunkTokens: 256, PrefillOrder: "decode-first",
		KV: "paged", KVOvercommit: 1, PrefixCache: true, CacheOutput: true, PrefixSharing: "tenant",
		Heartbeat: 250 * time.Millisecond, HeartbeatGap: 50 * time.Millisecond,
		FenceAfter: 2 * time.Second, Grace: 30 * time.Second,
		Profile: ProfileMeasure, StepSample: 16, Remember: 1 << 16,
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
		{"max_batch", c.MaxBatch >= 0 && c.MaxBatch <= 256, c.MaxBatch, "0 (32, or as many as there can be) to 256"},
		{"batch_tokens", c.BatchTokens >= 0, c.BatchTokens, "0 (all that the engine takes) and more"},
		{"chunk_tokens", c.ChunkTokens >= 1, c.ChunkTokens, "1 and more"},
		{"mode", c.Mode == "continuous" || c.Mode == "static" || c.Mode == "fifo", c.Mode, "continuous, static, fifo"},
		{"static_wait", c.StaticWait >= 0, c.StaticWait, "0 and more"},
		{"itl_target", c.ITLTarget >= 0, c.ITLTarget, "0 (off) and more"},
		{"prefill_order", c.PrefillOrder == "decode-first" || c.PrefillOrder == "prefill-first", c.PrefillOrder, "decode-first, prefill-first"},
		{"kv", c.KV == "paged" || c.KV == "contiguous", c.KV, "paged, contiguous"},
		{"kv_overcommit", c.KVOvercommit >= 1 && c.KVOvercommit <= 16, c.KVOvercommit, "1 to 16"},
		{"prefix_sharing", c.PrefixSharing == "tenant" || c.PrefixSharing == "global", c.PrefixSharing, "tenant, global"},
		{"heartbeat", c.Heartbeat > 0, c.Heartbeat, "more than 0"},
		{"heartbeat_gap", c.HeartbeatGap >= 0 && c.HeartbeatGap <= c.Heartbeat, c.HeartbeatGap, "0 to heartbeat"},
		{"fence_after", c.FenceAfter > c.Heartbeat, c.FenceAfter, "more than heartbeat"},
		{"grace", c.Grace >= 0, c.Grace, "0 and more"},
		{"profile", c.Profile != "", "empty", "measure, none, the name of an embedded profile, or a file"},
		{"step_sample", c.StepSample >= 1, c.StepSample, "1 (all) and more"},
		{"remember", c.Remember >= 1 && c.Remember <= 1<<24, c.Remember, "1 to 16777216"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	return nil
}

// defaultBatch is how many requests run at once unless the configuration says so: the engine's other sequence ids hold
// cached prefixes.
const defaultBatch = 32

// Planner is how the configuration uses an engine.
func (c *Config) Planner(i Info) batch.Config {
	b := batch.Config{
		PageTokens: c.PageTokens, KVPages: i.KVCells / c.PageTokens, Sequences: i.Sequences,
		MaxBatch: min(i.Sequences, defaultBatch), BatchTokens: i.BatchTokens, ContextTokens: i.ContextTokens,
		Mode: batch.Mode(c.Mode), StaticWait: c.StaticWait, Order: batch.DecodeFirst, ITLTarget: c.ITLTarget,
		Contiguous: c.KV == "contiguous", Overcommit: c.KVOvercommit,
	}
	if c.PrefillOrder == "prefill-first" {
		b.Order = batch.PrefillFirst
	}
	b.PrefixCache = c.PrefixCache && i.Sharing && !b.Contiguous
	b.CacheOutput = c.CacheOutput && b.PrefixCache
	if !i.Sharing { // no sequence id is needed for anything but a request
		b.MaxBatch = i.Sequences
	}
	if c.MaxBatch > 0 {
		b.MaxBatch = min(i.Sequences, c.MaxBatch)
	}
	if b.Mode == batch.FIFO {
		b.MaxBatch = 1
	}
	if c.BatchTokens > 0 {
		b.BatchTokens = min(b.BatchTokens, c.BatchTokens)
	}
	b.MaxBatch = min(b.MaxBatch, b.BatchTokens)
	b.ChunkTokens = min(c.ChunkTokens, b.BatchTokens)
	return b
}
