package ingress

import (
	"sync"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/schema"
)

// relay finds answers by request.
type relay struct {
	mu      sync.RWMutex
	answers map[schema.RequestID]*answer

	// kept are answers that have ended and wait for their clients, oldest first; those closed meanwhile are passed over.
	kept      []keptAnswer
	keptBytes int
}

type keptAnswer struct {
	*answer
	size int
}

func newRelay() *relay { return &relay{answers: map[schema.RequestID]*answer{}} }

func (r *relay) get(id schema.RequestID) *answer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.answers[id]
}

func (r *relay) put(a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[a.id] = a
}

// remove forgets an answer; size is what it was kept with, 0 if it was not.
func (r *relay) remove(a *answer, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.answers, a.id)
	r.keptBytes -= size
	for len(r.kept) > 0 && r.answers[r.kept[0].id] == nil {
		r.drop()
	}
}

// keep counts an ended answer's bytes and returns those that must be closed to make room, oldest first.
func (r *relay) keep(a *answer, size, limit int) (evicted []*answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, keptAnswer{a, size})
	r.keptBytes += size
	for excess := r.keptBytes - limit; excess > 0 && len(r.kept) > 0; {
		old := r.kept[0]
		r.drop()
		if r.answers[old.id] != nil {
			evicted = append(evicted, old.answer)
			excess -= old.size
		}
	}
	return evicted
}

// drop takes the oldest out of kept. The caller holds mu.
func (r *relay) drop() {
	r.kept[0] = keptAnswer{}
	r.kept = r.kept[1:]
	if len(r.kept) == 0 {
		r.kept = nil
	}
}

// all appends every answer to dst.
func (r *relay) all(dst []*answer) []*answer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, a := range r.answers {
		dst = append(dst, a)
	}
	return dst
}

// keptCount is how many answers are kept for their clients, about, and their bytes.
func (r *relay) keptCount() (n, bytes int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.kept), r.keptBytes
}

// onChunk takes a chunk from the subscription. Tokens of a request that is not here any more are dropped.
func (s *Server) onChunk(c *schema.Chunk) {
	if a := s.relay.get(c.Request); a != nil {
		s.accept(a, c)
	}
}

// accept puts a chunk into its answer and does what follows from it. It never waits.
func (s *Server) accept(a *answer, c *schema.Chunk) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	now := time.Now()
	a.quiet, a.patience = now, s.cfg.Silence
	texts, over := len(a.texts), a.ended()
	f := a.add(c)
	over = !over && a.ended()
	var ending online.Ending
	if over {
		ending = a.ending()
	}
	for i := range a.texts[texts:] {
		t := &a.texts[texts+i]
		a.measure(t)
		a.unread += t.bytes()
		a.size += t.bytes()
	}
	started := a.firstToken == 0 && (len(a.ids) > 0 || a.ended())
	if started {
		a.firstToken = now.Sub(a.arrived)
		s.gate.start(&a.place)
	}
	if f == taken {
		s.trim(a)
		a.wake()
	}
	gap := a.gap() && !a.ended()
	if !gap {
		a.gapSince = time.Time{}
	} else if a.gapSince.IsZero() {
		a.gapSince = now
	}
	behind := a.stream && a.unread > s.allowed(a) && !a.ended()
	rest := a.ended() && a.body == nil
	a.mu.Unlock()

	switch {
	case over:
		s.desk.end(a.id, ending, s.since())
	case started:
		s.desk.started(a.id, s.since())
	}
	switch {
	case f == torn:
		s.log.Error("chunk overlaps the answer", "request_id", a.id, "attempt", c.Attempt, "index", c.Index, "tokens", len(c.IDs))
		s.cut(a, schema.FailedInternal, errTorn, schema.CancelIngressLost)
	case behind:
		s.cut(a, schema.FailedCancelled, errSlowReader, schema.CancelSlowReader)
	case rest: // its client is expected back
		s.rest(a)
	case gap:
		s.fill(a)
	}
}

// ending is how an answer came to its end, or would if it came now. The caller holds mu.
func (a *answer) ending() online.Ending {
	e := online.Ending{How: online.Left, Tokens: int32(len(a.ids))}
	switch {
	case a.failed != nil:
		e.How = online.Dropped
	case a.finish != nil:
		e.How, e.Cut = online.Completed, a.finish.Reason == schema.FinishLength
	}
	return e
}

// allowed is how many bytes may be unread: a client that is expected back has all of the answer before it.
func (s *Server) allowed(a *answer) int {
	if a.body == nil {
		return max(s.cfg.BufferBytes, s.cfg.ResumeBytes)
	}
	return s.cfg.BufferBytes
}

