package scheduler

import (
	"context"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// Append is one append of a scheduler under test.
type Append = func(ctx context.Context, events []*schema.Event) ([]uint64, error)

type wrapped struct {
	appender
	do func(ctx context.Context, events []*schema.Event, next Append) ([]uint64, error)
}

func (w wrapped) Append(ctx context.Context, events []*schema.Event) ([]uint64, error) {
	return w.do(ctx, events, w.appender.Append)
}

// Intercept puts do around every append, so that a test can cut one off.
func (s *Scheduler) Intercept(do func(ctx context.Context, events []*schema.Event, next Append) ([]uint64, error)) {
	claim := s.claim
	s.claim = func(ctx context.Context) (appender, error) {
		a, err := claim(ctx)
		return wrapped{a, do}, err
	}
}

// RenewEvery sets how often the claim is looked at.
func (s *Scheduler) RenewEvery(d time.Duration) { s.renewEvery = d }
