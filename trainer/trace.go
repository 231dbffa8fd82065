package trainer

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/schema"
)

// ErrSkip is the error of a trace that is no row to learn from; the text says why, in few words of low cardinality.
var ErrSkip = errors.New("trainer: trace skipped")

// Trace is what the event log says of a request that was admitted with features and has been delivered, raw.
type Trace struct {
	Request      schema.RequestID
	Arrived      time.Time
	Pool, Tenant string
	Kind         schema.Kind
	Class        schema.Class
	Features     []float32
	Physics      time.Duration // that was simulated; see schema.Event
	Propensity   float32       // 0: not known, which is 1
	PromptTokens int32
	CapTokens    int32
	OutputTokens int32
	E2E          time.Duration
	Delivered    schema.Outcome
	Failure      schema.FailureCode // of an outcome that is an error
	Worker       schema.WorkerID    // that had it last; empty: none had
	Fingerprint  string             // of that worker; empty: not known
}

// Rounding is how rows become runs and rounds by the time of their arrival: a run is a minute, whose requests shared a queue, and a
// round is so many whole ones, ≥ 1, long enough for the engine to have seen every load.
type Rounding struct{ Minutes int }

// DefaultRounding has rounds of ten minutes.
func DefaultRounding() Rounding { return Rounding{Minutes: 10} }

// Validate returns ErrConfig.
func (r Rounding) Validate() error {
	if r.Minutes < 1 || r.Minutes > 7*24*60 {
		return fmt.Errorf("%w: a round has %d minutes, allowed: 1 to 10080", ErrConfig, r.Minutes)
	}
	return nil
}

// of returns the run and the round of an arrival, both counted from 1970.
func (r Rounding) of(arrived time.Time) (run, round int) {
	run = int(math.Floor(float64(arrived.Unix()) / 60))
	return run, int(math.Floor(float64(run) / float64(r.Minutes)))
}

// ClassOf numbers the classes of requests, as Known.Class and an artifact's groups have them: what is promised counts apart.
func ClassOf(c schema.Class) uint16 {
	if c == schema.Guaranteed {
		return 1
	}
	return 0
}

// maxWeight bounds 1/propensity: one row that was let in as one of ten thousand would outweigh all others.
const maxWeight = 100

// Row is the trace as a row to learn from. What a limit or a deadline of ours ended took at least as long as it did, like what its client
// left. ErrSkip of what says nothing of latencies (an engine that failed) or is of other code (another number of features); it keeps the
// features.
func (t *Trace) Row(r Rounding) (Row, error) {
	skip := func(why string) (Row, error) { return Row{}, fmt.Errorf("%w: %s", ErrSkip, why) }
	switch {
	case len(t.Features) != feature.Count:
		return skip("features of another version")
	case t.Physics <= 0:
		return skip("no simulated latency")
	case t.E2E <= 0:
		return skip("no latency")
	}
	censored := t.Delivered != schema.OutcomeComplete
	if t.Delivered == schema.OutcomeError && t.Failure != schema.FailedTimeout && t.Failure != schema.FailedDeadline {
		return skip("failed for another reason than time")
	}
	row := Row{Known: Known{Features: t.Features, Predicted: t.Physics.Seconds(), Class: ClassOf(t.Class), Load: feature.Load(t.Features), Weight: 1},
		At: t.Arrived, Label: math.Log(t.E2E.Seconds() / t.Physics.Seconds()), Censored: censored}
	row.Run, row.Round = r.of(t.Arrived)
	if p := float64(t.Propensity); p > 0 && p < 1 {
		row.Weight = min(1/p, maxWeight)
	}
	if err := row.check(0, feature.Count); err != nil {
		return skip("not a row")
	}
	return row, nil
}

// Log makes traces of events, in any order that keeps a request's admission before its delivery. It holds what is open, and has one
// owner. The zero value is not usable; see NewLog.
type Log struct {
	pool         string
	open         map[schema.RequestID]*open
	fingerprints map[schema.WorkerID]string
	emit         func(*Trace) error
}

// open is a request that was admitted and has not been delivered.
type open struct {
	Trace
	attempt uint32
}

// LogTypes are the events that a Log looks at.
func LogTypes() []schema.Type {
	return []schema.Type{schema.WorkerUp, schema.Admitted, schema.Dispatched, schema.Delivered}
}

// NewLog makes traces of one pool's requests, or of all pools' if it is empty. emit keeps nothing of its argument but the features.
func NewLog(pool string, emit func(*Trace) error) *Log {
	return &Log{pool: pool, open: map[schema.RequestID]*open{}, fingerprints: map[schema.WorkerID]string{}, emit: emit}
}

// Add takes an event, of which it keeps the features; the error is emit's.
func (l *Log) Add(e *schema.Event) error {
	if e.Type == schema.WorkerUp {
		l.fingerprints[e.Worker] = e.Fingerprint
		return nil
	}
	if e.Type == schema.Admitted && len(e.Features) > 0 && (l.pool == "" || e.Pool == l.pool) {
		l.open[e.Request] = &open{Trace: Trace{Request: e.Request, Arrived: arrival(e.Request), Pool: e.Pool, Tenant: e.Tenant, Kind: e.Kind, Class: e.Class,
			Features: e.Features, Physics: e.Physics, Propensity: e.Propensity, PromptTokens: e.PromptTokens, CapTokens: e.MaxTokens}}
		return nil
	}
	o := l.open[e.Request]
	if o == nil {
		return nil
	}
	if e.Worker != "" && e.Attempt >= o.attempt {
		o.Worker, o.attempt = e.Worker, e.Attempt
	}
	if e.Type != schema.Delivered {
		return nil
	}
	delete(l.open, e.Request)
	o.OutputTokens, o.E2E, o.Delivered = e.OutputTokens, e.E2E, schema.Outcome(e.Reason)
	if o.Delivered == schema.OutcomeError {
		o.Failure = schema.FailureCode(e.Message)
	}
	o.Fingerprint = l.fingerprints[o.Worker]
	return l.emit(&o.Trace)
}

// arrival is the time in a UUIDv7, to the millisecond.
func arrival(id schema.RequestID) time.Time {
	if !id.Valid() {
		return time.Unix(0, 0).UTC()
	}
	ms, err := strconv.ParseInt(string(id[:8]+id[9:13]), 16, 64)
	if err != nil {
		ms = 0 // Valid has seen that they are digits
	}
	return time.UnixMilli(ms).UTC()
}

// Open is how many admitted requests have not been delivered.
func (l *Log) Open() int { return len(l.open) }
