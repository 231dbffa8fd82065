package scheduler

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/streams"
)

const (
	// echoEvery is how often the stream server is asked for a sign of life.
	echoEvery = 250 * time.Millisecond
	// echoSilence is its silence after which nobody else's counts: a server that hangs keeps its connections.
	echoSilence = time.Second
)

// echo tells whether the stream server answers. Its run owns a goroutine; silent is for the scheduler's owner.
type echo struct {
	heard atomic.Int64 // when it last answered, ns UTC; 0 before the first answer
}

// run asks until ctx ends.
func (e *echo) run(ctx context.Context, client *streams.Client) {
	tick := time.NewTicker(echoEvery)
	defer tick.Stop()
	for {
		once, cancel := context.WithTimeout(ctx, echoSilence)
		if client.Flush(once) == nil {
			e.heard.Store(time.Now().UnixNano())
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// silent reports whether the server has not answered for echoSilence.
func (e *echo) silent(now time.Time) bool {
	heard := e.heard.Load()
	return heard != 0 && now.UnixNano()-heard > int64(echoSilence)
}
