package core

import (
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
)

// Request is what the scheduler must know of a request in REQUESTS.
type Request struct {
	ID           schema.RequestID
	Model        string
	Tenant       string
	Ingress      schema.IngressID
	Kind         schema.Kind
	Class        schema.Class
	PromptTokens int32
	MaxTokens    int32
	MinTokens    int32         // that it generates at least; 0 is 1
	Budget       time.Duration // deadline left at StoredAt; 0 is none
	TTFTBudget   time.Duration // that of the first token; 0 is none
	OnDeadline   schema.OnDeadline
	Grace        time.Duration
	Seq          uint64 // in REQUESTS
	StoredAt     int64  // JetStream's store time, ns UTC
	// Body is the encoded schema.Request, verbatim. The Core keeps it and never writes to it.
	Body []byte
}

// NewRequest takes what matters of a decoded request. Nothing of r is kept but its strings.
func NewRequest(r *schema.Request, seq uint64, storedAt int64, body []byte) Request {
	q := Request{
		ID: r.ID, Model: r.Model, Tenant: r.Tenant, Ingress: r.Ingress, Kind: r.Kind, Class: r.Class,
		PromptTokens: int32(len(r.Prompt)), MaxTokens: r.MaxTokens, Budget: r.Budget, TTFTBudget: r.TTFTBudget, OnDeadline: r.OnDeadline,
		Grace: r.Grace, Seq: seq, StoredAt: storedAt, Body: body,
	}
	if r.IgnoreEOS && len(r.Stop) == 0 && r.Grammar == "" {
		q.MinTokens = r.MaxTokens
	}
	return q
}

// left returns what is left of the deadline: 0 is no deadline, negative is late already.
func (r *Request) left(now int64) time.Duration { return r.remains(r.Budget, now) }

// remains returns what is left of a budget.
func (r *Request) remains(budget time.Duration, now int64) time.Duration {
	if budget <= 0 {
		return 0
	}
	if d := budget - time.Duration(now-r.StoredAt); d != 0 {
		return d
	}
	return -1
}

// Try is one attempt of a request that did not come to its end.
type Try struct {
	Attempt      uint32          `json:"attempt"`
	Worker       schema.WorkerID `json:"worker"`
	Bound        int64           `json:"bound_time_ns,omitempty"` // absent if an earlier scheduler bound it
	Lost         int64           `json:"lost_time_ns"`
	OutputTokens int32           `json:"output_tokens"` // relayed by then, over all attempts
}

// state of a request; the package documentation shows them.
type state uint8

const (
	waiting state = iota // in its lane
	binding              // bound to a worker; its dispatched event is being stored
	due                  // to be sent to its worker
	sending              // in its worker's unanswered dispatch
	running              // its worker has it
	sealing              // its worker is lost; its ingress is asked what it relayed
	burying              // its dead letter is being stored
	ending               // our terminal event is being stored
	ended
)

// request is a request between Enqueue and its settling event.
type request struct {
	Request
	state   state
	rank    int64
	front   bool  // goes before those that never ran
	late    bool  // was found to be unable to meet its objectives, and demoted
	since   int64 // in the queue
	attempt uint32
	losses  uint32
	// resume is what earlier attempts relayed.
	resume schema.Tokens
	// sent is true if the worker may have the attempt.
	sent  bool
	bound int64

	cancel     schema.CancelReason // seen; empty if not
	askedGone  bool                // we asked for a cancel because its ingress is gone
	nextCancel int64

	nobodySince int64 // nobody answers at its ingress since
	history     []Try
	failure     schema.FailureCode // why it is being buried
	message     string

	worker  *worker // that it is booked on
	pages   int32   // reserved there
	slot    int     // in worker.reqs
	place   int     // in its lane's heap, or parked list if parked
	parked  bool
	ingress *ingress
	seat    int // in ingress.reqs
}

// peak is the largest number of tokens that it can hold in the KV cache.
func (r *request) peak() int64 { return int64(r.PromptTokens) + int64(r.MaxTokens) }

// firstLeft returns what is left of the deadline of the first token: 0 also if an earlier attempt gave it.
func (r *request) firstLeft(now int64) time.Duration {
	if len(r.resume) > 0 {
		return 0
	}
	return r.remains(r.TTFTBudget, now)
}

// objectives returns what is left of both.
func (r *request) objectives(now int64) deadline.Left {
	return deadline.Left{E2E: r.left(now), TTFT: r.firstLeft(now)}
}

// prefill is how many tokens a worker has to compute, if none of them is cached.
func (r *request) prefill() int { return int(r.PromptTokens) + len(r.resume) }

// mayRun reports whether only its worker may end it.
func (r *request) mayRun() bool {
	return r.state == sending || r.state == running || (r.state == due && r.sent)
}
