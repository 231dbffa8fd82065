package schema

import (
	"fmt"
	"strconv"
	"time"
)

// Type is the type of an event: what happened.
type Type string

// The event types. Package documentation shows their order and writers.
const (
	Received        Type = "received"
	Refused         Type = "refused"
	Admitted        Type = "admitted"
	Accepted        Type = "accepted"
	Dispatched      Type = "dispatched"
	PrefillStarted  Type = "prefill_started"
	FirstToken      Type = "first_token"
	Preempted       Type = "preempted"
	Sealed          Type = "sealed"
	Finished        Type = "finished"
	Failed          Type = "failed"
	CancelRequested Type = "cancel_requested"
	Cancelled       Type = "cancelled"
	Delivered       Type = "delivered"
	WorkerUp        Type = "worker_up"
	WorkerDown      Type = "worker_down"
	Epoch           Type = "epoch"

	// Of a pool's model of the residual; they change no request.
	ModelPublished  Type = "model_published"   // it is the pool's from now on
	ModelRejected   Type = "model_rejected"    // the running one stays
	ModelRolledBack Type = "model_rolled_back" // an earlier one, or none, is the pool's again
)

// Types lists every event type.
var Types = []Type{Received, Refused, Admitted, Accepted, Dispatched, PrefillStarted, FirstToken, Preempted, Sealed,
	Finished, Failed, CancelRequested, Cancelled, Delivered, WorkerUp, WorkerDown, Epoch, ModelPublished, ModelRejected, ModelRolledBack}

// Terminal reports whether an event of this type ends a request.
func (t Type) Terminal() bool {
	return t == Refused || t == Finished || t == Failed || t == Cancelled
}

// RefusalReason says why a request was not admitted (low cardinality: a metric label).
type RefusalReason string

// The refusal reasons.
const (
	RefusedCapacity    RefusalReason = "capacity"    // a bounded queue, store or connection limit is full
	RefusedDraining    RefusalReason = "draining"    // this ingress is shutting down
	RefusedNoWorker    RefusalReason = "no_worker"   // no worker serves the model now
	RefusedUnavailable RefusalReason = "unavailable" // the request could not be stored
	RefusedInfeasible  RefusalReason = "infeasible"  // not even an idle engine could meet the deadline
	RefusedSLO         RefusalReason = "slo"         // the predicted bound does not fit the deadline
)

// FailureCode says why an admitted request could not be finished (low cardinality: a metric label).
type FailureCode string

// The failure codes.
const (
	FailedEngine     FailureCode = "engine_error"   // the engine could not go on with this request
	FailedWorkerLost FailureCode = "worker_lost"    // attempts are used up
	FailedTimeout    FailureCode = "timeout"        // waited longer than the queue allows
	FailedDeadline   FailureCode = "deadline"       // could no longer meet its objectives, and asked to be ended then
	FailedInvalid    FailureCode = "invalid"        // a worker could not read it (a poison request)
	FailedCancelled  FailureCode = "cancelled"      // ended by its owner; told to a client that still listens
	FailedInternal   FailureCode = "internal_error" // ours
)

// CancelReason says who no longer wants the answer (low cardinality: a metric label).
type CancelReason string

// The cancel reasons.
const (
	CancelDisconnect  CancelReason = "disconnect"   // the client went away
	CancelGrace       CancelReason = "grace"        // and did not come back in time
	CancelIngressLost CancelReason = "ingress_lost" // the ingress that held the client died
	CancelSlowReader  CancelReason = "slow_reader"  // the client did not read
	CancelDrain       CancelReason = "drain"        // the ingress shut down before the end
	CancelOperator    CancelReason = "operator"
)

// DownReason says how a worker's life ended.
type DownReason string

// The down reasons.
const (
	DownDrained DownReason = "drained" // by itself, with nothing left to do
	DownLost    DownReason = "lost"    // declared by the scheduler, after silence
)

// Outcome is what the client saw.
type Outcome string

