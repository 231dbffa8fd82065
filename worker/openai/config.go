package openai

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// ErrConfig is returned by Config.Validate; the message names the key and the allowed values.
var ErrConfig = errors.New("openai: invalid configuration")

// Dialect is what a server adds to OpenAI's API.
type Dialect string

// The dialects.
const (
	DialectAuto  Dialect = ""      // found out
	DialectPlain Dialect = "plain" // OpenAI's parameters; others only where a request needs them
	DialectVLLM  Dialect = "vllm"  // token ids in the stream (return_token_ids), more sampling parameters
	DialectLlama Dialect = "llama" // llama-server: POST /completion, with token ids
)

// Secret is a text that is not for logs: it prints as a row of stars.
type Secret string

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Tokenizer is the model's. It is safe for concurrent use.
type Tokenizer interface {
	Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error)
	AppendPiece(dst []byte, token int32, special bool) ([]byte, error)
	IsEOG(token int32) bool
}

// Config says where the server is and how it is used. What is 0 or empty and marked so is asked of the server.
type Config struct {
	URL string // http(s)://host[:port][/prefix], without /v1
	Key Secret // of the Authorization header; empty sends none
	// Model is the name that requests ask for, UpstreamModel what the server calls it (empty: asked).
	Model, UpstreamModel string
	Dialect              Dialect
	// PromptText sends prompts as text, for servers that take no token ids. They may then count them differently.
	// A token that the vocabulary puts before every text (BOS) is not sent: the server puts it there.
	PromptText bool

	// ContextTokens is the longest prompt + output (0: asked), Permits how many requests run at once there, at most 256
	// (0: asked).
	ContextTokens, Permits int

	Tokenizer Tokenizer
	Vocab     int // number of token ids of Tokenizer

	// Connect bounds a connection's making, FirstToken the time from the request to its first token, Stall the time
	// between two of them.
	Connect, FirstToken, Stall time.Duration
	// HealthInterval is the time between two questions after the server's health, HealthTimeout how long an answer may
	// take, HealthFailures how many in a row make it unhealthy.
	HealthInterval, HealthTimeout time.Duration
	HealthFailures                int
	// Hold is how long a request of a server that is gone waits for the worker to give it up before it is failed.
	Hold time.Duration
	// Poll bounds how long a step without news takes.
	Poll time.Duration
}

// DefaultConfig returns the defaults; URL, Model, Tokenizer and Vocab have none.
func DefaultConfig() Config {
	return Config{
		Connect: 5 * time.Second, FirstToken: 120 * time.Second, Stall: 60 * time.Second,
		HealthInterval: 2 * time.Second, HealthTimeout: 2 * time.Second, HealthFailures: 3,
		Hold: 5 * time.Second, Poll: 20 * time.Millisecond,
	}
}

// maxPermits is how many sequence ids a worker has at most.
const maxPermits = 256

// Validate returns ErrConfig, naming the first key that is outside its range. It never names the key's or the URL's
// secrets.
func (c *Config) Validate() error {
	u, err := url.Parse(c.URL)
	dialects := []Dialect{DialectAuto, DialectPlain, DialectVLLM, DialectLlama}
	for _, k := range []struct {
		key     string
		ok      bool
		value   any
		allowed string
	}{
		{"url", err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "",
			redacted(c.URL), "http(s)://host[:port][/prefix], without a password or a query"},
		{"key", !strings.ContainsAny(string(c.Key), "\r\n"), c.Key, "one line"},
		{"model", c.Model != "", c.Model, "a name"},
		{"dialect", slices.Contains(dialects, c.Dialect), c.Dialect, "auto (empty), plain, vllm, llama"},
		{"context_tokens", c.ContextTokens == 0 || c.ContextTokens >= 2, c.ContextTokens, "0 (asked) or 2 and more"},
		{"permits", c.Permits >= 0 && c.Permits <= maxPermits, c.Permits, fmt.Sprintf("0 (asked) to %d", maxPermits)},
		{"tokenizer", c.Tokenizer != nil, c.Tokenizer, "the model's"},
		{"vocab", c.Vocab >= 1, c.Vocab, "1 and more"},
		{"connect", c.Connect > 0, c.Connect, "more than 0"},
		{"first_token", c.FirstToken > 0, c.FirstToken, "more than 0"},
		{"stall", c.Stall > 0, c.Stall, "more than 0"},
		{"health_interval", c.HealthInterval > 0, c.HealthInterval, "more than 0"},
		{"health_timeout", c.HealthTimeout > 0, c.HealthTimeout, "more than 0"},
		{"health_failures", c.HealthFailures >= 1, c.HealthFailures, "1 and more"},
		{"hold", c.Hold >= 0, c.Hold, "0 and more"},
		{"poll", c.Poll > 0, c.Poll, "more than 0"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	return nil
}

// redacted is a URL without what may be secret.
func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "unreadable"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
