//go:build !linux

package load

import (
	"context"
	"time"
)

func newAlarm() (alarm, error) { return runtimeAlarm{}, nil }

// runtimeAlarm is the portable one.
type runtimeAlarm struct{}

func (runtimeAlarm) close() {}

func (runtimeAlarm) until(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