// The outcomes.
const (
	OutcomeComplete     Outcome = "complete" // up to the last byte
	OutcomeDisconnected Outcome = "disconnected"
	OutcomeError        Outcome = "error" // an error event or an error status
)

// Event is one lifecycle event: one flat record, a typed column each in ClickHouse. Which fields an event type fills
// is in rules; a zero value is absent.
type Event struct {
	V    int  `json:"v"`
	Type Type `json:"type"`
	// Time is when it happened, UTC, by the writer's clock. For order and for differences between writers use
	// JetStream's sequence and store time.
	Time    int64     `json:"time_ns"`
	Source  string    `json:"source"` // the writer: a service instance (see ValidName)
	Request RequestID `json:"request_id,omitempty"`
	Attempt uint32    `json:"attempt,omitempty"`
	Ordinal uint32    `json:"ordinal,omitempty"` // tells apart repeated events of one attempt (preempted), from 0

	Pool    string    `json:"pool,omitempty"`
	Model   string    `json:"model,omitempty"`
	Tenant  string    `json:"tenant,omitempty"`
	Ingress IngressID `json:"ingress,omitempty"`
	Worker  WorkerID  `json:"worker,omitempty"`

	ClientRequest string        `json:"client_request_id,omitempty"` // the client's X-Request-Id, at most MaxClientRequest bytes
	Kind          Kind          `json:"kind,omitempty"`
	Class         Class         `json:"class,omitempty"`
	Stream        bool          `json:"stream,omitempty"`
	Budget        time.Duration `json:"budget_ns,omitempty"` // deadline left at this event
	Grace         time.Duration `json:"grace_ns,omitempty"`

	// Reason is the refusal, failure, cancel, down or finish reason, the outcome, or why a model was taken or not, by type.
	Reason     string        `json:"reason,omitempty"`
	Message    string        `json:"message,omitempty"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`

	PromptTokens int32 `json:"prompt_tokens,omitempty"`
	CachedTokens int32 `json:"cached_tokens,omitempty"` // of the prompt, found in the prefix cache
	MaxTokens    int32 `json:"max_tokens,omitempty"`
	OutputTokens int32 `json:"output_tokens,omitempty"`
	ResumeTokens int32 `json:"resume_tokens,omitempty"` // of the output, from earlier attempts

	QueueTime   time.Duration `json:"queue_ns,omitempty"`   // waited before this event, in this service
	PrefillTime time.Duration `json:"prefill_ns,omitempty"` // prefill start to first token
	DecodeTime  time.Duration `json:"decode_ns,omitempty"`  // first to last token
	TTFT        time.Duration `json:"ttft_ns,omitempty"`    // arrival to first token written, at the ingress
	E2E         time.Duration `json:"e2e_ns,omitempty"`     // arrival to last byte written, at the ingress

	RequestSeq uint64 `json:"request_seq,omitempty"` // the request's sequence in REQUESTS; of an epoch: up to which the pool's were accepted
	Epoch      uint64 `json:"epoch,omitempty"`       // the writing scheduler's epoch
	QueueDepth int32  `json:"queue_depth,omitempty"` // requests waiting, this one not counted

	// Resume is what a dispatched attempt > 1 continues from, so that sending it again sends the same.
	Resume Tokens `json:"resume,omitempty"`

	Backend       string `json:"backend,omitempty"`
	Fingerprint   string `json:"fingerprint,omitempty"` // of engine, model and settings
	Slots         int32  `json:"slots,omitempty"`
	KVPages       int32  `json:"kv_pages,omitempty"`
	ContextTokens int32  `json:"context_tokens,omitempty"`

	// What was expected of a request when it arrived, and what decided on it: of admitted and refused.
	Decision      string        `json:"decision,omitempty"`       // the rule that decided; empty: none did
	Artifact      string        `json:"artifact,omitempty"`       // SHA-256 of the model that predicted, or that the event is of; empty: the physics alone
	TTFTBudget    time.Duration `json:"ttft_budget_ns,omitempty"` // objective of the first token, from the arrival
	Predicted     time.Duration `json:"predicted_ns,omitempty"`   // median of the E2E latency
	PredictedTTFT time.Duration `json:"predicted_ttft_ns,omitempty"`
	Bound         time.Duration `json:"bound_ns,omitempty"`    // that the E2E latency stays below with probability BoundLevel; 0: none was claimed
	BoundLevel    float32       `json:"bound_level,omitempty"` // in (0, 1)
	Meet          float32       `json:"meet,omitempty"`        // probability to meet the objectives
	Gain          float32       `json:"gain,omitempty"`        // by how many requests within their objectives the expectation grows
	Cost          time.Duration `json:"cost_ns,omitempty"`     // part of a full engine's time
	Lambda        float32       `json:"lambda,omitempty"`      // price of a second of an engine's time, in requests within their objectives
	Propensity    float32       `json:"propensity,omitempty"`  // probability with which a request in this situation is admitted
	// Physics is the latency that was simulated at the median length, without a model of the residual: what Features are labelled
	// relative to. Features are those of package feature, in its order.
	Physics  time.Duration `json:"physics_ns,omitempty"`
	Features []float32     `json:"features,omitempty"`
}

