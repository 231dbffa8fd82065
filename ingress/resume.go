package ingress

import (
	"strings"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
	"github.com/gofiber/fiber/v2"
)

// comeBack answers GET of both endpoints, with which a browser's EventSource comes back to a stream.
func (s *Server) comeBack(c *fiber.Ctx, kind schema.Kind) error {
	last := c.Get("Last-Event-ID")
	if last == "" {
		return s.reject(c, openai.MethodNotAllowed(c.Method(), "POST"))
	}
	tenant, e := s.tenants.of(c)
	if e != nil {
		return s.reject(c, e)
	}
	return s.resume(c, &call{kind: kind, tenant: tenant}, last)
}

// resume goes on with a stream after the last event that the client saw, on this connection from now on. Whether a
// stream is another tenant's or does not exist makes no difference to who asks.
func (s *Server) resume(c *fiber.Ctx, r *call, lastEvent string) error {
	id, n, err := openai.ParseEventID(strings.Clone(lastEvent))
	if err != nil {
		return s.reject(c, openai.InvalidParameter("Last-Event-ID", "expected the id of a stream's event"))
	}
	a := s.relay.get(schema.RequestID(id))
	if a == nil || a.tenant != r.tenant || a.kind != r.kind || !a.stream || !a.resumable() {
		return s.reject(c, errNotResumable)
	}
	b := s.newBody(c, a)
	if e := a.attach(b, n+1); e != nil {
		return s.reject(c, e)
	}
	s.metrics.resumes.Inc()
	c.Set("X-Cadence-Request-Id", id)
	return s.stream(c, b)
}
