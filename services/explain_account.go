package services

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/schema"
)

// Verdicts on a bound or an objective.
const (
	verdictNone    = "none" // there was none
	verdictMet     = "met"
	verdictMissed  = "missed"
	verdictUnknown = "unknown" // cut short before, or not at its end yet
)

// account is what the events say of one request. Durations are ns, those since the arrival where nothing else is said; a zero value is
// absent.
type account struct {
	Request       schema.RequestID `json:"request_id"`
	ClientRequest string           `json:"client_request_id,omitempty"`
	Arrived       time.Time        `json:"arrived"` // UTC
	Tenant        string           `json:"tenant"`
	Pool          string           `json:"pool,omitempty"`
	Model         string           `json:"model,omitempty"`
	Ingress       schema.IngressID `json:"ingress,omitempty"`
	Kind          schema.Kind      `json:"kind,omitempty"`
	Asked         schema.Class     `json:"class_asked,omitempty"`
	Served        schema.Class     `json:"class_served,omitempty"` // of admitted requests
	Stream        bool             `json:"stream"`
	PromptTokens  int32            `json:"prompt_tokens"`
	MaxTokens     int32            `json:"max_tokens"`
	E2E           time.Duration    `json:"e2e_objective_ns,omitempty"`
	TTFT          time.Duration    `json:"ttft_objective_ns,omitempty"`
	Decision      *decision        `json:"decision,omitempty"` // nil: none in the events
	Events        []moment         `json:"events"`             // in the order of the log
	End           ending           `json:"end"`
}

// decision is what an admitted or a refused event says.
type decision struct {
	Admitted   bool                 `json:"admitted"`
	Rule       string               `json:"rule,omitempty"`
	Refusal    schema.RefusalReason `json:"refusal,omitempty"`
	Why        string               `json:"why"`
	Note       string               `json:"note,omitempty"`
	RetryAfter time.Duration        `json:"retry_after_ns,omitempty"` // from the refusal
	Predicted  time.Duration        `json:"predicted_ns,omitempty"`   // 0: nothing was
	First      time.Duration        `json:"predicted_ttft_ns,omitempty"`
	Bound      time.Duration        `json:"bound_ns,omitempty"`
	Level      float32              `json:"bound_level,omitempty"`
	Meet       float32              `json:"meet"`
	Gain       float32              `json:"gain"`
	Cost       time.Duration        `json:"cost_ns"` // of a full engine's time
	Lambda     float32              `json:"lambda"`
	Propensity float32              `json:"propensity"`
	Artifact   string               `json:"artifact,omitempty"`
	Physics    time.Duration        `json:"physics_ns,omitempty"`
	Features   []namedFeature       `json:"features,omitempty"`
}

type namedFeature struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float32 `json:"value"`
}

// moment is one event.
type moment struct {
	Since   time.Duration `json:"since_ns"` // the arrival, by its writer's clock
	Type    schema.Type   `json:"type"`
	Attempt uint32        `json:"attempt,omitempty"`
	Source  string        `json:"source"`
	Detail  string        `json:"detail,omitempty"`
}

// ending is what became of it.
type ending struct {
	Outcome      string        `json:"outcome"` // the type of the event that ended it, or in_flight
	Reason       string        `json:"reason,omitempty"`
	Message      string        `json:"message,omitempty"`
	Delivered    string        `json:"delivered,omitempty"` // schema.Outcome; empty: the client's answer is not at its end
	E2E          time.Duration `json:"e2e_ns,omitempty"`
	TTFT         time.Duration `json:"ttft_ns,omitempty"`
	CachedTokens int32         `json:"cached_tokens"` // of the prompt, at the last attempt
	OutputTokens int32         `json:"output_tokens"`
	Attempts     uint32        `json:"attempts"`
	Worker       string        `json:"worker,omitempty"`
	Preemptions  int           `json:"preemptions"`
	cachedOf     uint32        // attempt of CachedTokens
	Bound        string        `json:"bound"` // verdicts
	E2EVerdict   string        `json:"e2e_objective"`
	TTFTVerdict  string        `json:"ttft_objective"`
}

// newAccount makes an account of a request's events, one at least, in the order of the log.
func newAccount(events []schema.Stored) *account {
	a := &account{Request: events[0].Request, End: ending{Outcome: "in_flight"}}
	arrived := arrivedAt(events)
	a.Arrived = time.Unix(0, arrived).UTC()
	seen := map[string]bool{}
	var last *schema.Stored // that ends it
	for i := range events {
		e := &events[i]
		if id := e.DedupID(); seen[id] {
			continue // stored twice, after the duplicate window
		} else {
			seen[id] = true
		}
		since := time.Duration(e.Time - arrived)
		a.Events = append(a.Events, moment{Since: since, Type: e.Type, Attempt: e.Attempt, Source: e.Source, Detail: detail(&e.Event)})
		a.describe(&e.Event)
		a.progress(&e.Event)
		if e.Type.Terminal() && (last == nil || settles(e, last)) {
			last = e
		}
	}
	if last != nil {
		a.End.Outcome, a.End.Reason, a.End.Message = string(last.Type), last.Reason, last.Message
		a.End.OutputTokens = max(a.End.OutputTokens, last.OutputTokens)
	}
	a.judge()
	return a
}