// DedupID is the event's identity, for JetStream's duplicate window: <request>.<attempt>.<type>.<ordinal>, with the
// worker in the request's place for worker events, and pool and time for those of models. Where more than one service may write the type, .<source> follows:
// a lost worker's late finished, which is not believed, must not make the stream drop the scheduler's own. Epoch events
// have none: each is another.
func (e *Event) DedupID() string {
	subject, source := string(e.Request), ""
	switch e.Type {
	case Epoch:
		return ""
	case ModelPublished, ModelRejected, ModelRolledBack: // a trainer may come to the same model twice
		subject = e.Pool + "." + strconv.FormatInt(e.Time, 10)
	case WorkerUp:
		subject = string(e.Worker)
	case WorkerDown:
		subject, source = string(e.Worker), e.Source
	case Finished, Failed, Cancelled, CancelRequested:
		source = e.Source
	}
	b := make([]byte, 0, len(subject)+len(e.Type)+len(source)+8)
	b = append(b, subject...)
	b = append(b, '.')
	b = strconv.AppendUint(b, uint64(e.Attempt), 10)
	b = append(b, '.')
	b = append(b, e.Type...)
	b = append(b, '.')
	b = strconv.AppendUint(b, uint64(e.Ordinal), 10)
	if source != "" {
		b = append(b, '.')
		b = append(b, source...)
	}
	return string(b)
}

// need is a set of fields that an event type must have.
type need uint16

const (
	needRequest need = 1 << iota
	needAttempt
	needWorker
	needIngress
	needPool
	needReason
	needTenant
	needRequestSeq
	needArtifact
)

var rules = map[Type]need{
	Received:        needRequest | needIngress | needPool | needTenant,
	Refused:         needRequest | needIngress | needReason | needTenant,
	Admitted:        needRequest | needIngress | needPool | needTenant | needRequestSeq,
	Accepted:        needRequest | needIngress | needPool | needTenant | needRequestSeq,
	Dispatched:      needRequest | needAttempt | needWorker,
	PrefillStarted:  needRequest | needAttempt | needWorker,
	FirstToken:      needRequest | needAttempt | needWorker,
	Preempted:       needRequest | needAttempt | needWorker,
	Sealed:          needRequest | needAttempt,
	Finished:        needRequest | needAttempt | needReason,
	Failed:          needRequest | needReason,
	CancelRequested: needRequest | needReason,
	Cancelled:       needRequest | needReason,
	Delivered:       needRequest | needIngress | needReason,
	WorkerUp:        needWorker | needPool,
	WorkerDown:      needWorker | needPool | needReason,
	Epoch:           needPool,
	ModelPublished:  needPool | needArtifact | needReason,
	ModelRejected:   needPool | needArtifact | needReason,
	ModelRolledBack: needPool | needReason,
}

