package ingress

import (
	"context"
	"math"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// event starts an event about a request.
func (s *Server) event(t schema.Type, r *call) *schema.Event {
	return &schema.Event{
		Type: t, Time: time.Now().UnixNano(), Source: string(s.id), Ingress: s.id,
		Request: r.id, Pool: r.pool, Model: r.model, Tenant: r.tenant,
	}
}

// emit stores an event without waiting.
func (s *Server) emit(e *schema.Event) {
	if err := s.events.Emit(e); err != nil {
		s.log.Error("event not emitted", "request_id", e.Request, "type", e.Type, "error", err)
	}
}

func (s *Server) emitReceived(r *call) {
	e := s.event(schema.Received, r)
	e.Time = r.arrived.UnixNano()
	e.ClientRequest, e.Kind, e.Class, e.Stream = r.clientID, r.kind, r.asked, r.stream
	e.Budget, e.Grace, e.PromptTokens, e.MaxTokens = r.deadline, r.grace, r.prompt, r.output
	s.emit(e)
}

func (s *Server) emitAdmitted(r *call, seq uint64) {
	e := s.event(schema.Admitted, r)
	now := time.Now()
	e.Time, e.RequestSeq, e.QueueTime = now.UnixNano(), seq, now.Sub(r.arrived)
	e.ClientRequest, e.Kind, e.Class, e.Stream = r.clientID, r.kind, r.class, r.stream
	e.Budget, e.Grace, e.PromptTokens, e.MaxTokens = r.left(r.deadline, now), r.grace, r.prompt, r.output
	e.TTFTBudget = r.ttft
	r.said.tell(e)
	s.emit(e)
}

// tell fills what an event says of a decision.
func (v *verdict) tell(e *schema.Event) {
	o := &v.outlook
	e.Decision, e.Artifact, e.Message = v.by, v.artifact, v.Note
	e.Predicted, e.PredictedTTFT, e.Physics, e.Features = max(0, o.Predicted), max(0, o.First), max(0, v.physics), v.features
	if o.Bound > 0 {
		e.Bound, e.BoundLevel = o.Bound, float32(o.Level)
	}
	e.Meet, e.Gain, e.Lambda, e.Propensity = finite(o.Meet), finite(v.Gain), finite(v.Lambda), finite(v.Propensity)
	e.Cost = max(0, o.Share)
}

// finite is what JSON can hold.
func finite(x float64) float32 {
	if math.IsNaN(x) {
		return 0
	}
	return float32(min(max(x, -math.MaxFloat32), math.MaxFloat32))
}

// storeRefused stores a refusal before it is answered, if that can be done quickly, and later otherwise.
func (s *Server) storeRefused(r *call, reason schema.RefusalReason, after time.Duration) {
	e := s.event(schema.Refused, r)
	e.Reason, e.RetryAfter = string(reason), after
	e.ClientRequest, e.Kind, e.Class, e.Stream = r.clientID, r.kind, r.asked, r.stream
	e.Budget, e.PromptTokens, e.MaxTokens = r.deadline, r.prompt, r.output
	e.TTFTBudget = r.ttft
	r.said.tell(e)
	if reason != schema.RefusedUnavailable && s.client.Connected() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.RefuseTimeout)
		defer cancel()
		if _, err := s.client.PublishEvent(ctx, e); err == nil {
			return
		}
	}
	s.emit(e)
}

// cancel asks for a request's end: for good by an event, quickly by a message.
func (s *Server) cancel(r *call, reason schema.CancelReason, message string) {
	e := s.event(schema.CancelRequested, r)
	e.Reason, e.Message = string(reason), message
	s.emit(e)
	s.hurryCancel(r, reason)
	s.metrics.cancelled(reason)
}

// hurryCancel repeats the message of a cancel.
func (s *Server) hurryCancel(r *call, reason schema.CancelReason) {
	if err := s.client.PublishCancel(&schema.Cancel{Request: r.id, Reason: reason}); err != nil {
		s.log.Warn("cancel not sent; its event will do", "request_id", r.id, "error", err)
	}
}

// report tells the event log and the metrics, once, what the client saw of an answer.
func (s *Server) report(a *answer, outcome schema.Outcome) {
	now := time.Now()
	a.mu.Lock()
	if a.reported {
		a.mu.Unlock()
		return
	}
	a.reported = true
	e := s.event(schema.Delivered, &a.call)
	e.Time, e.Reason = now.UnixNano(), string(outcome)
	e.Kind, e.Class, e.Stream = a.kind, a.class, a.stream
	e.E2E = now.Sub(a.arrived)
	e.TTFT = a.firstWrite
	if !a.stream && len(a.ids) > 0 { // the tokens of a body are written together: tell when the first one was here
		e.TTFT = a.firstToken
	}
	e.PromptTokens, e.OutputTokens = a.prompt, int32(len(a.ids))
	if a.finish != nil {
		e.CachedTokens = a.finish.CachedTokens
	}
	if a.failed != nil {
		e.Message = string(a.failed.Code)
	}
	a.mu.Unlock()
	s.emit(e)
	s.metrics.observe(e)
	s.samples.add(e)
}
