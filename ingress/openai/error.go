package openai

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Error types, as OpenAI names them.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeServer         = "server_error"
	TypeRateLimit      = "rate_limit_error"
)

// Reason says in one word why a request got no answer. The set is small, so that it can be a metric's label.
type Reason string

// The reasons. The shell may use others for refusals (admission names its own); they must be as few and as short.
const (
	ReasonInvalidJSON      Reason = "invalid_json"
	ReasonInvalidParameter Reason = "invalid_parameter"
	ReasonUnsupported      Reason = "unsupported_parameter"
	ReasonContextLength    Reason = "context_length_exceeded"
	ReasonModelNotFound    Reason = "model_not_found"
	ReasonNotFound         Reason = "not_found"
	ReasonMethod           Reason = "method_not_allowed"
	ReasonTooLarge         Reason = "payload_too_large"
	ReasonUnauthorized     Reason = "unauthorized"
	ReasonTenantLimit      Reason = "tenant_limit"
	ReasonDraining         Reason = "draining"
	ReasonNotReady         Reason = "not_ready"
	ReasonDeadline         Reason = "deadline"
	ReasonWorkerLost       Reason = "worker_lost"
	ReasonInternal         Reason = "internal"
)

// Error is what a client gets instead of an answer: a status and OpenAI's error object. An Error is not changed after
// it was made and may be shared.
//
// Inside a stream the status has been sent already; Stream.AppendError carries the same object.
type Error struct {
	Status  int    // HTTP status, 4xx or 5xx
	Message string // for people; one or two sentences
	Type    string // one of the Type constants
	Param   string // the parameter at fault, as a path ("messages[1].content"); empty encodes as null
	Code    string // OpenAI's code, where it has one; empty encodes as null
	Reason  Reason // for machines; never empty
	// RetryAfter is when a refused client may come back, in whole seconds; 0 is no advice, and then neither the header
	// nor the body mentions it.
	RetryAfter int
	// Allow is the value of the Allow header of a 405.
	Allow string
}

// Error returns the message with its reason, for logs.
func (e *Error) Error() string {
	if e.Param != "" {
		return string(e.Reason) + " (" + e.Param + "): " + e.Message
	}
	return string(e.Reason) + ": " + e.Message
}

// Headers yields the response headers that belong to the error, besides Content-Type.
func (e *Error) Headers(yield func(name, value string) bool) {
	if e.RetryAfter > 0 && !yield("Retry-After", strconv.Itoa(e.RetryAfter)) {
		return
	}
	if e.Allow != "" && !yield("Allow", e.Allow) {
		return
	}
	if e.Status == http.StatusUnauthorized {
		yield("WWW-Authenticate", "Bearer")
	}
}

// AppendJSON appends the response body, {"error":{…}}, in OpenAI's shape. reason and retry_after are added to it;
// clients that know only OpenAI's four fields skip them.
func (e *Error) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendStringOrNull(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendStringOrNull(dst, e.Code)
	dst = append(dst, `,"reason":`...)
	dst = AppendString(dst, string(e.Reason))
	if e.RetryAfter > 0 {
		dst = append(dst, `,"retry_after":`...)
		dst = strconv.AppendInt(dst, int64(e.RetryAfter), 10)
	}
	return append(dst, `}}`...)
}

func appendStringOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return AppendString(dst, s)
}

// InvalidJSON is the 400 for a body that is not one JSON object.
func InvalidJSON(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: "invalid_json", Reason: ReasonInvalidJSON,
		Message: "The request body is not valid: " + fmt.Sprintf(format, args...) + "."}
}

// InvalidParameter is the 400 for a parameter of the wrong type or out of its range.
func InvalidParameter(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: "invalid_value", Param: param,
		Reason: ReasonInvalidParameter, Message: "Invalid '" + param + "': " + fmt.Sprintf(format, args...) + "."}
}

// MissingParameter is the 400 for a required parameter that was not given.
func MissingParameter(param string) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: "missing_required_parameter", Param: param,
		Reason: ReasonInvalidParameter, Message: "Missing required parameter: '" + param + "'."}
}

// Unsupported is the 400 for a parameter that asks for something this server does not do.
func Unsupported(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: "unsupported_parameter", Param: param,
		Reason: ReasonUnsupported, Message: "Unsupported '" + param + "': " + fmt.Sprintf(format, args...) + "."}
}

// ContextLengthExceeded is the 400 for a prompt that leaves no room for output. param is "messages" or "prompt".
func ContextLengthExceeded(param string, promptTokens, contextTokens int) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: "context_length_exceeded", Param: param,
		Reason: ReasonContextLength,
		Message: fmt.Sprintf("This model's maximum context length is %d tokens, output included. However, your %s resulted in %d tokens."+
			" Please reduce the length of the %s.", contextTokens, param, promptTokens, param)}
}

