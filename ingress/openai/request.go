package openai

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/cadence-slo/cadence/schema"
)

// The dialect's own bounds on text that is stored or quoted.
const (
	maxModelBytes = 256
	maxUserBytes  = 512
	maxQuoteBytes = 64 // of an unknown role and the like
)

// CompletionMaxTokens is how many tokens /v1/completions generates if the client does not say: OpenAI's default.
const CompletionMaxTokens = 16

// Common is what both endpoints ask for. Nothing in it aliases the request body.
type Common struct {
	// Model is the requested model, 1 to 256 bytes; whether it exists is the shell's to say (ModelNotFound).
	Model string
	// MaxTokens bounds the output: ≥ 1, or 0 if the client gave no bound. Numbers beyond int64 are clamped to it; use
	// OutputRoom to bound it by the context.
	MaxTokens int64
	// Sampling holds OpenAI's defaults (temperature 1, the rest off) where the client said nothing. Seed is
	// meaningful only if HasSeed; without one the shell draws it.
	Sampling schema.Sampling
	// HasSeed is whether the client chose the seed.
	HasSeed bool
	// Stop holds the stop strings, none empty; nil for none.
	Stop []string
	// Stream asks for server-sent events.
	Stream bool
	// IncludeUsage asks for a usage chunk at the end of the stream; only with Stream.
	IncludeUsage bool
	// IgnoreEOS (an extension) goes on after end-of-text, until MaxTokens.
	IgnoreEOS bool
	// Logprobs is what schema.Request.Logprobs says: 0, or 1 more than the number of alternatives wanted.
	Logprobs int32
	// Schema is the JSON Schema that the answer must satisfy, as the client wrote it; nil: any text will do. It is JSON
	// of at most Limits.Depth, and no more is known of it.
	Schema []byte
	// User is the client's own tag for its end user, ≤ 512 bytes; it changes nothing.
	User string
}

// ChatRequest is a valid body of POST /v1/chat/completions.
type ChatRequest struct {
	Common
	// Messages has at least one message.
	Messages []Message
}

// CompletionRequest is a valid body of POST /v1/completions. Exactly one of Prompt and PromptTokens is not empty.
type CompletionRequest struct {
	Common
	Prompt string
	// PromptTokens are token ids in [0, 2³¹); whether the vocabulary has them is the shell's to say.
	PromptTokens schema.Tokens
}

// OutputRoom returns how many tokens may be generated after a prompt of promptTokens in a context of contextTokens:
// what was requested (0: no bound), or the room that is left, whichever is less, and at least 1. It returns
// ContextLengthExceeded for param if there is no room. All counts are ≥ 0 and contextTokens fits 32 bits.
func OutputRoom(param string, promptTokens, contextTokens int, requested int64) (int32, *Error) {
	room := int64(contextTokens) - int64(promptTokens)
	if room < 1 {
		return 0, ContextLengthExceeded(param, promptTokens, contextTokens)
	}
	if requested > 0 && requested < room {
		room = requested
	}
	return int32(min(room, math.MaxInt32)), nil
}

// ParseChat reads a body of POST /v1/chat/completions. It returns either a valid request or an Error of status 400
// (or 413) that says what is wrong; body is not kept.
func ParseChat(body []byte, limits Limits) (ChatRequest, *Error) {
	var req ChatRequest
	p := &parser{limits: limits, common: &req.Common, chat: true}
	err := p.parse(body, chatFields, func(key string) *Error {
		if key == "messages" {
			return p.messages(&req.Messages)
		}
		return p.shared(key)
	})
	if err == nil && !p.saw("messages") {
		err = MissingParameter("messages")
	}
	if err != nil {
		return ChatRequest{}, err
	}
	return req, nil
}

