package clickhouse

import (
	"context"
	"sync"
	"time"
)

// Event tells what happened to a supervised engine.
type Event struct {
	Kind EventKind
	// Err is why the engine ended or did not start; nil for EventRestarted.
	Err error
	// Attempt counts starts since the engine last served, from 1; 0 for EventExited.
	Attempt int
	// Down is the time since the engine ended.
	Down time.Duration
}

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of events.
const (
	EventExited        EventKind = "exited"
	EventRestartFailed EventKind = "restart_failed"
	EventRestarted     EventKind = "restarted"
)

const (
	restartBackoffMin = 100 * time.Millisecond
	restartBackoffMax = 5 * time.Second
	// restartTimeout bounds one start: recovery after a kill takes about a second.
	restartTimeout = 30 * time.Second
	// healthyAfter is how long an engine must serve before the back-off starts anew.
	healthyAfter = time.Minute
)

// Supervisor keeps an embedded engine running on one address with one set of
// passwords, so that connections opened before a crash work after it.
type Supervisor struct {
	options     Options
	credentials credentials
	addr        string
	onEvent     func(Event)

	cancel context.CancelFunc
	done   chan struct{} // closed when the loop has returned

	mu      sync.Mutex
	current *Server
}

// Supervise starts the engine, with the errors of [Start], and from then on restarts
// it on the same port whenever it ends, until Stop. onEvent must not be nil; it is
// called from the supervisor's goroutine, one event at a time, and must not call Stop.
// ctx bounds the first start alone.
func Supervise(ctx context.Context, o Options, onEvent func(Event)) (*Supervisor, error) {
	s, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	o.Port = s.port
	loop, cancel := context.WithCancel(context.WithoutCancel(ctx))
	sup := &Supervisor{
		options: o, credentials: s.credentials, addr: s.addr, onEvent: onEvent,
		cancel: cancel, done: make(chan struct{}), current: s,
	}
	go sup.run(loop, s)
	return sup, nil
}

// run owns the restarts.
func (sup *Supervisor) run(ctx context.Context, s *Server) {
	defer close(sup.done)
	backoff := restartBackoffMin
	for {
		started := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-s.Done():
		}
		if ctx.Err() != nil {
			return
		}
		ended := time.Now()
		if ended.Sub(started) >= healthyAfter {
			backoff = restartBackoffMin
		}
		sup.onEvent(Event{Kind: EventExited, Err: s.Err()})
		for attempt := 1; ; attempt++ {
			pause := time.NewTimer(backoff)
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
			backoff = min(2*backoff, restartBackoffMax)
			next, err := sup.restart(ctx)
			if err == nil {
				s = next
				sup.onEvent(Event{Kind: EventRestarted, Attempt: attempt, Down: time.Since(ended)})
				break
			}
			if ctx.Err() != nil {
				return
			}
			sup.onEvent(Event{Kind: EventRestartFailed, Err: err, Attempt: attempt, Down: time.Since(ended)})
		}
	}
}

func (sup *Supervisor) restart(ctx context.Context) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	s, err := start(ctx, sup.options, sup.credentials)
	if err != nil {
		return nil, err
	}
	sup.mu.Lock()
	defer sup.mu.Unlock()
	sup.current = s
	return s, nil
}

// Addr is the host:port of the HTTP interface; it never changes.
func (sup *Supervisor) Addr() string { return sup.addr }

// DSN is as [Server.DSN]; it never changes.
func (sup *Supervisor) DSN() string { return dsn(sup.addr, ownerUser, sup.credentials.owner) }

// ReaderDSN is as [Server.ReaderDSN]; it never changes.
func (sup *Supervisor) ReaderDSN() string { return dsn(sup.addr, readerUser, sup.credentials.reader) }

// PID is the process id of the latest child, which may have ended.
func (sup *Supervisor) PID() int {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	return sup.current.PID()
}

// Stop ends supervision and the engine, as [Server.Stop]. It returns nil if the engine
// had ended before, as after an earlier Stop.
func (sup *Supervisor) Stop(grace time.Duration) error {
	sup.cancel()
	<-sup.done // from here on current does not change
	sup.mu.Lock()
	defer sup.mu.Unlock()
	select {
	case <-sup.current.Done(): // it had ended, and run reported it
		return nil
	default:
		return sup.current.Stop(grace)
	}
}
