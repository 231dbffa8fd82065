package schema

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Version of every body on the wire. A reader accepts bodies up to its own version, ignores fields that it does not
// know, and refuses a higher version with ErrVersion.
const Version = 1

var (
	// ErrVersion is returned for a body written by a newer, incompatible writer.
	ErrVersion = errors.New("schema: unsupported version")
	// ErrInvalid is returned for a body that decodes but breaks a rule; the message names the field.
	ErrInvalid = errors.New("schema: invalid")
)

const (
	// MaxStops is the largest number of stop strings of a request.
	MaxStops = 16
	// MaxTopLogprobs is how many alternatives a token's log-probability may come with.
	MaxTopLogprobs = 20
	// MaxGrammar is the longest grammar of a request, in bytes.
	MaxGrammar = 64 << 10
)

// Kind is the API that a request came through.
type Kind string

// The kinds.
const (
	KindChat       Kind = "chat"
	KindCompletion Kind = "completion"
)

// Class says what a request is promised.
type Class string

// The classes; the empty class is best effort.
const (
	BestEffort Class = "best-effort"
	Guaranteed Class = "guaranteed"
)

// OnDeadline says what becomes of a request that can no longer meet its objectives.
type OnDeadline string

// What may become of it.
const (
	OnDeadlineDemote   OnDeadline = "demote"   // it goes behind those that still can
	OnDeadlineCancel   OnDeadline = "cancel"   // it ends with FailedDeadline
	OnDeadlineContinue OnDeadline = "continue" // it stays where it is
)

// Sampling holds how tokens are chosen. The zero value is greedy decoding with no penalties.
type Sampling struct {
	Temperature       float32 `json:"temperature,omitempty"`        // ≥ 0; 0 is greedy
	TopK              int32   `json:"top_k,omitempty"`              // 0 is off
	TopP              float32 `json:"top_p,omitempty"`              // (0, 1]; 0 and 1 are off
	MinP              float32 `json:"min_p,omitempty"`              // [0, 1]; 0 is off
	RepetitionPenalty float32 `json:"repetition_penalty,omitempty"` // > 0; 0 and 1 are off
	PresencePenalty   float32 `json:"presence_penalty,omitempty"`   // [-2, 2]
	FrequencyPenalty  float32 `json:"frequency_penalty,omitempty"`  // [-2, 2]
	// Seed with the token's position keys every random draw, so that a request continued elsewhere draws the same.
	Seed uint64 `json:"seed"`
}

// Request is what the ingress admits and publishes to REQUESTS. It carries everything a worker needs.
type Request struct {
	V      int       `json:"v"`
	ID     RequestID `json:"request_id"`
	Pool   string    `json:"pool"`
	Model  string    `json:"model"`
	Tenant string    `json:"tenant"`
	// Ingress owns the client's connection: tokens go to it, and it answers seals.
	Ingress IngressID `json:"ingress"`
	Kind    Kind      `json:"kind"`
	Class   Class     `json:"class,omitempty"`
	// Received is the arrival at the ingress, UTC.
	Received int64 `json:"received_time_ns"`
	// Prompt is the tokenized prompt, at least one token.
	Prompt Tokens `json:"prompt"`
	// MaxTokens bounds the output: ≥ 1, and with the prompt within the model's context.
	MaxTokens int32    `json:"max_tokens"`
	Stop      []string `json:"stop,omitempty"`
	IgnoreEOS bool     `json:"ignore_eos,omitempty"`
	Sampling  Sampling `json:"sampling"`
	// Budget is what was left of the end-to-end deadline when the request was published; 0 is no deadline. Clocks of
	// two hosts are never subtracted: a reader adds JetStream's store time.
	Budget time.Duration `json:"budget_ns,omitempty"`
	// TTFTBudget is what was left of the objective of the first token then; 0 is none.
	TTFTBudget time.Duration `json:"ttft_budget_ns,omitempty"`
	// OnDeadline says what becomes of the request once it cannot meet its objectives any more; empty is demote.
	OnDeadline OnDeadline `json:"on_deadline,omitempty"`
	// Grace is how long generation goes on after the client has gone, waiting for it to come back.
	Grace time.Duration `json:"grace_ns,omitempty"`
	// Logprobs asks for log-probabilities: 0 for none, n+1 for those of the generated tokens and of the n most probable
	// ones in the place of each; n ≤ MaxTopLogprobs.
	Logprobs int32 `json:"logprobs,omitempty"`
	// Grammar, unless empty, is what the whole output must be a sentence of: GBNF, llama.cpp's notation, with the start
	// symbol root; at most MaxGrammar bytes.
	Grammar string `json:"grammar,omitempty"`
}

