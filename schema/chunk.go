package schema

import "fmt"

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