// ParseCompletion reads a body of POST /v1/completions. It returns either a valid request or an Error of status 400
// (or 413) that says what is wrong; body is not kept.
func ParseCompletion(body []byte, limits Limits) (CompletionRequest, *Error) {
	req := CompletionRequest{}
	p := &parser{limits: limits, common: &req.Common}
	err := p.parse(body, completionFields, func(key string) *Error {
		if key == "prompt" {
			return p.prompt(&req)
		}
		return p.shared(key)
	})
	if err == nil && !p.saw("prompt") {
		err = MissingParameter("prompt")
	}
	if err != nil {
		return CompletionRequest{}, err
	}
	if req.MaxTokens == 0 {
		req.MaxTokens = CompletionMaxTokens
	}
	return req, nil
}

// parser reads one body.
type parser struct {
	reader
	limits Limits
	common *Common
	fields map[string]field
	seen   uint64 // bits of the fields whose key was read
	given  uint64 // bits of the fields that had a value other than null
	// What can be judged only when all has been read.
	maxTokensParam string // the key that set MaxTokens
	wanted         bool   // log-probabilities
	top            int32  // how many alternatives
	chat           bool
}

// parse reads body as one object. own reads the value of a known key that is neither null nor refused by the table.
func (p *parser) parse(body []byte, fields map[string]field, own func(key string) *Error) *Error {
	if len(body) > p.limits.BodyBytes {
		return PayloadTooLarge(p.limits.BodyBytes)
	}
	p.data, p.limit, p.fields = body, p.limits.Depth, fields
	p.common.Sampling = schema.Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
	if p.peek() == kindNone && p.pos == len(body) {
		return InvalidJSON("it is empty; send a JSON object")
	}
	if !utf8.Valid(body) {
		at := 0
		for r, n := utf8.DecodeRune(body); r != utf8.RuneError || n != 1; r, n = utf8.DecodeRune(body[at:]) {
			at += n
		}
		return InvalidJSON("it is not UTF-8 at byte %d", at)
	}
	if p.peek() != kindObject {
		return p.unexpected("a JSON object")
	}
	if err := p.object(func(key string) *Error { return p.field(key, own) }); err != nil {
		return err
	}
	if p.space(); p.pos < len(body) {
		return p.unexpected("the end of the body")
	}
	return p.whole()
}

// whole checks what concerns several fields.
func (p *parser) whole() *Error {
	if !p.saw("model") {
		return MissingParameter("model")
	}
	if p.saw("stream_options") && !p.common.Stream {
		return InvalidParameter("stream_options", "it is only allowed when 'stream' is true")
	}
	if p.top > 0 && !p.wanted {
		return InvalidParameter("top_logprobs", "it is only allowed when 'logprobs' is true")
	}
	if p.wanted {
		p.common.Logprobs = 1 + p.top
	}
	if p.common.IgnoreEOS && p.common.Schema != nil {
		return InvalidParameter("ignore_eos", "an answer in a 'response_format' ends where it is complete")
	}
	return nil
}

// saw reports whether a known key had a value.
func (p *parser) saw(key string) bool { return p.given&p.fields[key].bit != 0 }

// field reads the value of one key of the body.
func (p *parser) field(key string, own func(key string) *Error) *Error {
	f, known := p.fields[key]
	if !known {
		return p.skip()
	}
	if p.seen&f.bit != 0 {
		return InvalidParameter(key, "it is given twice")
	}
	p.seen |= f.bit
	if p.peek() == kindNull {
		return p.literal("null")
	}
	p.given |= f.bit
	if f.refuse == "" {
		return own(key)
	}
	if neutral, err := p.neutral(); err != nil || neutral {
		return err
	}
	return Unsupported(key, "%s", f.refuse)
}

// path returns the parameter's name with an index.
func path(param string, i int) string { return param + "[" + strconv.Itoa(i) + "]" }

// wrongType is the 400 for a value of another kind than wanted.
func (p *parser) wrongType(param, want string) *Error {
	k := p.peek()
	if k == kindNone {
		return p.unexpected("a value")
	}
	return InvalidParameter(param, "expected %s, got %s", want, k)
}
