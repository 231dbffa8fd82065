package record

import "time"

// Outcome is how a request ended. Late is not among them: whether an answer came in time depends on the objective that it
// is held against, see [SLO.Keeps].
type Outcome string

// The outcomes.
const (
	// OK is a complete answer, in time or not.
	OK Outcome = "ok"
	// Shed was refused, at once or after waiting; Reason says why.
	Shed Outcome = "shed"
	// Timeout took longer than the client's own limit.
	Timeout Outcome = "timeout"
	// Censored was still open when the run ended: E2E is a lower bound.
	Censored Outcome = "censored"
	// Error is everything else; Reason says what.
	Error Outcome = "error"
)

// Outcomes lists every outcome.
var Outcomes = []Outcome{OK, Shed, Timeout, Censored, Error}

// Phase is the part of a run that a request arrived in. Nothing is dropped for it: reports say which phases they count.
type Phase string

// The phases.
const (
	Warmup  Phase = "warmup"
	Measure Phase = "measure"
	Tail    Phase = "tail"
)

// Request is what became of one offered request. Times that did not happen are -1.
type Request struct {
	Index  int    `json:"index" parquet:"index"`   // in the run's schedule, from 0
	ID     string `json:"id" parquet:"id"`         // the server's; empty if it never told
	Tenant string `json:"tenant" parquet:"tenant"` // empty: the run has none
	Class  string `json:"class" parquet:"class"`   // key of Run.SLOs; empty: its only one
	Kind   string `json:"kind" parquet:"kind"`     // of the workload: what the request is like (short, long, shared, …)
	Phase  Phase  `json:"phase" parquet:"phase"`

	PromptTokens int `json:"prompt_tokens" parquet:"prompt_tokens"`
	CachedTokens int `json:"cached_tokens" parquet:"cached_tokens"` // of the prompt, found in the prefix cache
	CapTokens    int `json:"cap_tokens" parquet:"cap_tokens"`       // max_tokens as sent
	OutputTokens int `json:"output_tokens" parquet:"output_tokens"` // produced, by the server's usage

	Intended time.Duration `json:"intended_ns" parquet:"intended_ns"` // arrival, since the start of the run
	Lag      time.Duration `json:"lag_ns" parquet:"lag_ns"`           // intended arrival to sent
	Queued   time.Duration `json:"queued_ns" parquet:"queued_ns"`     // waited before its first prefill, as the server says; -1: it does not
	TTFT     time.Duration `json:"ttft_ns" parquet:"ttft_ns"`
	E2E      time.Duration `json:"e2e_ns" parquet:"e2e_ns"` // to the end, whatever it was
	// ITL are the times between tokens, len = OutputTokens - 1 or less (a server may send several at once, which are then
	// spread evenly over the gap before them). Empty where the run was told not to keep them.
	ITL []time.Duration `json:"itl_ns,omitempty" parquet:"itl_ns,list"`

	Outcome    Outcome       `json:"outcome" parquet:"outcome"`
	Reason     string        `json:"reason,omitempty" parquet:"reason"` // of a refusal or an error; low cardinality
	RetryAfter time.Duration `json:"retry_after_ns,omitempty" parquet:"retry_after_ns"`
	Err        string        `json:"error,omitempty" parquet:"error"`
	Attempts   int           `json:"attempts,omitempty" parquet:"attempts"` // workers it was given to; 0: unknown

	// What admission knew; zero where nobody decided.
	Decision  string        `json:"decision,omitempty" parquet:"decision"`
	Predicted time.Duration `json:"predicted_ns,omitempty" parquet:"predicted_ns"`
	Bound     time.Duration `json:"bound_ns,omitempty" parquet:"bound_ns"`
}

// TPOT is the mean time per output token after the first, -1 if there is none.
func (r *Request) TPOT() time.Duration {
	if r.Outcome != OK || r.OutputTokens < 2 || r.TTFT < 0 {
		return -1
	}
	return (r.E2E - r.TTFT) / time.Duration(r.OutputTokens-1)
}

// SLO is an objective; a zero field is none.
type SLO struct {
	TTFT time.Duration `json:"ttft_ns,omitempty" yaml:"ttft,omitempty"`
	TPOT time.Duration `json:"tpot_ns,omitempty" yaml:"tpot,omitempty"`
	E2E  time.Duration `json:"e2e_ns,omitempty" yaml:"e2e,omitempty"`
}

// Objective returns the objective of a class in slos; that of "" is of every class without one of its own.
func Objective(slos map[string]SLO, class string) SLO {
	if s, ok := slos[class]; ok {
		return s
	}
	return slos[""]
}

// Keeps reports whether a request was answered within the objective. A single token has no TPOT that could be too long.
func (s SLO) Keeps(r *Request) bool {
	return r.Outcome == OK &&
		(s.E2E == 0 || r.E2E <= s.E2E) &&
		(s.TTFT == 0 || r.TTFT >= 0 && r.TTFT <= s.TTFT) &&
		(s.TPOT == 0 || r.TPOT() <= s.TPOT)
}
