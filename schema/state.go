package schema

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxListed is how many waiting requests a PoolState lists one by one.
const MaxListed = 512

// SequenceState is an admitted request that has not ended, as whoever holds it knows it. What its answer will be is not known.
type SequenceState struct {
	Request      RequestID `json:"request_id"`
	Tenant       string    `json:"tenant"`
	Kind         Kind      `json:"kind"`
	Class        Class     `json:"class,omitempty"`
	PromptTokens int32     `json:"prompt_tokens"`
	// PrefillTokens are still to be computed: of the prompt, and after a preemption of the answer, too. What the present step computes
	// does not count; what is expected to be cached does not either at a worker, and does in a queue.
	PrefillTokens int32         `json:"prefill_tokens,omitempty"`
	OutputTokens  int32         `json:"output_tokens,omitempty"` // generated before the present step, over all attempts
	CapTokens     int32         `json:"max_tokens"`
	Age           time.Duration `json:"age_ns"` // since it was published; at a worker, of one without objectives, since it came there
	// Budget and TTFTBudget are what is left of its objectives: 0 is none, negative is late already. The latter is 0 also once the first
	// token is there.
	Budget     time.Duration `json:"budget_ns,omitempty"`
	TTFTBudget time.Duration `json:"ttft_budget_ns,omitempty"`
}

// EngineState is what a worker's engine holds, on engine.<worker>: after changes, and at least as often as a heartbeat. It is what
// latencies are predicted from. The latest counts.
type EngineState struct {
	V      int      `json:"v"`
	Worker WorkerID `json:"worker"`
	Pool   string   `json:"pool"`
	Model  string   `json:"model"`
	Step   uint64   `json:"step"` // steps that were begun
	// StepLeft is how long the present step is expected to take from now; 0: the engine is idle.
	StepLeft time.Duration `json:"step_left_ns,omitempty"`
	// Slow is by how much steps took longer lately than the profile says; 0: not known.
	Slow      float64 `json:"slow,omitempty"`
	FreePages int32   `json:"kv_free_pages"` // those of evictable prefixes included
	// Running is what the worker has, in the order in which it was taken, those that wait for their first step included.
	Running []SequenceState `json:"running,omitempty"`
	// Settings do not change in a worker's life; they come with the first state and with one every second.
	Settings *EngineSettings `json:"settings,omitempty"`
	// Prefixes that are cached, when they have changed, and with Settings; nil: as before.
	Prefixes *PrefixDigest `json:"prefixes,omitempty"`
}

// EngineSettings are what steps cost and how they are made.
type EngineSettings struct {
	Fingerprint string `json:"fingerprint"` // as in worker_up
	// Profile is a profile.Profile of package predictor/profile; null: not known.
	Profile json.RawMessage `json:"profile,omitempty"`
	// Plan is a batch.Config of package worker/batch.
	Plan json.RawMessage `json:"plan"`
}

// PrefixDigest is the set of cached prefixes of whole pages, as a Bloom filter of their keyed hashes: a prompt's cached part can be
// estimated from it, and nobody without the key can ask for prompts.
type PrefixDigest struct {
	Key        uint64 `json:"key"`
	PageTokens int32  `json:"page_tokens"`
	Bits       []byte `json:"bits"`
	Hashes     int32  `json:"hashes"` // bits of each prefix, ≥ 1
	// Shared prefixes serve every tenant; otherwise each has only its own.
	Shared bool `json:"shared,omitempty"`
}

// PoolState is what waits for a pool's workers, on state.pool.<pool>: after changes, and at least once an interval.
type PoolState struct {
	V        int           `json:"v"`
	Pool     string        `json:"pool"`
	Epoch    uint64        `json:"epoch"`
	Interval time.Duration `json:"interval_ns"`
	// RequestSeq is up to which sequence of REQUESTS the scheduler has read: a later request is not in here yet.
	RequestSeq uint64 `json:"request_seq"`
	// Waiting are the first MaxListed in the order of the queue; the counts are of all. Requests that no worker could ever hold as the
	// workers are now are in neither.
	Waiting             []SequenceState `json:"waiting,omitempty"`
	WaitingRequests     int32           `json:"waiting_requests"`
	WaitingPromptTokens int64           `json:"waiting_prompt_tokens"`
	WaitingCapTokens    int64           `json:"waiting_max_tokens"`
}

// Validate returns ErrInvalid, naming the field, if the state breaks a rule.
func (s *EngineState) Validate() error {
	bad := func(field string, v any) error { return fmt.Errorf("%w engine state: %s is %v", ErrInvalid, field, v) }
	switch {
	case !ValidName(string(s.Worker)):
		return bad("worker", s.Worker)
	case !ValidName(s.Pool):
		return bad("pool", s.Pool)
	case s.StepLeft < 0:
		return bad("step_left_ns", s.StepLeft)
	case !(s.Slow >= 0 && s.Slow < 1e9): // also NaN
		return bad("slow", s.Slow)
	case s.FreePages < 0:
		return bad("kv_free_pages", s.FreePages)
	}
	if d := s.Prefixes; d != nil && (d.PageTokens < 1 || d.Hashes < 1 || d.Hashes > 32) {
		return bad("prefixes", fmt.Sprintf("of pages of %d tokens with %d hashes", d.PageTokens, d.Hashes))
	}
	return validSequences("engine state: running", s.Running)
}

// Validate returns ErrInvalid, naming the field, if the state breaks a rule.
func (s *PoolState) Validate() error {
	bad := func(field string, v any) error { return fmt.Errorf("%w pool state: %s is %v", ErrInvalid, field, v) }
	switch {
	case !ValidName(s.Pool):
		return bad("pool", s.Pool)
	case s.Interval <= 0:
		return bad("interval_ns", s.Interval)
	case len(s.Waiting) > MaxListed:
		return bad("waiting", fmt.Sprintf("%d requests", len(s.Waiting)))
	case int(s.WaitingRequests) < len(s.Waiting):
		return bad("waiting_requests", s.WaitingRequests)
	case s.WaitingPromptTokens < 0:
		return bad("waiting_prompt_tokens", s.WaitingPromptTokens)
	case s.WaitingCapTokens < 0:
		return bad("waiting_max_tokens", s.WaitingCapTokens)
	}
	return validSequences("pool state: waiting", s.Waiting)
}

func validSequences(where string, s []SequenceState) error {
	for i := range s {
		q := &s[i]
		if !q.Request.Valid() {
			return fmt.Errorf("%w %s[%d]: request_id is %q", ErrInvalid, where, i, q.Request)
		}
		if q.PromptTokens < 1 || q.CapTokens < 1 || q.PrefillTokens|q.OutputTokens < 0 || q.Age < 0 {
			return fmt.Errorf("%w %s[%d]: prompt_tokens %d, prefill_tokens %d, output_tokens %d, max_tokens %d, age_ns %d", ErrInvalid, where, i,
				q.PromptTokens, q.PrefillTokens, q.OutputTokens, q.CapTokens, q.Age)
		}
	}
	return nil
}
