package mock

import (
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrConfig is returned by Config.Validate; the message names the key and the allowed values.
var ErrConfig = errors.New("mock: invalid configuration")

// Config says what the engine is like.
type Config struct {
	Model string // served name

	ContextTokens int // longest prompt + output, ≥ 2
	KVCells       int // tokens of all sequences together, in [1, 1<<24]
	Sequences     int // in [1, 256]
	BatchTokens   int // most tokens of a step, ≥ 1

	// A step takes StepBase + StepSequence for each sequence that decodes + 1/PrefillRate for each token of a prefill.
	// All zero is an engine that takes no time and never sleeps.
	StepBase, StepSequence time.Duration
	PrefillRate            float64 // tokens/s; 0 is free
	// Profile, if not nil, says instead how long a step takes. It is not changed.
	Profile *profile.Profile

	// EndHazard is the probability that a token ends the answer (unless the request ignores that); [0, 1). 0: every
	// answer runs to its max_tokens.
	EndHazard float64
	// AttemptIndependent makes every attempt of a request continue in the same way.
	AttemptIndependent bool

	// FailStep, if not nil, is asked before each step (or part of one that is tried again) and makes it fail. It may
	// also hold the step up.
	FailStep func(b *batch.Batch) error
	// FailRow, if not nil, is asked for each token, with its position in prompt + output, and makes that row fail.
	FailRow func(request schema.RequestID, pos int32) error
}

// DefaultConfig is an engine with the speed of a small model on two cores: 4,000 tokens/s of prefill, steps of 10 to 26
// ms.
func DefaultConfig() Config {
	return Config{
		Model: "mock", ContextTokens: 4096, KVCells: 32768, Sequences: 64, BatchTokens: 512,
		StepBase: 10 * time.Millisecond, StepSequence: 250 * time.Microsecond, PrefillRate: 4000,
	}
}

// Cost is how long a step takes.
func (c *Config) Cost(step *batch.Batch) time.Duration {
	if c.Profile != nil {
		return c.Profile.Step(step.PrefillTokens, step.Decodes, step.ContextTokens)
	}
	d := c.StepBase + time.Duration(step.Decodes)*c.StepSequence
	if c.PrefillRate > 0 {
		d += time.Duration(float64(step.PrefillTokens) / c.PrefillRate * float64(time.Second))
	}
	return d
}

// speed identifies the cost model.
func (c *Config) speed() string {
	if c.Profile != nil {
		return c.Profile.Name
	}
	return fmt.Sprintf("%v-%v-%g", c.StepBase, c.StepSequence, c.PrefillRate)
}

// FreeConfig is DefaultConfig at no cost: what is left is what the pipeline itself takes.
func FreeConfig() Config {
	c := DefaultConfig()
	c.StepBase, c.StepSequence, c.PrefillRate = 0, 0, 0
	return c
}

// Validate returns ErrConfig, naming the first key that is outside its range.
func (c *Config) Validate() error {
	for _, k := range []struct {
		key     string
		ok      bool
		value   any
		allowed string
	}{
		{"model", c.Model != "", c.Model, "a name"},
		{"context_tokens", c.ContextTokens >= 2, c.ContextTokens, "2 and more"},
		{"kv_cells", c.KVCells >= 1 && c.KVCells <= 1<<24, c.KVCells, "1 to 16777216"},
		{"sequences", c.Sequences >= 1 && c.Sequences <= 256, c.Sequences, "1 to 256"},
		{"batch_tokens", c.BatchTokens >= 1, c.BatchTokens, "1 and more"},
		{"step_base", c.StepBase >= 0, c.StepBase, "0 and more"},
		{"step_sequence", c.StepSequence >= 0, c.StepSequence, "0 and more"},
		{"prefill_rate", c.PrefillRate >= 0, c.PrefillRate, "0 (free) and more tokens/s"},
		{"end_hazard", c.EndHazard >= 0 && c.EndHazard < 1, c.EndHazard, "0 to below 1"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	if c.Profile != nil {
		if err := c.Profile.Validate(); err != nil {
			return fmt.Errorf("%w: profile: %w", ErrConfig, err)
		}
	}
	return nil
}
