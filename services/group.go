package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Component is one part of a process.
type Component struct {
	Name string
	// Run serves until ctx ends, then finishes what it holds and returns nil. It calls ready, once, when what starts
	// after it may count on it.
	Run func(ctx context.Context, ready func()) error
	// StopWithin is how long Run may take to return after ctx ended.
	StopWithin time.Duration
}

// ErrStopTimeout is returned for a component that did not stop in time.
var ErrStopTimeout = errors.New("services: component did not stop in time")

// running is a component that has been started.
type running struct {
	Component
	stop   context.CancelFunc
	result chan error
}

// RunGroup starts the components in order and serves until ctx ends or one of them returns, then stops them in
// opposite order. up, if not nil, runs when all are ready. It returns what went wrong first, nil after an ordinary stop.
func RunGroup(ctx context.Context, log *slog.Logger, components []Component, up func()) error {
	var started []*running
	failed := make(chan error, len(components))
	first := func() error {
		for _, c := range components {
			r := &running{Component: c, result: make(chan error, 1)}
			// Each component has a context of its own: the group's end must not reach all of them at once.
			own, stop := context.WithCancel(context.WithoutCancel(ctx))
			r.stop = stop
			ready := make(chan struct{})
			begin := time.Now()
			go func() {
				err := c.Run(own, func() { close(ready) })
				if own.Err() == nil { // nobody asked it to stop
					if err == nil {
						err = errors.New("stopped by itself")
					}
					failed <- fmt.Errorf("%s: %w", c.Name, err)
				}
				r.result <- err
			}()
			started = append(started, r)
			select {
			case <-ready:
				log.Debug("component ready", "name", c.Name, "took_ms", time.Since(begin).Milliseconds())
			case err := <-failed:
				return err
			case <-ctx.Done():
				return nil
			}
		}
		if up != nil {
			up()
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		}
	}()
	errs := []error{first}
	for i := len(started) - 1; i >= 0; i-- {
		r := started[i]
		begin := time.Now()
		r.stop()
		select {
		case err := <-r.result:
			if err != nil && first == nil {
				errs = append(errs, fmt.Errorf("stopping %s: %w", r.Name, err))
			}
			log.Debug("component stopped", "name", r.Name, "took_ms", time.Since(begin).Milliseconds())
		case <-time.After(r.StopWithin):
			errs = append(errs, fmt.Errorf("%w: %s, %v", ErrStopTimeout, r.Name, r.StopWithin))
		}
	}
	return errors.Join(errs...)
}