// Peak returns the largest number of tokens that the request can hold in the KV cache.
func (r *Request) Peak() int { return len(r.Prompt) + int(r.MaxTokens) }

// Validate returns ErrInvalid, naming the field, if the request breaks a rule.
func (r *Request) Validate() error {
	bad := func(field string, v any) error { return fmt.Errorf("%w request: %s is %v", ErrInvalid, field, v) }
	switch {
	case !r.ID.Valid():
		return bad("request_id", r.ID)
	case !ValidName(r.Pool):
		return bad("pool", r.Pool)
	case !ValidName(r.Tenant):
		return bad("tenant", r.Tenant)
	case !ValidName(string(r.Ingress)):
		return bad("ingress", r.Ingress)
	case r.Kind != KindChat && r.Kind != KindCompletion:
		return bad("kind", r.Kind)
	case r.Class != "" && r.Class != BestEffort && r.Class != Guaranteed:
		return bad("class", r.Class)
	case len(r.Prompt) == 0:
		return bad("prompt", "empty")
	case r.MaxTokens < 1:
		return bad("max_tokens", r.MaxTokens)
	case len(r.Prompt) > math.MaxInt32-int(r.MaxTokens):
		return bad("max_tokens", r.MaxTokens)
	case len(r.Stop) > MaxStops:
		return bad("stop", fmt.Sprintf("%d strings", len(r.Stop)))
	case r.Budget < 0:
		return bad("budget_ns", r.Budget)
	case r.TTFTBudget < 0:
		return bad("ttft_budget_ns", r.TTFTBudget)
	case r.OnDeadline != "" && r.OnDeadline != OnDeadlineDemote && r.OnDeadline != OnDeadlineCancel && r.OnDeadline != OnDeadlineContinue:
		return bad("on_deadline", r.OnDeadline)
	case r.Grace < 0:
		return bad("grace_ns", r.Grace)
	case r.Logprobs < 0 || r.Logprobs > MaxTopLogprobs+1:
		return bad("logprobs", r.Logprobs)
	case len(r.Grammar) > MaxGrammar:
		return bad("grammar", fmt.Sprintf("%d bytes", len(r.Grammar)))
	}
	for _, s := range r.Stop {
		if s == "" {
			return bad("stop", "an empty string")
		}
	}
	return r.Sampling.Validate()
}

// Validate returns ErrInvalid, naming the field, if a value is out of its range.
func (s *Sampling) Validate() error {
	in := func(field string, v, lo, hi float32) error {
		if !(v >= lo && v <= hi) { // also false for NaN
			return fmt.Errorf("%w sampling: %s is %v, outside [%v, %v]", ErrInvalid, field, v, lo, hi)
		}
		return nil
	}
	if s.TopK < 0 {
		return fmt.Errorf("%w sampling: top_k is %d, below 0", ErrInvalid, s.TopK)
	}
	return errors.Join(
		in("temperature", s.Temperature, 0, 100),
		in("top_p", s.TopP, 0, 1),
		in("min_p", s.MinP, 0, 1),
		in("repetition_penalty", s.RepetitionPenalty, 0, 100),
		in("presence_penalty", s.PresencePenalty, -2, 2),
		in("frequency_penalty", s.FrequencyPenalty, -2, 2),
	)
}
