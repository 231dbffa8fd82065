package schema

import (
	"fmt"
	"slices"
)

// FinishReason says why an answer is complete, in OpenAI's words.
type FinishReason string

// The finish reasons.
const (
	FinishStop   FinishReason = "stop"   // end of text, or a stop string
	FinishLength FinishReason = "length" // the output cap or the end of the context
)

// Chunk is a run of tokens of one request on tok.<ingress>.<request_id>: what one or a few engine steps gave it.
// Indexes are dense over the whole answer, whatever the attempt: the first token of attempt 2 follows the last sealed
// token of attempt 1. A chunk with neither Finish nor Error has at least one token.
type Chunk struct {
	V       int       `json:"v"`
	Request RequestID `json:"request_id"`
	Attempt uint32    `json:"attempt"`
	// Index of the first token of IDs in the answer; without tokens, the number of tokens that came before.
	Index int32  `json:"index"`
	IDs   Tokens `json:"ids,omitempty"`
	// Text that these tokens made certain: valid UTF-8; may be empty (an incomplete character, a possible stop string)
	// and may hold what earlier tokens left pending.
	Text   string  `json:"text,omitempty"`
	Finish *Finish `json:"finish,omitempty"`
	Error  *Error  `json:"error,omitempty"`
	// Logprobs belong to IDs, if the request asked for them.
	Logprobs *Logprobs `json:"logprobs,omitempty"`
}

// Logprobs are natural logarithms of probabilities, in the model's own distribution: the softmax of its logits, whatever
// the sampling parameters. They lie in [MinLogprob, 0].
type Logprobs struct {
	// Chosen[i] is that of IDs[i], at least one. The token that ends an answer is no part of its text and has none, so
	// that there may be one less than IDs.
	Chosen []float32 `json:"chosen,omitempty"`
	// Top are the most probable tokens in the place of each chosen one, by falling probability, the same number for each:
	// those of IDs[i] are Top[i*n:(i+1)*n]. The chosen one need not be among them. TopLogprobs has theirs, len = len(Top).
	Top         Tokens    `json:"top,omitempty"`
	TopLogprobs []float32 `json:"top_logprobs,omitempty"`
}

// MinLogprob stands for every probability that is smaller, as OpenAI has it.
const MinLogprob = -9999

// N returns how many alternatives each token has.
func (l *Logprobs) N() int {
	if len(l.Chosen) == 0 {
		return 0
	}
	return len(l.Top) / len(l.Chosen)
}

// Append adds the tokens of another run with as many alternatives.
func (l *Logprobs) Append(more *Logprobs) {
	l.Chosen = append(l.Chosen, more.Chosen...)
	l.Top = append(l.Top, more.Top...)
	l.TopLogprobs = append(l.TopLogprobs, more.TopLogprobs...)
}

// Reset empties l and keeps its memory.
func (l *Logprobs) Reset() {
	l.Chosen, l.Top, l.TopLogprobs = l.Chosen[:0], l.Top[:0], l.TopLogprobs[:0]
}

// Clone returns a copy that shares nothing with l; nil of nil.
func (l *Logprobs) Clone() *Logprobs {
	if l == nil {
		return nil
	}
	return &Logprobs{Chosen: slices.Clone(l.Chosen), Top: slices.Clone(l.Top), TopLogprobs: slices.Clone(l.TopLogprobs)}
}

// validate accepts nil: nobody asked. ids is the number of tokens that they belong to.
func (l *Logprobs) validate(ids int) error {
	if l == nil {
		return nil
	}
	n := len(l.Chosen)
	switch {
	case n == 0 || n > ids:
		return fmt.Errorf("%w chunk: logprobs of %d tokens for %d ids", ErrInvalid, n, ids)
	case len(l.Top)%n != 0 || len(l.Top)/n > MaxTopLogprobs || len(l.TopLogprobs) != len(l.Top):
		return fmt.Errorf("%w chunk: %d logprobs of %d alternatives to %d tokens", ErrInvalid, len(l.TopLogprobs), len(l.Top), n)
	}
	for _, list := range [][]float32{l.Chosen, l.TopLogprobs} {
		for _, p := range list {
			if !(p >= MinLogprob && p <= 0) { // also for NaN
				return fmt.Errorf("%w chunk: a logprob is %v, outside [%v, 0]", ErrInvalid, p, MinLogprob)
			}
		}
	}
	return nil
}

// Finish closes a complete answer.
type Finish struct {
	Reason       FinishReason `json:"reason"`
	PromptTokens int32        `json:"prompt_tokens"`
	CachedTokens int32        `json:"cached_tokens,omitempty"`
	OutputTokens int32        `json:"output_tokens"`
}

// Error closes an answer that did not come to its end.
type Error struct {
	Code    FailureCode `json:"code"`
	Message string      `json:"message"`
}

// Validate returns ErrInvalid, naming the field, if the chunk breaks a rule.
func (c *Chunk) Validate() error {
	bad := func(field string, v any) error { return fmt.Errorf("%w chunk: %s is %v", ErrInvalid, field, v) }
	switch {
	case !c.Request.Valid():
		return bad("request_id", c.Request)
	case c.Attempt < 1 && c.Error == nil:
		return bad("attempt", c.Attempt)
	case c.Index < 0:
		return bad("index", c.Index)
	case c.Finish != nil && c.Error != nil:
		return bad("error", "set beside finish")
	case c.Finish == nil && c.Error == nil && len(c.IDs) == 0:
		return bad("ids", "empty")
	}
	if err := c.Logprobs.validate(len(c.IDs)); err != nil {
		return err
	}
	return c.Finish.validate("chunk")
}

// validate accepts nil: there is no end yet.
func (f *Finish) validate(of string) error {
	switch {
	case f == nil:
		return nil
	case f.Reason == "":
		return fmt.Errorf("%w %s: finish.reason is empty", ErrInvalid, of)
	case f.PromptTokens|f.CachedTokens|f.OutputTokens < 0:
		return fmt.Errorf("%w %s: finish has %d prompt_tokens, %d cached_tokens, %d output_tokens", ErrInvalid, of, f.PromptTokens, f.CachedTokens, f.OutputTokens)
	}
	return nil
}
