// Package lease says which scheduler of a pool may claim it.
//
// A lease only keeps schedulers from taking a pool away from each other. It is not what makes a pool safe: that is the
// claim itself, an epoch event that fences every append of the schedulers before it.
package lease

import "context"

// Lease is a right that at most one holder should have at a time. It is safe for concurrent use.
type Lease interface {
	// Acquire waits until the pool is free or ctx ends, and returns ctx's error then.
	Acquire(ctx context.Context, pool string) (Held, error)
}

// Held is an acquired lease.
type Held interface {
	// Lost is closed when the lease is over without Release: another scheduler may claim the pool from now on. A nil
	// channel says that this never happens.
	Lost() <-chan struct{}
	// Release gives the lease back, so that another scheduler need not wait until it runs out. It may be called more
	// than once.
	Release()
}

// Sole is the lease of a deployment with one scheduler for each pool: it is always granted and never lost. If a second
// scheduler is started nevertheless, its claim fences the first one, which then stops with ErrDeposed.
type Sole struct{}

// Acquire implements Lease.
func (Sole) Acquire(ctx context.Context, _ string) (Held, error) { return sole{}, ctx.Err() }

type sole struct{}

func (sole) Lost() <-chan struct{} { return nil }
func (sole) Release()              {}
