package ingress

import (
	"maps"
	"net/http"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/gofiber/fiber/v2"
)

// Stats is the body of GET /stats: what one ingress sees now.
type Stats struct {
	Ingress      schema.IngressID `json:"ingress"`
	UptimeNS     int64            `json:"uptime_ns"`
	Draining     bool             `json:"draining"`
	Connected    bool             `json:"connected"` // to NATS
	Connections  int              `json:"connections"`
	Open         int              `json:"open"`    // requests held
	Waiting      int              `json:"waiting"` // of them, without a first token
	Running      int              `json:"running"` // of them, with one
	WaitingBytes int64            `json:"waiting_bytes"`
	// Kept answers have ended and wait for their clients to come back.
	Kept          int                             `json:"kept"`
	KeptBytes     int                             `json:"kept_bytes"`
	EventsPending int                             `json:"events_pending"`
	Refused       map[schema.RefusalReason]uint64 `json:"refused"`
	Delivered     map[schema.Outcome]uint64       `json:"delivered"`
	TTFT          quantiles                       `json:"ttft"`
	E2E           quantiles                       `json:"e2e"`
	Models        []ModelStats                    `json:"models"`
}

// ModelStats says whether a model is served.
type ModelStats struct {
	Model string `json:"model"`
	Ready bool   `json:"ready"`
	Pool  string `json:"pool,omitempty"`
	// ContextTokens is what a request may have now, prompt and output together.
	ContextTokens int `json:"context_tokens"`
}

// Stats returns what the ingress sees now.
func (s *Server) Stats() Stats {
	open, waiting, bytes := s.gate.count()
	st := Stats{
		Ingress: s.id, UptimeNS: s.clock(), Draining: s.gate.draining(), Connected: s.client.Connected(),
		Connections: s.connections(), Open: open, Waiting: waiting, Running: open - waiting, WaitingBytes: bytes,
		EventsPending: s.pendingEvents(), Models: s.modelStats(),
	}
	st.Kept, st.KeptBytes = s.relay.keptCount()
	s.metrics.mu.Lock()
	st.Refused, st.Delivered = maps.Clone(s.metrics.refused), maps.Clone(s.metrics.ended)
	s.metrics.mu.Unlock()
	s.samples.mu.Lock()
	st.TTFT, st.E2E = s.samples.ttft.quantiles(), s.samples.e2e.quantiles()
	s.samples.mu.Unlock()
	return st
}

func (s *Server) modelStats() []ModelStats {
	list := make([]ModelStats, 0, len(s.models.list))
	for _, m := range s.models.list {
		pool, context, ok := s.fleet.serving(m.Name, time.Now())
		list = append(list, ModelStats{Model: m.Name, Ready: ok, Pool: pool, ContextTokens: contextOf(m, context)})
	}
	return list
}

// contextOf is the longest prompt + output of a model whose live workers have a context of so many tokens (0: unknown).
func contextOf(m *served, workers int32) int {
	if workers > 0 {
		return min(m.ContextTokens, int(workers))
	}
	return m.ContextTokens
}

func (s *Server) getStats(c *fiber.Ctx) error { return c.JSON(s.Stats()) }

// Readiness is the body of GET /ready.
type Readiness struct {
	Ready bool `json:"ready"`
	// Reason is empty, draining, disconnected (from NATS) or no_worker.
	Reason string       `json:"reason,omitempty"`
	Models []ModelStats `json:"models"`
}

// Readiness says whether the ingress takes requests now: for at least one of its models.
func (s *Server) Readiness() Readiness {
	r := Readiness{Models: s.modelStats()}
	for _, m := range r.Models {
		r.Ready = r.Ready || m.Ready
	}
	switch {
	case s.gate.draining():
		r.Ready, r.Reason = false, "draining"
	case !s.client.Connected():
		r.Ready, r.Reason = false, "disconnected"
	case !r.Ready:
		r.Reason = "no_worker"
	}
	return r
}

func (s *Server) getReady(c *fiber.Ctx) error {
	r := s.Readiness()
	if !r.Ready {
		c.Status(http.StatusServiceUnavailable)
	}
	return c.JSON(r)
}

func (s *Server) getHealth(c *fiber.Ctx) error { return c.JSON(fiber.Map{"status": "alive"}) }
