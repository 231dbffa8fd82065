package admission

import "github.com/cadence-slo/cadence/schema"

// Reason is the rule that settled a decision (low cardinality: a metric label, together with whether it was admitted). The zero
// value is none.
type Reason uint8

// The reasons. Those of one line say which way the decision may have gone.
const (
	NoReason           Reason = iota
	ByPrice                   // either: what is gained, against the price of the engine's time
	ByBound                   // either: a bound on the latency, against the budget
	ByMargin                  // either: no calibrated model yet; the physics' latency with a margin, against the objectives
	Idle                      // admitted: nothing runs or waits
	Exploration               // admitted: by chance, to keep learning of what is refused
	Infeasible                // refused: hopeless on an idle engine too
	ProtectsGuaranteed        // refused: another would not keep what it was promised
	Capacity                  // refused: a limit of all is reached
	TenantCapacity            // refused: a limit of its tenant is reached
	Open                      // admitted: nothing is ever refused
	ByWait                    // either: the predicted wait, against a limit
	ByDepth                   // either: the queue's length, against a limit
	ByDemand                  // either: by chance, from the excess of demand over capacity
	reasons
)

var reasonNames = [reasons]string{
	"", "best_effort_price", "bound", "cold_start", "idle", "exploration", "infeasible", "protects_guaranteed", "capacity",
	"tenant_capacity", "open", "queue_wait", "queue_depth", "demand",
}

// String returns the reason's name in events, metrics and error bodies; that of NoReason is empty.
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return reasonNames[r]
}

// Refusal returns how events name a refusal for this reason. It is "" for reasons that never refuse.
func (r Reason) Refusal() schema.RefusalReason {
	switch r {
	case NoReason, Idle, Exploration, Open:
		return ""
	case Capacity, TenantCapacity, ByDepth:
		return schema.RefusedCapacity
	case Infeasible:
		return schema.RefusedInfeasible
	default:
		return schema.RefusedSLO
	}
}

// Message returns what an error body says of a refusal for this reason: a sentence without a full stop, "" for reasons that never
// refuse.
func (r Reason) Message() string {
	switch r {
	case ByPrice, ByDemand:
		return "the service is overloaded: others make better use of its time at present"
	case ByBound, ByMargin:
		return "the request would probably not be finished within its objective at present"
	case Infeasible:
		return "the objective is too short for this request, even on an idle engine"
	case ProtectsGuaranteed:
		return "the request would delay others whose latency is guaranteed"
	case Capacity, ByDepth:
		return "the service holds as many requests as it can"
	case TenantCapacity:
		return "the tenant has as many requests open as it may"
	case ByWait:
		return "the request would wait too long"
	default:
		return ""
	}
}
