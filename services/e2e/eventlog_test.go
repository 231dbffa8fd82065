package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// eventLog follows EVENTS from its first event on, over restarts of the server too.
type eventLog struct {
	c *streams.Client

	mu     sync.Mutex
	events []*schema.Stored
	bad    error
}

// log starts to follow the site's event log.
func (s *site) log() *eventLog {
	s.t.Helper()
	l := &eventLog{c: s.streamsClient()}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	tail, _, err := l.c.TailEvents(ctx, 0, nil, func(e *schema.Stored, _ uint64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := len(l.events); n > 0 && l.events[n-1].Seq+1 != e.Seq {
			l.bad = fmt.Errorf("event %d follows %d", e.Seq, l.events[n-1].Seq)
		}
		l.events = append(l.events, e)
	}, func(seq uint64, body []byte, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.bad = fmt.Errorf("event %d cannot be read: %w: %s", seq, err, body)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(tail.Stop)
	return l
}

// read returns every event that is stored now, in order.
func (l *eventLog) read() ([]*schema.Stored, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	u, err := l.c.Usage(ctx, streams.Events)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bad != nil {
		return nil, l.bad
	}
	last := uint64(0)
	if n := len(l.events); n > 0 {
		last = l.events[n-1].Seq
	}
	if last < u.LastSeq {
		return nil, fmt.Errorf("read up to %d of %d", last, u.LastSeq)
	}
	return slices.Clone(l.events), nil
}

// requests returns the ids of all that REQUESTS holds of the default pool.
func (l *eventLog) requests() ([]schema.RequestID, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	u, err := l.c.Usage(ctx, streams.Requests)
	if err != nil || u.Messages == 0 {
		return nil, err
	}
	var ids []schema.RequestID
	var bad error
	end := make(chan struct{})
	tail, err := l.c.TailRequests(ctx, "default", 0, func(r streams.StoredRequest) {
		var req schema.Request
		if err := schema.Decode(r.Body, &req); err != nil {
			bad = err
		}
		ids = append(ids, req.ID)
		if r.Seq == u.LastSeq {
			close(end)
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-end:
	case <-ctx.Done():
	}
	tail.Stop()
	if bad != nil {
		return nil, bad
	}
	return ids, ctx.Err()
}
