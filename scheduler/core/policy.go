package core

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// Order decides who waits for whom. It is pure and must not keep the request.
type Order interface {
	// Rank returns a request's place in the queue, lowest first; it is asked once, when the request arrives. Requests
	// of equal rank go in the order of REQUESTS. Before it count whether a request can still meet its objectives, whether
	// it is guaranteed, and whether it ran already.
	Rank(r *Request) int64
}

// EDF is earliest deadline first. The deadline is the request's store time plus its budget.
type EDF struct {
	// NoDeadline stands in for the budget of a request that has none: such requests keep arrival order among
	// themselves and, late enough, go before others. 0 puts them behind every deadline.
	NoDeadline time.Duration
}

// Rank implements Order.
func (o EDF) Rank(r *Request) int64 {
	budget := r.Budget
	if budget <= 0 {
		budget = o.NoDeadline
	}
	if budget <= 0 || int64(budget) > math.MaxInt64-r.StoredAt {
		return math.MaxInt64
	}
	return r.StoredAt + int64(budget)
}

// FCFS is first come, first served, in the order of REQUESTS, whatever the deadlines.
type FCFS struct{}

// Rank implements Order.
func (FCFS) Rank(*Request) int64 { return 0 }

// SJF is shortest job first, by the most tokens that a request may generate; equal ones in the order of REQUESTS. Under an
// overload that does not end, long ones starve until MaxQueueWait.
type SJF struct{}

// Rank implements Order.
func (SJF) Rank(r *Request) int64 { return int64(r.MaxTokens) }

// Orders are the names that OrderOf knows.
var Orders = []string{"edf", "fcfs", "sjf"}

// OrderOf returns the order of a name; nil is the default one, edf. It returns ErrConfig for another name.
func OrderOf(name string) (Order, error) {
	switch name {
	case "", "edf":
		return nil, nil
	case "fcfs":
		return FCFS{}, nil
	case "sjf":
		return SJF{}, nil
	default:
		return nil, fmt.Errorf("%w: order is %q, allowed: %s", ErrConfig, name, strings.Join(Orders, ", "))
	}
}

// Load is what the scheduler's own book says of a worker. Heartbeats are older than the book, so that they do not count.
type Load struct {
	Worker   schema.WorkerID
	Slots    int32 // requests it takes at once, > 0
	InFlight int32 // requests bound to it, in [0, Slots); for one that best effort is to give way to, only those that are guaranteed
	KVPages  int32 // 0 is unknown
	Pages    int32 // reserved by the peaks of those
	Need     int32 // pages of the request to be placed
}

// Placement chooses among workers that have room for a request now.
type Placement interface {
	// Score rates a worker for a request: the lowest score gets it, of equal scores the lowest worker id. NaN is
	// never chosen.
	Score(r *Request, l Load) float64
}

// LeastLoaded places a request where the fuller of slots and KV pages is emptiest, as a share in [0, 1).
type LeastLoaded struct{}

// Score implements Placement.
func (LeastLoaded) Score(_ *Request, l Load) float64 {
	score := float64(l.InFlight) / float64(l.Slots)
	if l.KVPages > 0 {
		score = max(score, float64(l.Pages)/float64(l.KVPages))
	}
	return score
}
