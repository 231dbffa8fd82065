package predictor

import (
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/batch"
)

// Sequence is what may be known of a request that was admitted and has not ended.
type Sequence struct {
	PromptTokens int32 // ≥ 1
	// PrefillTokens are still to be computed, what the present step computes not counted, in [0, PromptTokens]; after a preemption
	// in [0, PromptTokens+OutputTokens]. Of one that waits it is the prompt less what the prefix cache is expected to hold; a running
	// one is in the present step with its last chunk, or decodes, when it is 0.
	PrefillTokens int32
	OutputTokens  int32 // generated so far, that of the present step not counted, ≥ 0
	CapTokens     int32 // the most it may generate, ≥ 1
	// Lengths is the class whose distribution of output lengths it follows, an index into the table of the predictor.
	Lengths int32
	// Guaranteed ones were promised their deadline.
	Guaranteed bool
	// Age is how long ago it arrived, ≥ 0.
	Age time.Duration
	// E2E and TTFT are its objectives, from its arrival; 0: none.
	E2E, TTFT time.Duration
}

// Engine is what is known of one worker, and of the requests that wait for it, when a request arrives. Of a pool of n workers
// it is the worker that the request is expected to come to, with its share of the queue.
type Engine struct {
	Profile *profile.Profile
	// Plan is how the engine batches.
	Plan batch.Config
	// Slow is by how much steps take longer than the profile says, as observed lately, > 0; 0 is 1.
	Slow float64
	// Running is what the engine holds, in the order of admission; Waiting what is before the new request in the queue, first
	// comes first.
	Running, Waiting []Sequence
	// FreePages of KV can be had, those of evictable prefixes included.
	FreePages int
	// StepLeft is how long the present step still takes; 0: the engine is idle.
	StepLeft time.Duration
	// Delay is the pipeline's constant part of a latency: what lies between client, scheduler and engine. Enter of it passes
	// before the engine has the request, in [0, Delay].
	Delay, Enter time.Duration
	// Refill is how long after a sequence has ended the engine has one that waited in its place; 0: its next step has, as when the
	// queue is the engine's own. A queue elsewhere takes some messages to bring it, and the step after the next has it.
	Refill time.Duration
}

// Idle reports whether a request that comes now would be alone.
func (e *Engine) Idle() bool { return len(e.Running)+len(e.Waiting) == 0 }
