package load

import "time"

// Outcome is how a request ended, as its client saw it (low cardinality).
type Outcome string

// The outcomes.
const (
	// OK is a complete answer: a stream up to [DONE], or a whole JSON body with status 200.
	OK Outcome = "ok"
	// Refused is a 429 with a reason or a code in its error body, or a 503 with a reason, or with a code and the advice to come
	// back later: a code alone may as well say that the server is broken.
	Refused Outcome = "refused"
	// HTTPError is any other status than 200.
	HTTPError Outcome = "http_error"
	// StreamError is a stream that carried an error event, or an event that is not JSON.
	StreamError Outcome = "stream_error"
	// Truncated is a stream or a body that ended, in whatever way, before it was complete.
	Truncated Outcome = "truncated"
	// Disconnected is a connection that this client closed, as it was asked to.
	Disconnected Outcome = "disconnected_by_us"
	// Timeout is a request that took longer than the client's own limit.
	Timeout Outcome = "timeout"
	// ConnectError is a request without response headers: no connection, or one that ended before them.
	ConnectError Outcome = "connect_error"
)

// Outcomes lists every outcome.
var Outcomes = []Outcome{OK, Refused, HTTPError, StreamError, Truncated, Disconnected, Timeout, ConnectError}

// Generator is the reason of a ConnectError that is the generator's own: it had no file or port left.
const Generator = "generator"

// Usage is the token count that a server reported.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	// CachedTokens of the prompt came from a prefix cache; 0 if the server does not say.
	CachedTokens int `json:"cached_tokens,omitempty"`
}

// Record is what one request brought. Durations count from the intended arrival; -1 is an event that did not happen.
type Record struct {
	Index     int    `json:"index"`                       // in the schedule, from 0
	ClientID  string `json:"client_request_id,omitempty"` // sent as X-Request-Id
	RequestID string `json:"request_id,omitempty"`        // the server's own, from Client.IDHeader or the event ids

	Intended time.Duration `json:"intended_ns"` // arrival since the start of the run
	Lag      time.Duration `json:"lag_ns"`      // intended arrival until it was taken up, before a connection is looked for
	TTFB     time.Duration `json:"ttfb_ns"`     // to the response headers
	TTFT     time.Duration `json:"ttft_ns"`     // to the first event with text
	E2E      time.Duration `json:"e2e_ns"`      // to the end, whatever it was
	// Gaps are the times between events with text; events that came in one read have none between them.
	Gaps []time.Duration `json:"gaps_ns,omitempty"`

	Outcome    Outcome       `json:"outcome"`
	Status     int           `json:"status,omitempty"` // 0 without response headers
	Reason     string        `json:"reason,omitempty"` // of an error, in the server's word
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	Err        string        `json:"error,omitempty"`

	Events     int    `json:"events"`      // SSE events with data, [DONE] not counted
	TextEvents int    `json:"text_events"` // those with text
	Done       bool   `json:"done"`        // [DONE] came
	Finish     string `json:"finish_reason,omitempty"`
	Usage      *Usage `json:"usage,omitempty"`

	LastEventID string   `json:"last_event_id,omitempty"`
	EventIDs    []string `json:"event_ids,omitempty"` // if Client.KeepEventIDs
	Text        string   `json:"text,omitempty"`      // if Client.KeepText
}

// Headers reports whether the response headers came.
func (r *Record) Headers() bool { return r.Status != 0 }
