package ingress

import (
	"context"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

const (
	// fillers is how many goroutines read TOKENS at once.
	fillers = 8
	// fillTimeout bounds one reading.
	fillTimeout = 5 * time.Second
	// gapRetry is the pause between two readings for a gap, and gapLimit how long it may stay.
	gapRetry = 100 * time.Millisecond
	gapLimit = 30 * time.Second
	// maxPatience bounds the pause between two readings for a request that is quiet.
	maxPatience = time.Minute
)

// fill looks into TOKENS for what an answer misses, unless that is being done.
func (s *Server) fill(a *answer) {
	a.mu.Lock()
	if a.filling || a.closed || a.ended() || time.Since(a.looked) < gapRetry {
		a.mu.Unlock()
		return
	}
	a.filling = true
	a.mu.Unlock()
	s.background.Go(func() {
		select {
		case s.filling <- struct{}{}:
			defer func() { <-s.filling }()
		case <-s.stopped.Done():
			return
		}
		s.look(a)
	})
}

// look reads the chunks of an answer from TOKENS. What is not there (yet) is looked for again by the watcher.
func (s *Server) look(a *answer) {
	ctx, cancel := context.WithTimeout(s.stopped, fillTimeout)
	defer cancel()
	chunks, err := s.client.Chunks(ctx, s.id, a.id)
	if err != nil {
		s.log.Warn("tokens not read", "request_id", a.id, "error", err)
	}
	a.mu.Lock()
	before := len(a.ids)
	a.mu.Unlock()
	for _, c := range chunks {
		s.accept(a, c)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.filling = false
	a.looked = time.Now()
	if n := len(a.ids) - before; n > 0 {
		s.metrics.filled.Add(float64(n))
		s.log.Info("tokens taken from the store", "request_id", a.id, "tokens", n)
	}
}

// refill looks for the tokens of every open request: messages may have been lost.
func (s *Server) refill() {
	for _, a := range s.relay.all(nil) {
		a.mu.Lock()
		a.looked = time.Time{}
		if a.filling { // it may have begun too early: the watcher starts another
			a.quiet = time.Time{}
		}
		a.mu.Unlock()
		s.fill(a)
	}
}

// overdue says what is to be done about tokens that an answer waits for. The caller holds a.mu.
func (a *answer) overdue(now time.Time) (look, giveUp bool) {
	if a.ended() || a.closed || a.filling {
		return false, false
	}
	if a.gap() {
		return now.Sub(a.looked) >= gapRetry, now.Sub(a.gapSince) >= gapLimit
	}
	if now.Sub(a.quiet) < a.patience {
		return false, false
	}
	a.quiet, a.patience = now, min(2*a.patience, maxPatience)
	return true, false
}

// giveUp ends an answer whose missing tokens did not turn up.
func (s *Server) giveUp(a *answer) {
	s.log.Error("tokens are lost", "request_id", a.id)
	s.cut(a, schema.FailedInternal, errTokensLost, schema.CancelIngressLost)
}