// MaxClientRequest is the longest client_request_id, in bytes.
const MaxClientRequest = 128

// Validate returns ErrInvalid, naming the field, if the event breaks a rule of its type, or holds a count or a duration
// below 0 (but for budget_ns: late already).
func (e *Event) Validate() error {
	n, ok := rules[e.Type]
	if !ok {
		return fmt.Errorf("%w event: type is %q", ErrInvalid, e.Type)
	}
	bad := func(field string, v any) error {
		return fmt.Errorf("%w event %s: %s is %v", ErrInvalid, e.Type, field, strconv.Quote(fmt.Sprint(v)))
	}
	switch {
	case e.Time <= 0:
		return bad("time_ns", e.Time)
	case !ValidName(e.Source): // it becomes part of ids and headers
		return bad("source", e.Source)
	case len(e.ClientRequest) > MaxClientRequest:
		return bad("client_request_id", e.ClientRequest)
	case n&needRequest != 0 && !e.Request.Valid():
		return bad("request_id", e.Request)
	case n&needAttempt != 0 && e.Attempt == 0:
		return bad("attempt", e.Attempt)
	case n&needWorker != 0 && !ValidName(string(e.Worker)):
		return bad("worker", e.Worker)
	case n&needIngress != 0 && !ValidName(string(e.Ingress)):
		return bad("ingress", e.Ingress)
	case n&needPool != 0 && !ValidName(e.Pool):
		return bad("pool", e.Pool)
	case n&needTenant != 0 && !ValidName(e.Tenant):
		return bad("tenant", e.Tenant)
	case n&needReason != 0 && e.Reason == "":
		return bad("reason", e.Reason)
	case n&needRequestSeq != 0 && e.RequestSeq == 0:
		return bad("request_seq", e.RequestSeq)
	case n&needArtifact != 0 && e.Artifact == "":
		return bad("artifact", e.Artifact)
	}
	counts := int64(e.PromptTokens | e.CachedTokens | e.MaxTokens | e.OutputTokens | e.ResumeTokens | e.QueueDepth | e.Slots | e.KVPages | e.ContextTokens)
	times := e.Grace | e.RetryAfter | e.QueueTime | e.PrefillTime | e.DecodeTime | e.TTFT | e.E2E |
		e.TTFTBudget | e.Predicted | e.PredictedTTFT | e.Bound | e.Cost | e.Physics
	if counts|int64(times) >= 0 { // the sign of all of them at once
		return nil
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"grace_ns", int64(e.Grace)}, {"retry_after_ns", int64(e.RetryAfter)}, {"prompt_tokens", int64(e.PromptTokens)}, {"cached_tokens", int64(e.CachedTokens)},
		{"max_tokens", int64(e.MaxTokens)}, {"output_tokens", int64(e.OutputTokens)}, {"resume_tokens", int64(e.ResumeTokens)}, {"queue_ns", int64(e.QueueTime)},
		{"prefill_ns", int64(e.PrefillTime)}, {"decode_ns", int64(e.DecodeTime)}, {"ttft_ns", int64(e.TTFT)}, {"e2e_ns", int64(e.E2E)},
		{"queue_depth", int64(e.QueueDepth)}, {"slots", int64(e.Slots)}, {"kv_pages", int64(e.KVPages)}, {"context_tokens", int64(e.ContextTokens)},
		{"ttft_budget_ns", int64(e.TTFTBudget)}, {"predicted_ns", int64(e.Predicted)}, {"predicted_ttft_ns", int64(e.PredictedTTFT)}, {"bound_ns", int64(e.Bound)},
		{"cost_ns", int64(e.Cost)}, {"physics_ns", int64(e.Physics)},
	} {
		if f.value < 0 {
			return bad(f.name, f.value)
		}
	}
	return nil
}