// arrivedAt is when the request arrived, ns UTC: as its received event says, its id, or else the first event.
func arrivedAt(events []schema.Stored) int64 {
	for i := range events {
		if events[i].Type == schema.Received {
			return events[i].Time
		}
	}
	id := strings.ReplaceAll(string(events[0].Request), "-", "")
	if b, err := hex.DecodeString(id); err == nil && len(b) == 16 && b[6]>>4 == 7 { // a UUIDv7 begins with 48 bits of ms
		return int64(binary.BigEndian.Uint64(b)>>16) * int64(time.Millisecond)
	}
	return events[0].Time
}

// settles reports whether e rather than f is a request's end, as the view requests has it: the highest attempt counts, and in it
// who owns the request, a scheduler, before a worker.
func settles(e, f *schema.Stored) bool {
	if e.Attempt != f.Attempt {
		return e.Attempt > f.Attempt
	}
	return e.Worker == "" && f.Worker != ""
}

// describe takes what an event of the ingress says of the request itself.
func (a *account) describe(e *schema.Event) {
	a.PromptTokens, a.MaxTokens = max(a.PromptTokens, e.PromptTokens), max(a.MaxTokens, e.MaxTokens)
	for _, f := range []struct {
		to   *string
		from string
	}{{&a.ClientRequest, e.ClientRequest}, {&a.Tenant, e.Tenant}, {&a.Pool, e.Pool}, {&a.Model, e.Model}, {(*string)(&a.Ingress), string(e.Ingress)},
		{(*string)(&a.Kind), string(e.Kind)}} {
		if *f.to == "" {
			*f.to = f.from
		}
	}
	a.Stream = a.Stream || e.Stream
	switch e.Type {
	case schema.Received:
		a.Asked, a.E2E = orBestEffort(e.Class), max(0, e.Budget)
	case schema.Admitted:
		a.Served, a.TTFT = orBestEffort(e.Class), e.TTFTBudget
		a.Decision = newDecision(e)
	case schema.Refused:
		a.TTFT = e.TTFTBudget
		a.Asked = orBestEffort(e.Class)
		a.E2E = max(a.E2E, e.Budget)
		a.Decision = newDecision(e)
	}
}

func orBestEffort(c schema.Class) schema.Class {
	if c == "" {
		return schema.BestEffort
	}
	return c
}

// progress takes how far the request has come.
func (a *account) progress(e *schema.Event) {
	a.End.Attempts = max(a.End.Attempts, e.Attempt)
	if e.Worker != "" && e.Attempt == a.End.Attempts {
		a.End.Worker = string(e.Worker)
	}
	switch e.Type {
	case schema.Preempted:
		a.End.Preemptions++
	case schema.PrefillStarted, schema.FirstToken, schema.Finished:
		switch {
		case e.Attempt > a.End.cachedOf:
			a.End.CachedTokens, a.End.cachedOf = e.CachedTokens, e.Attempt
		case e.Attempt == a.End.cachedOf:
			a.End.CachedTokens = max(a.End.CachedTokens, e.CachedTokens)
		}
	case schema.Delivered:
		a.End.Delivered, a.End.E2E, a.End.TTFT = e.Reason, e.E2E, e.TTFT
		a.End.OutputTokens = max(a.End.OutputTokens, e.OutputTokens)
	}
}

// judge compares the end with what was promised and asked for.
func (a *account) judge() {
	var bound time.Duration
	if a.Decision != nil && a.Decision.Admitted {
		bound = a.Decision.Bound
	}
	whole := a.End.Delivered == string(schema.OutcomeComplete)
	a.End.Bound = verdict(a.End.E2E, bound, whole, false)
	// A refused request and one that failed have missed what they asked for; one whose client left can have met it.
	lost := a.End.Outcome == string(schema.Refused) || a.End.Outcome == string(schema.Failed) || a.End.Delivered == string(schema.OutcomeError)
	a.End.E2EVerdict = verdict(a.End.E2E, a.E2E, whole, lost)
	a.End.TTFTVerdict = verdict(a.End.TTFT, a.TTFT, a.End.TTFT > 0, lost && a.End.TTFT == 0)
}

// verdict compares a latency with a limit; reached says that the latency is one, rather than how long somebody waited.
func verdict(took, limit time.Duration, reached, lost bool) string {
	switch {
	case limit <= 0:
		return verdictNone
	case lost, took > limit:
		return verdictMissed
	case reached:
		return verdictMet
	default:
		return verdictUnknown
	}
}