// trim drops the oldest texts of an answer that are beyond what is kept for its client's return, down to those not
// taken yet. The caller holds a.mu.
func (s *Server) trim(a *answer) {
	if !a.resumable() || a.body == nil {
		return
	}
	n := 0
	for ; a.size > s.cfg.ResumeBytes && n < len(a.texts) && a.size-a.unread > 0; n++ {
		a.size -= a.texts[n].bytes()
	}
	if n > 0 {
		a.texts = append([]said(nil), a.texts[n:]...)
		a.kept += int64(n)
	}
}

// seal answers a scheduler that is about to give a request to another worker.
func (s *Server) seal(q *schema.Seal) *schema.SealReply {
	a := s.relay.get(q.Request)
	if a == nil {
		return &schema.SealReply{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.failed != nil {
		return &schema.SealReply{}
	}
	a.transcript.seal(q.Attempt)
	if !a.gap() {
		a.gapSince = time.Time{}
	}
	return &schema.SealReply{Known: true, Relayed: append(schema.Tokens(nil), a.ids...), Finish: a.finish}
}

// delivered is called when a body has written the whole answer.
func (s *Server) delivered(b *body) {
	a := b.a
	a.mu.Lock()
	if a.body != b {
		a.mu.Unlock()
		return
	}
	a.body = nil
	outcome := schema.OutcomeComplete
	if a.failed != nil {
		outcome = schema.OutcomeError
	}
	a.mu.Unlock()
	s.report(a, outcome)
	s.rest(a)
}

// lost is called when a body's client has gone before it had the whole answer.
func (s *Server) lost(b *body) {
	a := b.a
	a.mu.Lock()
	if a.body != b {
		a.mu.Unlock()
		return
	}
	a.wake()
	a.body = nil
	ended := a.ended()
	if a.resumable() && !a.closed && (a.failed == nil || !a.cancelled) {
		a.until = time.Now().Add(a.grace)
	}
	waits := !a.until.IsZero()
	a.mu.Unlock()
	s.metrics.disconnects.Inc()
	switch {
	case waits && ended:
		s.rest(a)
	case !waits:
		s.close(a, schema.CancelDisconnect)
	}
}

// rest is called when an answer has ended and nobody writes it: its place is free, and it is kept for the length of its
// grace, for a client that missed the end.
func (s *Server) rest(a *answer) {
	a.mu.Lock()
	if a.closed || a.body != nil {
		a.mu.Unlock()
		return
	}
	if !a.resumable() || (a.failed != nil && a.cancelled) {
		a.mu.Unlock()
		s.close(a, "")
		return
	}
	if a.until.IsZero() {
		a.until = time.Now().Add(a.grace)
	}
	first := !a.retained
	a.retained = true
	size := a.size + eventBytes
	a.mu.Unlock()
	if !first {
		return
	}
	s.gate.free(&a.place)
	for _, old := range s.relay.keep(a, size, s.cfg.ResumeBytes) {
		s.close(old, schema.CancelGrace)
	}
}

// close ends an answer for good: what is not finished is cancelled for the reason given, and the client, if any is
// left, is cut off.
func (s *Server) close(a *answer, reason schema.CancelReason) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	a.wake()
	a.body = nil
	cancel := !a.ended() && !a.cancelled
	a.cancelled = a.cancelled || cancel
	kept := 0
	if a.retained {
		kept = a.size + eventBytes
	}
	ending := a.ending()
	a.mu.Unlock()
	s.desk.end(a.id, ending, s.since())
	if cancel {
		s.cancel(&a.call, reason, "")
	}
	s.report(a, schema.OutcomeDisconnected)
	s.relay.remove(a, kept)
	s.gate.free(&a.place)
}

// cut ends an answer with an error for its client and cancels its generation.
func (s *Server) cut(a *answer, code schema.FailureCode, cause *openai.Error, reason schema.CancelReason) {
	a.mu.Lock()
	if a.closed || a.ended() {
		a.mu.Unlock()
		return
	}
	ending := a.ending()
	if reason != schema.CancelSlowReader { // that is its client's doing
		ending.How = online.Dropped
	}
	a.failed, a.cause = &schema.Error{Code: code, Message: cause.Message}, cause
	a.held = nil
	if !a.resumable() { // what was not taken is not worth sending before the error
		a.kept += int64(len(a.texts))
		clear(a.texts)
		a.texts, a.size, a.unread = a.texts[:0], 0, 0
	}
	cancel := !a.cancelled
	a.cancelled = true
	detached := a.body == nil
	a.wake()
	a.mu.Unlock()
	s.desk.end(a.id, ending, s.since())
	if cancel {
		s.cancel(&a.call, reason, cause.Message)
	}
	if detached {
		s.close(a, reason)
	}
}
