package peer

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/constraint"
)

// ErrConfig is returned for options that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("peer: invalid options")

// The parts of `cadence bench peer-engine`.
const (
	PartUnique  = "unique"  // prompts that share nothing, closed loop
	PartShared  = "shared"  // shared system prompts, closed loop
	PartOpen    = "open"    // shared system prompts, open loop
	PartPrefill = "prefill" // the worker's prefill against a bare loop of llama_decode, in this process
)

var allParts = []string{PartUnique, PartShared, PartOpen, PartPrefill}

// Options says what to measure. The tags are the flags of `cadence bench peer-engine`.
type Options struct {
	Model       string   `help:"model: 120m or 0.5b (random weights, made here), the name of a pulled one, or a GGUF file" default:"120m"`
	ModelDir    string   `help:"directory of models; empty: the user's cache" type:"path"`
	LlamaServer string   `help:"llama-server to compare with; empty: the one that make clients installed" placeholder:"PATH"`
	Threads     int      `help:"threads of either engine; more than there are idle cores makes both slower" default:"1"`
	Parts       []string `help:"what to measure: unique, shared, open, prefill" default:"unique,shared,open,prefill"`
	Quick       bool     `help:"few and short blocks: to see that it works, not to measure"`

	Concurrency  []int  `help:"requests at a time, one measurement each, on unique prompts; the highest is also for shared ones" default:"1,4,8,16"`
	Blocks       int    `help:"pairs of blocks of each measurement" default:"6"`
	Requests     int    `help:"requests of a block; 0: four for each at a time, at least 8" default:"0"`
	PromptTokens int    `help:"tokens of each unique prompt" default:"256"`
	OutputTokens int    `help:"tokens of each answer" default:"64"`
	Workload     string `help:"workload with shared prompts: shared, or a file (see bench/workload)" default:"shared"`
	Seed         uint64 `help:"seed of requests and arrivals" default:"1"`

	OpenRate   float64       `help:"requests/s of the open loop; 0: open-load times what the slower server did in the closed loop" default:"0"`
	OpenLoad   float64       `help:"part of the slower server's closed-loop rate that is offered in the open loop" default:"0.7"`
	OpenLength time.Duration `help:"least length of each block of the open loop; longer where fewer requests than in a closed one would arrive" default:"30s"`

	KVTokens    int      `help:"tokens of KV cache of either engine, all requests together; 0: what the most at a time need, doubled" default:"0" name:"kv-tokens"`
	EngineBatch int      `help:"most tokens that either engine computes at once" default:"512"`
	PeerArgs    []string `help:"further arguments of llama-server" sep:"none"`
	UpArgs      []string `help:"further arguments of cadence up" sep:"none"`
	Tune        bool     `help:"try llama-server with split KV, without flash attention and without its host cache, and keep what is better" default:"true" negatable:""`
	Analytics   bool     `help:"run ClickHouse and the projector beside the pipeline, as cadence up does" default:"true" negatable:""`

	PrefillPrompts int `help:"prompts of each block of the prefill comparison" default:"4"`
	PrefillTokens  int `help:"tokens of each of them" default:"1024"`
	PrefillChunk   int `help:"tokens fed in one step, on either side" default:"256"`

	Timeout time.Duration `help:"time limit of one request" default:"5m"`

	// Executable is cadence's own, Version what it says of itself.
	Executable string       `kong:"-"`
	Version    string       `kong:"-"`
	Log        *slog.Logger `kong:"-"`
	// Progress, if not nil, gets a line at the beginning of each step of the work.
	Progress io.Writer `kong:"-"`
}

// DefaultOptions returns the defaults of the flags, without an executable.
func DefaultOptions() Options {
	return Options{
		Model: "120m", Threads: 1, Parts: slices.Clone(allParts), Concurrency: []int{1, 4, 8, 16}, Blocks: 6, PromptTokens: 256, OutputTokens: 64,
		Workload: "shared", Seed: 1, OpenLoad: 0.7, OpenLength: 30 * time.Second, EngineBatch: 512, Tune: true, Analytics: true,
		PrefillPrompts: 4, PrefillTokens: 1024, PrefillChunk: 256, Timeout: 5 * time.Minute, Log: slog.New(slog.DiscardHandler),
	}
}

// quick shrinks the run to what shows that it works.
func (o *Options) quick() {
	o.Concurrency = slices.Compact([]int{1, min(4, slices.Max(o.Concurrency))})
	o.Blocks, o.Requests = min(o.Blocks, 2), 4
	o.OutputTokens, o.PromptTokens = min(o.OutputTokens, 16), min(o.PromptTokens, 128)
	o.OpenLength = min(o.OpenLength, 5*time.Second)
	o.PrefillPrompts, o.PrefillTokens = 1, min(o.PrefillTokens, 512)
}

// Validate returns ErrConfig for the first key that is outside its range.
func (o *Options) Validate() error {
	for _, p := range o.Parts {
		if !slices.Contains(allParts, p) {
			return fmt.Errorf("%w: parts has %q, allowed: %s", ErrConfig, p, strings.Join(allParts, ", "))
		}
	}
	return constraint.Check(ErrConfig,
		constraint.Of("model", o.Model != "", o.Model, "a name or a file"),
		constraint.Of("threads", o.Threads >= 1, o.Threads, "1 and more"),
		constraint.Of("parts", len(o.Parts) > 0, o.Parts, strings.Join(allParts, ", ")),
		constraint.Of("concurrency", len(o.Concurrency) > 0 && slices.Min(o.Concurrency) >= 1 && slices.Max(o.Concurrency) <= 256, o.Concurrency, "numbers from 1 to 256"),
		constraint.Of("blocks", o.Blocks >= 1, o.Blocks, "1 and more"),
		constraint.Of("requests", o.Requests >= 0, o.Requests, "0 (by concurrency) and more"),
		constraint.Of("prompt-tokens", o.PromptTokens >= 1, o.PromptTokens, "1 and more"),
		constraint.Of("output-tokens", o.OutputTokens >= 2, o.OutputTokens, "2 and more: one has no interval"),
		constraint.Of("workload", o.Workload != "", o.Workload, "a name or a file"),
		constraint.Of("open-rate", o.OpenRate >= 0, o.OpenRate, "0 (by open-load) and more"),
		constraint.Of("open-load", o.OpenLoad > 0, o.OpenLoad, "more than 0"),
		constraint.Of("open-length", o.OpenLength > 0, o.OpenLength, "more than 0"),
		constraint.Of("kv-tokens", o.KVTokens >= 0, o.KVTokens, "0 (by need) and more"),
		constraint.Of("engine-batch", o.EngineBatch >= 32, o.EngineBatch, "32 and more"),
		constraint.Of("prefill-prompts", o.PrefillPrompts >= 1, o.PrefillPrompts, "1 and more"),
		constraint.Of("prefill-tokens", o.PrefillTokens >= 1, o.PrefillTokens, "1 and more"),
		constraint.Of("prefill-chunk", o.PrefillChunk >= 1 && o.PrefillChunk <= o.EngineBatch, o.PrefillChunk, "1 to engine-batch"),
		constraint.Of("timeout", o.Timeout > 0, o.Timeout, "more than 0"),
	)
}