// newDecision reads an admitted or a refused event.
func newDecision(e *schema.Event) *decision {
	d := &decision{Admitted: e.Type == schema.Admitted, Rule: e.Decision, Note: e.Message, RetryAfter: e.RetryAfter, Predicted: e.Predicted,
		First: e.PredictedTTFT, Bound: e.Bound, Level: e.BoundLevel, Meet: e.Meet, Gain: e.Gain, Cost: e.Cost, Lambda: e.Lambda,
		Propensity: e.Propensity, Artifact: e.Artifact, Physics: e.Physics}
	if !d.Admitted {
		d.Refusal = schema.RefusalReason(e.Reason)
	}
	d.Why = why(d)
	table := feature.Table()
	for i, x := range e.Features {
		f := namedFeature{Name: fmt.Sprintf("feature_%d", i), Value: x}
		if len(e.Features) == len(table) { // others are of another version
			f.Name, f.Unit = table[i].Name, table[i].Unit
		}
		d.Features = append(d.Features, f)
	}
	return d
}

// Sentences of the rules, for a request that each let in, and for one that it refused; without a full stop.
var (
	whyAdmitted = map[string]string{
		admission.ByPrice.String():     "its chance to be in time is worth more than what others lose by it, and than its price",
		admission.ByBound.String():     "a bound on its latency fits its objective",
		admission.ByMargin.String():    "nothing is calibrated yet: its simulated latency with a margin fits its objectives",
		admission.Idle.String():        "the engine was idle, and takes whatever is not hopeless then",
		admission.Exploration.String(): "by chance: the rule would have refused it, and lets in a few of those to learn from them",
		admission.Open.String():        "it has no objective that could be missed, or nothing is ever refused",
		admission.ByWait.String():      "the wait that was predicted is within the limit",
		admission.ByDepth.String():     "no more were waiting, or open, than the limit allows",
		admission.ByDemand.String():    "as much of the demand is let in as can be served, and it was among that",
		"probe":                        "it has the probes' token: a canary, which no rule refuses",
	}
	whyRefused = map[string]string{
		admission.ByPrice.String():            "its chance to be in time is worth less than what others lose by it, or than its price",
		admission.ByBound.String():            "no bound on its latency is known that fits its objective",
		admission.ByMargin.String():           "nothing is calibrated yet: its simulated latency with a margin does not fit its objectives",
		admission.Infeasible.String():         "not even an idle engine would be likely to meet its objectives: only longer ones help",
		admission.ProtectsGuaranteed.String(): "it would have delayed others whose latency is guaranteed",
		admission.Capacity.String():           "a limit on requests or tokens, open or waiting, was reached",
		admission.TenantCapacity.String():     "its tenant had as many requests or tokens open as it may",
		admission.ByWait.String():             "the wait that was predicted is beyond the limit",
		admission.ByDepth.String():            "more were waiting, or open, than the limit allows",
		admission.ByDemand.String():           "more is asked for than can be served, and it was not among what is let in",
	}
	// What refuses without a rule.
	whyNot = map[schema.RefusalReason]string{
		schema.RefusedCapacity:    "a limit on requests or tokens, open or waiting, was reached, or the store was full",
		schema.RefusedDraining:    "the ingress was shutting down",
		schema.RefusedNoWorker:    "no worker served the model",
		schema.RefusedUnavailable: "it could not be stored: the stream server did not answer",
		schema.RefusedInfeasible:  "not even an idle engine would be likely to meet its objectives: only longer ones help",
		schema.RefusedSLO:         "it would probably not have met its objectives",
	}
)

// why is a sentence of what decided.
func why(d *decision) string {
	rule := d.Rule
	switch {
	case d.Admitted && rule == "":
		return "no rule was asked"
	case d.Admitted && rule == admission.ByMargin.String() && d.Predicted == 0:
		return "nothing could be predicted, and no hard limit was reached"
	case d.Admitted && whyAdmitted[rule] != "":
		return whyAdmitted[rule]
	case d.Admitted:
		return "by a rule that this version does not know"
	}
	text, hard := whyRefused[rule], whyNot[d.Refusal]
	if r := reasonOf(rule); r != admission.NoReason && r.Refusal() == d.Refusal && text != "" {
		return text
	}
	switch {
	case hard == "":
		return "for a reason that this version does not know"
	case rule != "": // the rule had let it in
		return "the rule had let it in, but " + hard
	}
	return hard
}

// reasonOf is the reason with a name, or NoReason.
func reasonOf(name string) admission.Reason {
	for r := admission.NoReason + 1; r.String() != "unknown"; r++ {
		if r.String() == name {
			return r
		}
	}
	return admission.NoReason
}

// detail is what an event adds to its type.
func detail(e *schema.Event) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch e.Type {
	case schema.Admitted, schema.Refused:
		if e.Decision != "" && e.Decision != e.Reason {
			add("%s", e.Decision)
		}
	case schema.Dispatched:
		add("to %s, %d waiting", e.Worker, e.QueueDepth)
	case schema.PrefillStarted, schema.FirstToken:
		if e.CachedTokens > 0 {
			add("%d tokens cached", e.CachedTokens)
		}
	case schema.Preempted, schema.Finished, schema.Delivered:
		add("%d tokens", e.OutputTokens)
	}
	if e.Type != schema.Admitted && e.Reason != "" {
		add("%s", e.Reason)
	}
	if e.Type != schema.Admitted && e.Message != "" {
		add("%s", e.Message)
	}
	return strings.Join(parts, ", ")
}
