package load

import (
	"context"
	"time"
)

// alarm wakes one goroutine at given times. On Linux it is a timer of the kernel behind the runtime's poller: the
// runtime's own timers are waited for in whole milliseconds, which is as long as what is measured here.
type alarm interface {
	// until returns at the given time (at once if it has passed), or when ctx ends with its error.
	until(ctx context.Context, at time.Time) error
	close()
}
