package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// ErrConfig is returned for a configuration that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("scheduler: invalid configuration")

// Config holds the rules of a Core. Fields are read-only once it runs.
type Config struct {
	// Pool that is scheduled, and Source as which its events are written.
	Pool   string
	Source string
	// MaxAttempts is how many workers may be lost under a request before it fails, ≥ 1.
	MaxAttempts uint32
	// WorkerLostAfter is the silence after which a worker counts as lost, IngressLostAfter the same of an ingress; never less than three of its heartbeat intervals.
	WorkerLostAfter  time.Duration
	IngressLostAfter time.Duration
	// NoListenerAfter is how long nobody must have listened where a worker or an ingress should before it counts as
	// gone: longer than a client takes to reconnect.
	NoListenerAfter time.Duration
	// MaxQueueWait ends a request that waited as long in the queue, and never ran: none is bound then. Its client hears of it
	// within a twentieth of that, a second at most, and a Tick. 0 is no limit.
	MaxQueueWait time.Duration
	// CancelEvery is the time between repetitions of a cancel that a worker has not answered.
	CancelEvery time.Duration
	// OrphanAge is how long a cancel of an unknown request is remembered.
	OrphanAge time.Duration
	// MaxGroup bounds the events of one append; ≥ 2 and well below what is read again after a crash.
	MaxGroup int
	// MaxBatchBytes bounds the bodies of one dispatch; a larger request travels alone.
	MaxBatchBytes int
	// Order of the queue; nil is EDF with MaxQueueWait as the deadline of a request that has none.
	Order Order
	// Placement among workers that have room; nil is LeastLoaded.
	Placement Placement
}

// DefaultConfig returns the defaults for a pool.
func DefaultConfig(pool, source string) Config {
	return Config{
		Pool: pool, Source: source,
		MaxAttempts:      3,
		WorkerLostAfter:  2 * time.Second,
		IngressLostAfter: 3 * time.Second,
		NoListenerAfter:  500 * time.Millisecond,
		MaxQueueWait:     10 * time.Minute,
		CancelEvery:      time.Second,
		OrphanAge:        time.Minute,
		MaxGroup:         512,
		MaxBatchBytes:    2 << 20,
	}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	switch {
	case !schema.ValidName(c.Pool):
		return fmt.Errorf("%w: pool is %q, want 1 to 64 of [A-Za-z0-9_-]", ErrConfig, c.Pool)
	case !schema.ValidName(c.Source):
		return fmt.Errorf("%w: source is %q, want 1 to 64 of [A-Za-z0-9_-]", ErrConfig, c.Source)
	case c.MaxAttempts < 1:
		return fmt.Errorf("%w: max_attempts is %d, want at least 1", ErrConfig, c.MaxAttempts)
	case c.WorkerLostAfter <= 0:
		return fmt.Errorf("%w: worker_lost_after is %v, want more than 0", ErrConfig, c.WorkerLostAfter)
	case c.IngressLostAfter <= 0:
		return fmt.Errorf("%w: ingress_lost_after is %v, want more than 0", ErrConfig, c.IngressLostAfter)
	case c.NoListenerAfter < 0:
		return fmt.Errorf("%w: no_listener_after is %v, want at least 0", ErrConfig, c.NoListenerAfter)
	case c.MaxQueueWait < 0:
		return fmt.Errorf("%w: max_queue_wait is %v, want at least 0 (0 is no limit)", ErrConfig, c.MaxQueueWait)
	case c.CancelEvery <= 0:
		return fmt.Errorf("%w: cancel_every is %v, want more than 0", ErrConfig, c.CancelEvery)
	case c.OrphanAge <= 0:
		return fmt.Errorf("%w: orphan_age is %v, want more than 0", ErrConfig, c.OrphanAge)
	case c.MaxGroup < 2 || c.MaxGroup > 2048:
		return fmt.Errorf("%w: max_group is %d, want 2 to 2048", ErrConfig, c.MaxGroup)
	case c.MaxBatchBytes < 1:
		return fmt.Errorf("%w: max_batch_bytes is %d, want at least 1", ErrConfig, c.MaxBatchBytes)
	}
	return nil
}