// ModelNotFound is the 404 for a model that is not served here. A name that is longer than any model's is cut.
func ModelNotFound(model string) *Error {
	return &Error{Status: http.StatusNotFound, Type: TypeInvalidRequest, Code: "model_not_found", Param: "model",
		Reason:  ReasonModelNotFound,
		Message: "The model '" + clip(model, maxModelBytes) + "' does not exist or you do not have access to it. See GET /v1/models."}
}

// NotFound is the 404 for an unknown path.
func NotFound(method, path string) *Error {
	return &Error{Status: http.StatusNotFound, Type: TypeInvalidRequest, Code: "unknown_url", Reason: ReasonNotFound,
		Message: "Unknown request URL: " + clip(method, 16) + " " + clip(path, 256) + "."}
}

// MethodNotAllowed is the 405 for a known path. allow lists its methods, as the Allow header does.
func MethodNotAllowed(method, allow string) *Error {
	return &Error{Status: http.StatusMethodNotAllowed, Type: TypeInvalidRequest, Code: "method_not_supported",
		Reason: ReasonMethod, Allow: allow,
		Message: "Method " + clip(method, 16) + " is not allowed here; allowed: " + allow + "."}
}

// PayloadTooLarge is the 413 for a body, or the request made from it, over limitBytes.
func PayloadTooLarge(limitBytes int) *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Type: TypeInvalidRequest, Code: "payload_too_large",
		Reason:  ReasonTooLarge,
		Message: fmt.Sprintf("The request is larger than the limit of %d bytes.", limitBytes)}
}

// Unauthorized is the 401 for a request without a valid API key. It never says what was wrong with the key.
func Unauthorized() *Error {
	return &Error{Status: http.StatusUnauthorized, Type: TypeInvalidRequest, Code: "invalid_api_key",
		Reason:  ReasonUnauthorized,
		Message: "Missing or incorrect API key. Send it as 'Authorization: Bearer YOUR_KEY'."}
}

// Refused is the 503 of admission: taking the request would break a promise. reason is admission's; after is the
// predicted wait, jitter included (see retrySeconds for its rounding).
func Refused(reason Reason, after time.Duration) *Error {
	s := retrySeconds(after)
	return &Error{Status: http.StatusServiceUnavailable, Type: TypeServer, Code: "capacity", Reason: reason, RetryAfter: s,
		Message: fmt.Sprintf("The server cannot take this request now without delaying others beyond their targets. Retry in %d s.", s)}
}

// TenantLimited is the 429 for a tenant over its own limit; what names the limit ("concurrent requests").
func TenantLimited(what string, after time.Duration) *Error {
	s := retrySeconds(after)
	return &Error{Status: http.StatusTooManyRequests, Type: TypeRateLimit, Code: "rate_limit_exceeded",
		Reason: ReasonTenantLimit, RetryAfter: s,
		Message: fmt.Sprintf("Your limit of %s is reached. Retry in %d s.", what, s)}
}

// Draining is the 503 of a server that is shutting down; another one, or this one restarted, may take the request.
func Draining(after time.Duration) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: TypeServer, Code: "draining", Reason: ReasonDraining,
		RetryAfter: retrySeconds(after), Message: "The server is shutting down and takes no new requests."}
}

// NotReady is the 503 of a server that cannot serve yet or for now (what says why: "no worker has the model loaded").
func NotReady(what string, after time.Duration) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: TypeServer, Code: "not_ready", Reason: ReasonNotReady,
		RetryAfter: retrySeconds(after), Message: "The server is not ready: " + what + "."}
}

// DeadlineExceeded is the 504 for a request whose own deadline passed before its answer was complete.
func DeadlineExceeded() *Error {
	return &Error{Status: http.StatusGatewayTimeout, Type: TypeServer, Code: "deadline_exceeded", Reason: ReasonDeadline,
		Message: "The request's deadline passed before the answer was complete."}
}

// WorkerLost is the 502 for an answer that cannot be completed: its worker is gone and no other took over.
func WorkerLost() *Error {
	return &Error{Status: http.StatusBadGateway, Type: TypeServer, Code: "worker_lost", Reason: ReasonWorkerLost,
		Message: "The worker that generated this answer was lost, and the answer could not be continued elsewhere."}
}

// Internal is the 500 for a fault of ours. Details go to the log, never to the client.
func Internal() *Error {
	return &Error{Status: http.StatusInternalServerError, Type: TypeServer, Code: "internal_error", Reason: ReasonInternal,
		Message: "The server had an error while processing your request."}
}

// retrySeconds rounds up to whole seconds and stays in [1, 3600]: Retry-After has no fractions, 0 would invite an
// immediate return, and a prediction of more than an hour is worth no more than "much later".
func retrySeconds(d time.Duration) int {
	const top = 3600
	if d >= top*time.Second {
		return top
	}
	return max(1, int((d+time.Second-1)/time.Second))
}

// clip cuts what a client sent to at most n bytes, at a rune's edge, before it is quoted back.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
