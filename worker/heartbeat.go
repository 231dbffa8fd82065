package worker

import (
	"context"
	"time"
)

// heart calls beat every interval and after changes, at least gap apart, until ctx ends or beat returns false.
func heart(ctx context.Context, interval, gap time.Duration, changed <-chan struct{}, beat func() bool) {
	next := time.NewTimer(0) // the first at once
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-changed:
		}
		if !beat() {
			return
		}
		if gap > 0 {
			next.Reset(gap)
			select {
			case <-ctx.Done():
				return
			case <-next.C:
			}
		}
		next.Reset(interval - gap)
	}
}
