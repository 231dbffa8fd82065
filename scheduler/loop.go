package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// loop is the owner's life.
func (r *run) loop(ctx context.Context) error {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		if err := r.do(); err != nil {
			return err
		}
		r.tell()
		requests := r.requests
		if r.core.Backlog() > backlog {
			requests = nil
		}
		select {
		case a := <-requests:
			r.enqueue(a)
		case m := <-r.inbox:
			if err := r.take(m); err != nil {
				return err
			}
		case <-tick.C:
			r.tick()
		case <-r.teller.timer.C:
			r.teller.armed = false
		case <-r.lost:
			return fmt.Errorf("%w: the lease is over", ErrDeposed)
		case <-r.work.Done():
			return r.work.Err()
		case <-ctx.Done():
			return r.finish()
		}
		if err := r.gather(requests); err != nil {
			return err
		}
	}
}

// gather takes what else has come, so that it shares an append.
func (r *run) gather(requests <-chan *arrival) error {
	for range 128 {
		select {
		case a := <-requests:
			r.enqueue(a)
		case m := <-r.inbox:
			if err := r.take(m); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

func (r *run) enqueue(a *arrival) {
	now := time.Now().UnixNano()
	r.read = a.request.Seq
	if a.taken {
		return
	}
	if a.bad != "" {
		r.log.Error("request is not readable", "request_id", a.request.ID, "request_seq", a.request.Seq, "error", a.bad)
		r.core.Unreadable(a.request, a.bad, now)
		return
	}
	r.core.Enqueue(a.request, now)
}

// take hands the core what came into the inbox.
func (r *run) take(m any) error {
	now := time.Now().UnixNano()
	switch m := m.(type) {
	case *schema.Stored:
		r.core.Event(m, now)
	case *schema.WorkerState:
		r.core.WorkerState(m, now)
	case *schema.IngressState:
		r.core.IngressState(m, now)
	case *core.Answer:
		r.core.DispatchAnswer(*m, now)
	case *core.SealAnswer:
		r.seals.asking--
		r.core.Sealed(*m, now)
	case buried:
		r.letters.asking--
		if m.id != "" {
			r.core.Buried(m.id, now)
		}
	case fenced:
		return fmt.Errorf("%w: %w", ErrDeposed, m.err)
	case appended:
		r.appending = false
		if m.err != nil {
			if errors.Is(m.err, streams.ErrFenced) {
				return fmt.Errorf("%w: %w", ErrDeposed, m.err)
			}
			return fmt.Errorf("scheduler: appending events: %w", m.err)
		}
		r.core.Appended()
	}
	return nil
}

func (r *run) tick() {
	now := time.Now()
	if !r.client.Connected() || r.echo.silent(now) {
		r.core.Deaf(now.UnixNano())
	}
	r.core.Tick(now.UnixNano())
	r.say(r.closings.again(now, r.client.Connected(), r.client.JetStream().Conn().Stats().Reconnects))
	if now.Sub(r.observed) >= observeEvery {
		r.observed = now
		r.metrics.observe(r.core.Stats(now.UnixNano()))
	}
}

// do does what the core asks for. Nothing here waits.
func (r *run) do() error {
	rd := r.core.Ready(time.Now().UnixNano())
	if rd.Deposed {
		return ErrDeposed
	}
	if !r.appending && len(rd.Events) == 0 && r.core.Backlog() == 0 {
		r.settled.Store(r.read)
	}
	if len(rd.Events) > 0 {
		r.appending = true
		r.groups <- rd.Events // has room: one group is in flight at a time
	}
	for _, d := range rd.Dispatches {
		for _, waited := range d.Waited {
			r.metrics.wait.Observe(waited.Seconds())
		}
		ch := r.senders[d.Worker]
		if ch == nil {
			ch = make(chan core.Dispatch, 1)
			r.senders[d.Worker] = ch
			r.wg.Go(func() { r.send(ch) })
		}
		ch <- d // has room: one dispatch to a worker is in flight at a time
	}
	for _, id := range rd.Gone {
		if ch := r.senders[id]; ch != nil {
			close(ch)
			delete(r.senders, id)
		}
		r.metrics.forget(id)
		r.log.Info("worker is gone", "worker", id)
	}
	for i := range rd.Cancels {
		if err := r.client.PublishCancel(&rd.Cancels[i]); err != nil {
			r.log.Warn("cancel not sent", "request_id", rd.Cancels[i].Request, "error", err)
		}
	}
	r.say(rd.Chunks)
	for i := range rd.Chunks {
		r.closings.keep(time.Now(), rd.Chunks[i])
	}
	for _, e := range rd.Ended {
		r.metrics.ended.WithLabelValues(string(e.Type), e.Reason).Inc()
		r.metrics.attempts.Observe(float64(e.Attempts))
	}
	r.seals.waiting = append(r.seals.waiting, rd.Seals...)
	r.letters.waiting = append(r.letters.waiting, rd.DeadLetters...)
	for s, ok := r.seals.next(); ok; s, ok = r.seals.next() {
		r.wg.Go(func() { r.seal(s) })
	}
	for l, ok := r.letters.next(); ok; l, ok = r.letters.next() {
		r.wg.Go(func() { r.bury(l) })
	}
	return nil
}

// say sends chunks that tell clients of an end.
func (r *run) say(chunks []core.Chunk) {
	for i := range chunks {
		if err := r.client.PublishChunk(chunks[i].Ingress, &chunks[i].Chunk); err != nil {
			r.log.Warn("closing chunk not sent", "request_id", chunks[i].Chunk.Request, "error", err)
		}
	}
}

// finish waits for the append in flight, so that what it holds is known to be stored or not when Run returns.
func (r *run) finish() error {
	r.serving.Store(false)
	limit := time.NewTimer(r.cfg.StopTimeout)
	defer limit.Stop()
	for r.appending {
		select {
		case m := <-r.inbox:
			if m, ok := m.(appended); ok {
				return r.take(m)
			}
		case <-limit.C:
			r.log.Warn("stopped with an append in flight")
			return nil
		case <-r.work.Done():
			return r.work.Err()
		}
	}
	return nil
}
