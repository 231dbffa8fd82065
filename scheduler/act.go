package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// act does what the core wants done, and reports whether another scheduler has the pool.
func (s *Scheduler) act() (deposed bool) {
	rd := s.core.Ready(time.Now().UnixNano())
	if rd.Deposed {
		return true
	}
	if len(rd.Events) > 0 {
		s.appends <- rd.Events // one in flight: there is room
	}
	for _, d := range rd.Dispatches {
		s.metrics.dispatch(d)
		s.background.Go(func() { s.dispatch(d) })
	}
	for _, q := range rd.Seals {
		s.background.Go(func() { s.seal(q) })
	}
	for i := range rd.Cancels {
		s.send("cancel", rd.Cancels[i].Request, s.client.PublishCancel(&rd.Cancels[i]))
	}
	for i := range rd.Chunks {
		s.send("chunk", rd.Chunks[i].Chunk.Request, s.client.PublishChunk(rd.Chunks[i].Ingress, &rd.Chunks[i].Chunk))
	}
	for _, l := range rd.DeadLetters {
		s.background.Go(func() { s.bury(l) })
	}
	for _, e := range rd.Ended {
		s.metrics.ended(e)
	}
	return false
}

func (s *Scheduler) send(what string, id schema.RequestID, err error) {
	if err != nil {
		s.log.Error("not sent", "what", what, "request_id", id, "error", err)
	}
}

// tell hands a result to the owner.
func (s *Scheduler) tell(f func(now int64)) {
	select {
	case s.results <- f:
	case <-s.stopped.Done():
	}
}

// append stores one group after the other. What cannot be stored now is tried again: nothing goes on without it.
func (s *Scheduler) append(ctx context.Context) {
	for {
		var events []*schema.Event
		select {
		case events = <-s.appends:
		case <-ctx.Done():
			return
		}
		begin := time.Now()
		for {
			_, err := s.appender.Append(ctx, events)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, streams.ErrFenced) {
				s.deposed <- fmt.Errorf("%w: %w", ErrDeposed, err)
				return
			}
			s.log.Error("append", "events", len(events), "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
		s.metrics.appended(len(events), time.Since(begin))
		s.tell(func(int64) { s.core.Appended() })
	}
}

// finish lets the append in flight end and takes its result, within a second.
func (s *Scheduler) finish() error {
	limit := time.After(time.Second)
	for s.core.Appending() {
		select {
		case f := <-s.results:
			f(time.Now().UnixNano())
		case err := <-s.deposed:
			return err
		case <-limit:
			return nil
		}
	}
	return nil
}

func (s *Scheduler) dispatch(d core.Dispatch) {
	ctx, cancel := context.WithTimeout(s.stopped, s.cfg.DispatchTimeout)
	defer cancel()
	a := core.Answer{Worker: d.Worker, Number: d.Number}
	reply, err := s.client.Dispatch(ctx, d.Worker, &schema.Dispatch{Pool: s.cfg.Pool, Epoch: s.appender.Epoch(), Items: d.Items})
	if a.Result = result(err); a.Result == core.Answered {
		a.Verdicts = reply.Verdicts
	} else {
		s.log.Warn("dispatch not answered", "worker", d.Worker, "items", len(d.Items), "error", err)
	}
	s.tell(func(now int64) { s.core.DispatchAnswer(a, now) })
}

func (s *Scheduler) seal(q core.Seal) {
	ctx, cancel := context.WithTimeout(s.stopped, s.cfg.SealTimeout)
	defer cancel()
	a := core.SealAnswer{Request: q.Request, Attempt: q.Attempt}
	var err error
	a.Reply, err = s.client.Seal(ctx, q.Ingress, &schema.Seal{Request: q.Request, Attempt: q.Attempt})
	if a.Result = result(err); a.Result != core.Answered {
		a.Reply = nil
		s.log.Warn("seal not answered", "ingress", q.Ingress, "request_id", q.Request, "error", err)
	}
	s.tell(func(now int64) { s.core.Sealed(a, now) })
}

func result(err error) core.Result {
	switch {
	case err == nil:
		return core.Answered
	case errors.Is(err, streams.ErrNoListener):
		return core.NoListener
	case errors.Is(err, streams.ErrTooLarge):
		return core.TooLarge
	default:
		return core.NoAnswer
	}
}

// bury stores a dead letter, however long that takes.
func (s *Scheduler) bury(l core.DeadLetter) {
	id := string(l.ID)
	if id == "" {
		id = fmt.Sprintf("%s.%d", s.cfg.Pool, l.Seq)
	}
	body, err := json.Marshal(map[string]any{
		"request_id": l.ID, "request_seq": l.Seq, "reason": l.Reason, "message": l.Message, "history": l.History, "body": l.Body,
	})
	for err == nil {
		err = s.client.PublishDeadLetter(s.stopped, "scheduler", id, string(l.Reason), body)
		if err == nil || s.stopped.Err() != nil {
			break
		}
		s.log.Error("dead letter not stored", "request_id", l.ID, "error", err)
		select {
		case <-time.After(time.Second):
			err = nil
		case <-s.stopped.Done():
			return
		}
	}
	if err != nil {
		s.log.Error("dead letter dropped", "request_id", l.ID, "error", err)
	}
	if l.ID != "" {
		s.tell(func(now int64) { s.core.Buried(l.ID, now) })
	}
}
