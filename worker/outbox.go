package worker

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// outbox holds what the engine loop has to say until the publisher sends it.
type outbox struct {
	wake chan struct{} // room for one

	mu     sync.Mutex
	queue  []*run // with something pending, in order
	steps  []schema.Step
	closed bool
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// post queues a run and returns the bundle to add to. The caller holds o.mu until it has.
func (o *outbox) post(r *run) *bundle {
	if !r.queued {
		r.queued = true
		o.queue = append(o.queue, r)
	}
	return &r.pending
}

// unlock ends a group of posts.
func (o *outbox) unlock() {
	some := len(o.queue) > 0 || len(o.steps) > 0 || o.closed
	o.mu.Unlock()
	if some {
		poke(o.wake)
	}
}

// close makes the publisher return after what is queued.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.unlock()
}

// swap takes what is queued; the slices are valid until the next swap with them. It returns false when there will be no
// more.
func (o *outbox) swap(runs []*run, steps []schema.Step) ([]*run, []schema.Step, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(runs)
	runs, o.queue = o.queue, runs[:0]
	steps, o.steps = o.steps, steps[:0]
	for _, r := range runs {
		r.pending, r.sending = r.sending, r.pending
		r.queued = false
	}
	return runs, steps, !o.closed || len(runs) > 0 || len(steps) > 0
}

// wire is what the publisher sends with.
type wire interface {
	PublishChunk(in schema.IngressID, c *schema.Chunk) error
	PublishStep(s *schema.Step) error
}

// emitter stores events.
type emitter interface {
	Emit(e *schema.Event) error
}

// publisher sends what the outbox holds. Its goroutine owns it.
type publisher struct {
	out    *outbox
	wire   wire
	events emitter
	kept   *unconfirmed
	pulse  *pulse
	fence  func(l *life) // ends a life of which something was left unsaid
	now    func() time.Duration
	model  string
	log    *slog.Logger
}

// run sends until the outbox is closed and empty.
func (p *publisher) run() {
	var runs []*run
	var steps []schema.Step
	for {
		var more bool
		if runs, steps, more = p.out.swap(runs, steps); !more {
			return
		}
		if len(runs) == 0 && len(steps) == 0 {
			<-p.out.wake
			continue
		}
		for _, r := range runs {
			p.send(r)
			r.sending.reset()
		}
		for i := range steps {
			if err := p.wire.PublishStep(&steps[i]); err != nil {
				p.log.Warn("step not sent", "error", err)
			}
		}
	}
}

// send publishes a run's chunk, then its events: the end of an answer is in the log only after its last token is on the
// way.
func (p *publisher) send(r *run) {
	if r.gone.Load() || r.life.over.Load() {
		return
	}
	if p.pulse.silent(p.now()) { // a heartbeat on its way must not bring back a life that has lost an answer
		p.fence(r.life)
		return
	}
	b := &r.sending
	if len(b.ids) > 0 || b.finish != nil || b.fault != nil {
		c := schema.Chunk{Request: r.req.ID, Attempt: r.attempt, Index: b.index, IDs: b.ids, Text: string(b.text), Finish: b.finish, Error: b.fault}
		if len(b.logprobs.Chosen) > 0 {
			c.Logprobs = &b.logprobs
		}
		if err := p.wire.PublishChunk(r.req.Ingress, &c); err != nil {
			p.log.Error("tokens not sent", "request_id", string(r.req.ID), "attempt", r.attempt, "error", err)
			if errors.Is(err, schema.ErrInvalid) && (b.finish != nil || b.fault != nil) {
				p.spoiled(r, err)
				return
			}
		}
		p.kept.keep(p.now(), r.req.Ingress, &c)
	}
	for i := range b.notes {
		n := &b.notes[i]
		if n.typ == schema.Failed {
			p.log.Warn("request failed", "request_id", string(r.req.ID), "attempt", r.attempt, "reason", n.reason, "error", n.message)
		}
		err := p.events.Emit(r.event(n, r.life.id, p.model))
		if err == nil {
			continue
		}
		p.log.Error("event not emitted", "request_id", string(r.req.ID), "type", string(n.typ), "error", err)
		if errors.Is(err, schema.ErrInvalid) && n.typ.Terminal() {
			p.spoiled(r, err)
		}
	}
}

// spoiled ends a run whose end cannot be told as it is: without any, its client and the scheduler would wait for ever.
func (p *publisher) spoiled(r *run, why error) {
	n := note{typ: schema.Failed, time: wall(), reason: string(schema.FailedEngine), message: why.Error(), output: r.sending.index}
	fault := &schema.Error{Code: schema.FailedEngine, Message: n.message}
	c := schema.Chunk{Request: r.req.ID, Attempt: r.attempt, Index: r.sending.index, Error: fault}
	if err := p.wire.PublishChunk(r.req.Ingress, &c); err != nil {
		p.log.Error("failure not sent", "request_id", string(r.req.ID), "attempt", r.attempt, "error", err)
	}
	p.kept.keep(p.now(), r.req.Ingress, &c)
	if err := p.events.Emit(r.event(&n, r.life.id, p.model)); err != nil {
		p.log.Error("failure not emitted", "request_id", string(r.req.ID), "error", err)
	}
}
