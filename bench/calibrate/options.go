package calibrate

import (
	"errors"
	"slices"

	"github.com/cadence-slo/cadence/bench/constraint"
)

// ErrConfig is returned for options that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("calibrate: invalid options")

// Options say what to measure. The tags are the flags of `cadence calibrate`.
type Options struct {
	Chunks        []int  `help:"tokens of prefill in a step, to measure" default:"16,32,64,128,256,512"`
	PrefillTokens int    `help:"tokens of the longest prompts" default:"768"`
	Batches       []int  `help:"sequences that decode together, to measure; the profile's table has a point for each" default:"1,2,4,8,12,16,24,32"`
	Contexts      []int  `help:"tokens that each of them holds, to measure" default:"32,384"`
	DeepBatch     int    `help:"batches above this are measured with the first of these contexts only" default:"8"`
	DecodeSteps   int    `help:"steps of each of these measurements" default:"12"`
	Mixes         int    `help:"experiments in which requests come and go" default:"2"`
	MixJobs       int    `help:"requests of each of them" default:"12"`
	ChunkTokens   int    `help:"most tokens of one prefill in their steps, as the worker has it" default:"256"`
	Rounds        int    `help:"how often all is measured, each time in another order" default:"3"`
	Seed          uint64 `help:"seed of prompts, orders, and of what is held out" default:"1"`
}

// DefaultOptions returns the defaults of the flags.
func DefaultOptions() Options {
	return Options{
		Chunks: []int{16, 32, 64, 128, 256, 512}, PrefillTokens: 768, Batches: []int{1, 2, 4, 8, 12, 16, 24, 32}, Contexts: []int{32, 384}, DeepBatch: 8,
		DecodeSteps: 12, Mixes: 2, MixJobs: 12, ChunkTokens: 256, Rounds: 3, Seed: 1,
	}
}

// Quick shrinks the measurement to what takes seconds.
func (o *Options) Quick() {
	o.Rounds, o.Mixes, o.DecodeSteps, o.DeepBatch = 1, 2, 8, 4
	o.Chunks, o.Contexts = []int{32, 128, 512}, []int{32, 256}
	o.Batches = []int{1, 2, 4, 8, 16}
	o.PrefillTokens = min(o.PrefillTokens, 512)
}

// Validate returns ErrConfig for the first key that is outside its range.
func (o *Options) Validate() error {
	within := func(list []int, least, most int) bool {
		return len(list) > 0 && slices.Min(list) >= least && slices.Max(list) <= most
	}
	return constraint.Check(ErrConfig,
		constraint.Of("chunks", within(o.Chunks, 1, 1<<20), o.Chunks, "numbers from 1"),
		constraint.Of("prefill-tokens", o.PrefillTokens >= 2, o.PrefillTokens, "2 and more"),
		constraint.Of("batches", within(o.Batches, 1, 256) && o.Batches[0] == 1 && ascending(o.Batches), o.Batches, "1, then ascending numbers up to 256"),
		constraint.Of("contexts", within(o.Contexts, 1, 1<<20), o.Contexts, "numbers from 1"),
		constraint.Of("deep-batch", o.DeepBatch >= 1, o.DeepBatch, "1 and more"),
		constraint.Of("decode-steps", o.DecodeSteps >= 2, o.DecodeSteps, "2 and more"),
		constraint.Of("mixes", o.Mixes >= 1, o.Mixes, "1 and more"),
		constraint.Of("mix-jobs", o.MixJobs >= 2 && o.MixJobs <= 256, o.MixJobs, "2 to 256"),
		constraint.Of("chunk-tokens", o.ChunkTokens >= 1, o.ChunkTokens, "1 and more"),
		constraint.Of("rounds", o.Rounds >= 1, o.Rounds, "1 and more"),
	)
}

func ascending(list []int) bool {
	for i := 1; i < len(list); i++ {
		if list[i] <= list[i-1] {
			return false
		}
	}
	return true
}
