package admission

import (
	"math/rand/v2"
	"time"
)

// None admits everything: the baseline of no admission control.
type None struct{}

// Name returns "none".
func (None) Name() string { return "none" }

// Decide admits.
func (None) Decide(in *Input, rng *rand.Rand) Decision { return verdict(true, Open, in, nil, rng) }

// QueueWait is a fixed limit on the time that a request waits for a worker, as ElasticServe's gateway has (750 ms).
//
// There it is a deadline in the queue: everything is let in, and what has no place at a worker by then is refused. It needs no
// prediction, but its clients learn late, and what is refused has kept its place until then. That is the default here: Decide
// admits everything, and whoever runs the arm must have the scheduler end requests after MaxWait. With AtArrival, a request is
// refused when it arrives if the predicted wait exceeds the limit, so that it is compared with the others on equal terms; the
// deadline in the queue stands in both.
type QueueWait struct {
	Limit     time.Duration // > 0
	AtArrival bool
	Retry     Retry
}

// DefaultQueueWait returns ElasticServe's rule.
func DefaultQueueWait() QueueWait {
	return QueueWait{Limit: 750 * time.Millisecond, Retry: DefaultRetry()}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (a *QueueWait) Validate() error {
	if a.Limit <= 0 {
		return bad("queue_wait.limit", a.Limit, "more than 0")
	}
	return a.Retry.Validate()
}

// MaxWait is after which time in the queue the scheduler must end a request that never ran.
func (a *QueueWait) MaxWait() time.Duration { return a.Limit }

// Name returns "queue-wait", or "queue-wait-arrival".
func (a *QueueWait) Name() string {
	if a.AtArrival {
		return "queue-wait-arrival"
	}
	return "queue-wait"
}

// Decide compares the predicted wait with the limit, if that is to be done at arrival.
func (a *QueueWait) Decide(in *Input, rng *rand.Rand) Decision {
	return verdict(!a.AtArrival || in.Load.Wait <= a.Limit, ByWait, in, &a.Retry, rng)
}

// QueueDepth is a reactive gate: it refuses while too many wait.
type QueueDepth struct {
	// PerWorker is how many may wait for each worker, ≥ 0.
	PerWorker float64
	// Resume is the part of that to which the queue must have fallen before anything is admitted again, in [0, 1]; 1: no
	// hysteresis.
	Resume float64
	Retry  Retry

	refuse bool
}

// DefaultQueueDepth returns a gate of eight for each worker.
func DefaultQueueDepth() QueueDepth {
	return QueueDepth{PerWorker: 8, Resume: 1, Retry: DefaultRetry()}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (a *QueueDepth) Validate() error {
	switch {
	case !within(a.PerWorker, 0, 1e9):
		return bad("queue_depth.per_worker", a.PerWorker, "0 to 1e9")
	case !within(a.Resume, 0, 1):
		return bad("queue_depth.resume", a.Resume, "0 to 1 (off)")
	}
	return a.Retry.Validate()
}

// Name returns "queue-depth".
func (a *QueueDepth) Name() string { return "queue-depth" }

// Decide looks at the queue.
func (a *QueueDepth) Decide(in *Input, rng *rand.Rand) Decision {
	most := float64(a.PerWorker * float64(max(0, in.Load.Workers)))
	if a.refuse {
		most *= a.Resume
	}
	// The newcomer may be the one that fills the queue; an empty queue is never too long.
	a.refuse = in.Load.Waiting > 0 && float64(in.Load.Waiting+1) > most
	return verdict(!a.refuse, ByDepth, in, &a.Retry, rng)
}
