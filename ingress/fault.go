package ingress

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
	"github.com/gofiber/fiber/v2"
)

// What clients are told beside the dialect's own errors.
var (
	errNotResumable = &openai.Error{Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: "not_resumable", Param: "Last-Event-ID",
		Reason: openai.ReasonNotFound, Message: "This stream cannot be resumed: it is unknown here, had no X-Resume-Grace-Ms, or its grace is over."}
	errSlowReader = &openai.Error{Status: http.StatusServiceUnavailable, Type: openai.TypeServer, Code: "slow_reader", Reason: "slow_reader",
		Message: "The stream was cut because the client read too slowly."}
	errDrained = &openai.Error{Status: http.StatusServiceUnavailable, Type: openai.TypeServer, Code: "draining", Reason: openai.ReasonDraining,
		RetryAfter: 1, Message: "The server shut down before the answer was complete."}
	errTorn = &openai.Error{Status: http.StatusInternalServerError, Type: openai.TypeServer, Code: "internal_error", Reason: openai.ReasonInternal,
		Message: "The answer's parts did not fit together."}
	errTokensLost = &openai.Error{Status: http.StatusInternalServerError, Type: openai.TypeServer, Code: "internal_error", Reason: openai.ReasonInternal,
		Message: "A part of the answer was lost on its way."}
	errCancelled = &openai.Error{Status: http.StatusServiceUnavailable, Type: openai.TypeServer, Code: "cancelled", Reason: "cancelled",
		Message: "The request was cancelled before its answer was complete."}
	errQueued = &openai.Error{Status: http.StatusServiceUnavailable, Type: openai.TypeServer, Code: "timeout", Reason: "timeout", RetryAfter: 1,
		Message: "The request waited longer than it may."}
	errEncoding = &openai.Error{Status: http.StatusUnsupportedMediaType, Type: openai.TypeInvalidRequest, Code: "unsupported_encoding",
		Param: "Content-Encoding", Reason: openai.ReasonUnsupported, Message: "Compressed request bodies are not supported."}
	errHeaderTooLarge = &openai.Error{Status: http.StatusRequestHeaderFieldsTooLarge, Type: openai.TypeInvalidRequest, Code: "header_too_large",
		Reason: openai.ReasonTooLarge, Message: "The request's header is too large."}
	errReadTimeout = &openai.Error{Status: http.StatusRequestTimeout, Type: openai.TypeInvalidRequest, Code: "request_timeout",
		Reason: "request_timeout", Message: "The request did not arrive in time."}
)

// clientError is what the client is told of an answer that failed. The caller holds mu.
func (a *answer) clientError() *openai.Error {
	if a.cause != nil {
		return a.cause
	}
	switch a.failed.Code {
	case schema.FailedWorkerLost:
		return openai.WorkerLost()
	case schema.FailedDeadline:
		return openai.DeadlineExceeded()
	case schema.FailedTimeout:
		if a.deadline > 0 {
			return openai.DeadlineExceeded()
		}
		return errQueued
	case schema.FailedCancelled:
		return errCancelled
	default: // details are for the log, not for clients
		return openai.Internal()
	}
}

// refusalOf is the error for a request that was refused for a reason: by a rule, whose time to come back it tells, or before one was
// asked.
func (s *Server) refusalOf(r *call, reason schema.RefusalReason) *openai.Error {
	v := &r.said
	after := v.RetryAfter
	if after == 0 {
		after = s.retryAfter()
	}
	if reason == refusedTenant {
		return openai.TenantLimited("open requests and their tokens", after)
	}
	e := *refusal(reason, after)
	if text := v.Reason.Message(); text != "" && !v.Admit && reason == v.Reason.Refusal() {
		e.Message = fmt.Sprintf("The request is refused: %s. Retry in %d s.", text, e.RetryAfter)
		e.Code = string(reason)
	}
	return &e
}

// refusal is the 503 for a reason.
func refusal(reason schema.RefusalReason, after time.Duration) *openai.Error {
	var e openai.Error
	switch reason {
	case schema.RefusedDraining:
		return openai.Draining(after)
	case schema.RefusedNoWorker:
		e = *openai.NotReady("no worker serves the model now", after)
	case schema.RefusedUnavailable:
		e = *openai.NotReady("the request could not be stored", after)
	default:
		return openai.Refused(openai.Reason(reason), after)
	}
	e.Reason = openai.Reason(reason)
	return &e
}

// answerError writes an error response.
func answerError(c *fiber.Ctx, e *openai.Error) error {
	for name, value := range e.Headers {
		c.Set(name, value)
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Status(e.Status)
	c.Context().Response.SetBodyRaw(append(e.AppendJSON(nil), '\n'))
	return nil
}

// routeError turns what Fiber and fasthttp say of a request that no handler took into OpenAI's shape.
func (s *Server) routeError(c *fiber.Ctx, err error) error {
	e := openai.Internal()
	if fe, ok := err.(*fiber.Error); ok { //nolint:errorlint // Fiber hands over its own type, unwrapped.
		switch fe.Code {
		case http.StatusNotFound:
			e = openai.NotFound(c.Method(), c.Path())
		case http.StatusMethodNotAllowed:
			allow := string(c.Response().Header.Peek(fiber.HeaderAllow))
			e = openai.MethodNotAllowed(c.Method(), allow)
		case http.StatusRequestEntityTooLarge:
			e = openai.PayloadTooLarge(s.cfg.MaxBody)
		case http.StatusRequestHeaderFieldsTooLarge:
			e = errHeaderTooLarge
		case http.StatusRequestTimeout:
			e = errReadTimeout
		case http.StatusBadRequest, http.StatusBadGateway:
			e = openai.InvalidJSON("it is not an HTTP request that can be read")
		}
		// The rest of such a request may still be on its way: see conn.Close.
		if conn, ok := c.Context().Conn().(*conn); ok && fe.Code != http.StatusNotFound && fe.Code != http.StatusMethodNotAllowed {
			conn.linger.Store(true)
		}
	}
	if e.Status == http.StatusInternalServerError {
		s.log.Error("request not answered", "path", strings.Clone(c.Path()), "error", err)
	}
	s.cors.allow(c)
	s.metrics.rejected(e)
	return answerError(c, e)
}
