package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// appendGroups stores one group of events after the other, and renews the claim in between.
func (r *run) appendGroups() {
	tick := time.NewTicker(r.renewEvery)
	defer tick.Stop()
	for {
		select {
		case events, more := <-r.groups:
			if !more {
				return
			}
			r.append(events)
		case <-tick.C:
			r.renew()
		}
	}
}

func (r *run) append(events []*schema.Event) {
	began := time.Now()
	n := len(events)
	err := r.store(events)
	if err == nil {
		for _, e := range events {
			if e.Type == schema.Accepted {
				r.upTo = max(r.upTo, e.RequestSeq)
			}
		}
		r.metrics.appendTime.Observe(time.Since(began).Seconds())
		r.metrics.group.Observe(float64(n))
	}
	r.push(appended{err})
}

func (r *run) renew() {
	switch err := r.appender.Renew(r.work, max(r.upTo, r.settled.Load()), time.Now()); {
	case errors.Is(err, streams.ErrFenced):
		r.push(fenced{err})
	case err != nil && r.work.Err() == nil:
		r.log.Warn("claim not renewed, if that was needed", "error", err)
	}
}

// store stores events, waiting while the store is full: nothing can go on before they are there.
func (r *run) store(events []*schema.Event) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		seqs, err := r.appender.Append(r.work, events)
		if err == nil || !errors.Is(err, streams.ErrFull) {
			return err
		}
		events = events[len(seqs):]
		r.log.Error("EVENTS is full: nothing is scheduled until there is room", "events", len(events), "error", err)
		select {
		case <-r.work.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// send sends dispatches to one worker, in order.
func (r *run) send(dispatches <-chan core.Dispatch) {
	for d := range dispatches {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.work, r.cfg.DispatchTimeout)
		reply, err := r.client.Dispatch(ctx, d.Worker, &schema.Dispatch{Pool: r.cfg.Pool, Epoch: r.appender.Epoch(), Items: d.Items})
		cancel()
		a := &core.Answer{Worker: d.Worker, Number: d.Number, Result: result(err)}
		if err == nil {
			a.Verdicts = reply.Verdicts
		} else if r.work.Err() == nil {
			r.log.Warn("dispatch not answered", "worker", d.Worker, "requests", len(d.Items), "error", err)
		}
		r.metrics.answered(a, time.Since(began))
		r.push(a)
	}
}

// seal asks an ingress what it has relayed of a request.
func (r *run) seal(s core.Seal) {
	ctx, cancel := context.WithTimeout(r.work, r.cfg.SealTimeout)
	defer cancel()
	reply, err := r.client.Seal(ctx, s.Ingress, &schema.Seal{Request: s.Request, Attempt: s.Attempt})
	a := &core.SealAnswer{Request: s.Request, Attempt: s.Attempt, Result: result(err)}
	if err == nil {
		a.Reply = reply
	} else if r.work.Err() == nil {
		r.log.Warn("seal not answered", "request_id", s.Request, "ingress", s.Ingress, "error", err)
	}
	r.metrics.seals.WithLabelValues(resultNames[a.Result]).Inc()
	r.push(a)
}

// result says how a question was answered.
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

// deadLetter is the body of what is kept of a request that nobody could serve.
type deadLetter struct {
	Request schema.RequestID   `json:"request_id,omitempty"`
	Seq     uint64             `json:"request_seq"`
	Reason  schema.FailureCode `json:"reason"`
	Message string             `json:"message"`
	History []core.Try         `json:"history,omitempty"`
	Body    json.RawMessage    `json:"request,omitempty"`
	Raw     []byte             `json:"raw,omitempty"` // in place of Body, if it is not JSON
}

// bury stores a dead letter. What cannot be stored is logged: its request must end nevertheless.
func (r *run) bury(l core.DeadLetter) {
	d := deadLetter{Request: l.ID, Seq: l.Seq, Reason: l.Reason, Message: l.Message, History: l.History}
	if json.Valid(l.Body) {
		d.Body = l.Body
	} else {
		d.Raw = l.Body
	}
	id := string(l.ID)
	if id == "" {
		id = "req." + strconv.FormatUint(l.Seq, 10)
	}
	body, err := json.Marshal(d)
	if err == nil {
		ctx, cancel := context.WithTimeout(r.work, 10*time.Second)
		defer cancel()
		err = r.client.PublishDeadLetter(ctx, "scheduler", id, string(l.Reason), body)
	}
	if err != nil && r.work.Err() == nil {
		r.log.Error("dead letter not stored", "request_id", l.ID, "request_seq", l.Seq, "reason", l.Reason, "error", err)
	}
	r.push(buried{l.ID})
}
