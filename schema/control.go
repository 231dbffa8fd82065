package schema

import (
	"encoding/json"
	"fmt"
	"time"
)

// Dispatch is what the scheduler asks of a worker, by request-reply on dispatch.<worker>: requests for its next step.
// Every item was stored as a dispatched event before; sending it again is harmless.
type Dispatch struct {
	V    int    `json:"v"`
	Pool string `json:"pool"`
	// Epoch is the sequence of the epoch event of the sending scheduler. A worker refuses what is older than the
	// newest that it has seen.
	Epoch uint64         `json:"epoch"`
	Items []DispatchItem `json:"items"`
}

// DispatchItem is one request for a worker.
type DispatchItem struct {
	Attempt uint32 `json:"attempt"` // from 1
	// Budget is what is left of the deadline now; 0 is no deadline, negative is late already.
	Budget time.Duration `json:"budget_ns,omitempty"`
	// TTFTBudget is that of the first token; 0 also once an earlier attempt gave it.
	TTFTBudget time.Duration `json:"ttft_budget_ns,omitempty"`
	// Resume holds tokens that earlier attempts already sent: the worker prefills prompt + Resume and goes on.
	Resume Tokens `json:"resume,omitempty"`
	// Request is the encoded Request as the ingress published it.
	Request json.RawMessage `json:"request"`
}

// Verdict is a worker's answer to one item.
type Verdict string

// The verdicts. Accepted and Duplicate both mean that the worker owns the attempt (Duplicate also when it already
// ended there). After Full and Draining the scheduler may place the request elsewhere with the next attempt number.
const (
	VerdictAccepted   Verdict = "accepted"
	VerdictDuplicate  Verdict = "duplicate"
	VerdictFull       Verdict = "full"
	VerdictDraining   Verdict = "draining"
	VerdictStaleEpoch Verdict = "stale_epoch"
	VerdictInvalid    Verdict = "invalid"
)

// DispatchReply answers a Dispatch: Verdicts[i] is for Items[i].
type DispatchReply struct {
	V        int       `json:"v"`
	Worker   WorkerID  `json:"worker"`
	Verdicts []Verdict `json:"verdicts"`
	// Epoch is the newest that the worker has seen.
	Epoch uint64 `json:"epoch"`
}

// Cancel asks, on cancel.<request>, whoever runs the request to stop it at the next step. The durable wish is the
// cancel_requested event; this message only makes it quick.
type Cancel struct {
	V       int          `json:"v"`
	Request RequestID    `json:"request_id"`
	Reason  CancelReason `json:"reason"`
}

// Seal asks, by request-reply on seal.<ingress>, the owning ingress to drop every later token of attempts up to
// Attempt, and to say what it has relayed. Asking again gives the same answer.
type Seal struct {
	V       int       `json:"v"`
	Request RequestID `json:"request_id"`
	Attempt uint32    `json:"attempt"`
}

// SealReply answers a Seal.
type SealReply struct {
	V int `json:"v"`
	// Known is false if the ingress does not hold the request (any more): its client is gone.
	Known bool `json:"known"`
	// Relayed holds the token ids relayed so far, without a gap.
	Relayed Tokens `json:"relayed,omitempty"`
	// Finish is set if the whole answer, its end included, was relayed.
	Finish *Finish `json:"finish,omitempty"`
}

// WorkerState is a worker's heartbeat on state.worker.<worker>, sent at a fixed interval and after changes.
type WorkerState struct {
	V      int      `json:"v"`
	Worker WorkerID `json:"worker"`
	Pool   string   `json:"pool"`
	Model  string   `json:"model"`
	// Interval is the longest time until the next heartbeat; silent for several of them is lost.
	Interval time.Duration `json:"interval_ns"`
	Draining bool          `json:"draining,omitempty"`
	// Slots is how many requests the worker takes at once; Running + Waiting of them are taken.
	Slots         int32 `json:"slots"`
	Running       int32 `json:"running"`
	Waiting       int32 `json:"waiting"`
	ContextTokens int32 `json:"context_tokens"` // longest prompt + output
	PageTokens    int32 `json:"page_tokens"`
	KVPages       int32 `json:"kv_pages"`
	KVFreePages   int32 `json:"kv_free_pages"`
	KVHighWater   int32 `json:"kv_high_water_pages"`
}

// IngressState is an ingress's heartbeat on state.ingress.<ingress>.
type IngressState struct {
	V        int           `json:"v"`
	Ingress  IngressID     `json:"ingress"`
	Interval time.Duration `json:"interval_ns"`
	Draining bool          `json:"draining,omitempty"`
	Open     int32         `json:"open"` // requests held for clients
}

// Step is one engine step, on step.<worker>: what the engine's cost model is fitted from.
type Step struct {
	V             int           `json:"v"`
	Worker        WorkerID      `json:"worker"`
	Time          int64         `json:"time_ns"`
	Step          uint64        `json:"step"`
	PrefillTokens int32         `json:"prefill_tokens"`
	DecodeBatch   int32         `json:"decode_batch"`
	ContextTokens int32         `json:"context_tokens"` // summed over the batch
	Duration      time.Duration `json:"duration_ns"`
	KVFreePages   int32         `json:"kv_free_pages"`
	KVHighWater   int32         `json:"kv_high_water_pages"`
}

// Validate returns ErrInvalid, naming the item, if one has no attempt number or no request. The requests themselves are
// not looked into: a poison one must not take its neighbours along.
func (d *Dispatch) Validate() error {
	for i := range d.Items {
		if d.Items[i].Attempt < 1 {
			return fmt.Errorf("%w dispatch: items[%d].attempt is 0", ErrInvalid, i)
		}
		if len(d.Items[i].Request) == 0 {
			return fmt.Errorf("%w dispatch: items[%d].request is empty", ErrInvalid, i)
		}
	}
	return nil
}

// Validate returns ErrInvalid, naming the field, if the heartbeat breaks a rule.
func (s *WorkerState) Validate() error {
	switch {
	case !ValidName(string(s.Worker)):
		return fmt.Errorf("%w worker state: worker is %q", ErrInvalid, s.Worker)
	case !ValidName(s.Pool):
		return fmt.Errorf("%w worker state: pool is %q", ErrInvalid, s.Pool)
	case s.Interval <= 0:
		return fmt.Errorf("%w worker state: interval_ns is %d", ErrInvalid, s.Interval)
	case s.Slots < 0 || s.PageTokens < 1 || s.KVPages < 0:
		return fmt.Errorf("%w worker state: slots %d, page_tokens %d, kv_pages %d", ErrInvalid, s.Slots, s.PageTokens, s.KVPages)
	case s.Running|s.Waiting|s.ContextTokens|s.KVFreePages|s.KVHighWater < 0:
		return fmt.Errorf("%w worker state: running %d, waiting %d, context_tokens %d, kv_free_pages %d, kv_high_water_pages %d",
			ErrInvalid, s.Running, s.Waiting, s.ContextTokens, s.KVFreePages, s.KVHighWater)
	}
	return nil
}
