package openai

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What can go wrong with a server; a *Fault wraps one of them.
var (
	ErrUnreachable = errors.New("it could not be reached")
	ErrStatus      = errors.New("it refused the request")
	ErrProtocol    = errors.New("its stream is malformed")
	ErrReported    = errors.New("it reported an error in mid-stream")
	ErrCut         = errors.New("its stream ended without a finish_reason")
	ErrEmpty       = errors.New("its stream ended without a token")
	ErrSlowStart   = errors.New("it sent no token in time")
	ErrStalled     = errors.New("its stream stalled")
	ErrUnhealthy   = errors.New("it is not healthy")
	ErrChanged     = errors.New("it came back with another model or context (restart the worker to serve that)")
	ErrEnd         = errors.New("it ended an answer that was to ignore the end (does it know ignore_eos?)")
	ErrText        = errors.New("its text has no tokens that spell it (is the tokenizer the model's?)")
)

// Fault is what a server did wrong.
type Fault struct {
	Upstream string // scheme, host and path, without secrets
	Status   int    // of its HTTP response; 0: there was none
	// RetryAfter is what it asked for; 0: nothing.
	RetryAfter time.Duration
	Tokens     int    // tokens that had come before
	Message    string // its own words, cut short; or what was wrong with them
	Err        error  // one of this package's errors, maybe with its cause
}

// Error implements error.
func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "openai: upstream %s: %v", f.Upstream, f.Err)
	if f.Status != 0 {
		fmt.Fprintf(&b, ", status %d", f.Status)
	}
	if f.RetryAfter > 0 {
		fmt.Fprintf(&b, ", retry after %v", f.RetryAfter)
	}
	if f.Tokens > 0 {
		fmt.Fprintf(&b, ", after %d tokens", f.Tokens)
	}
	if f.Message != "" {
		fmt.Fprintf(&b, ": %s", f.Message)
	}
	return b.String()
}

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

// gone reports whether the server itself may be gone, and not only this answer.
func (f *Fault) gone() bool { return errors.Is(f.Err, ErrUnreachable) || errors.Is(f.Err, ErrCut) }

// maxMessage is how much of a server's words is kept.
const maxMessage = 300

// words makes a server's message fit for one line of a log.
func words(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "..."
	}
	return s
}
