package openai

import (
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// Head is what all chunks of a stream, or a whole response, have in common.
type Head struct {
	// Kind is the endpoint: it decides the shape.
	Kind schema.Kind
	// Request is the request's id. The response's id is made of it: "chatcmpl-<id>" or "cmpl-<id>".
	Request schema.RequestID
	// Model is the name under which the client knows the model.
	Model string
	// Created is the arrival; it is written in whole seconds.
	Created time.Time
	// Fingerprint names the build and weights that answer; empty leaves the field out.
	Fingerprint string
}

// appendOpen appends a response up to its own fields, without the closing brace.
func (h *Head) appendOpen(dst []byte, chunk bool) []byte {
	id, object := "chatcmpl-", "chat.completion"
	switch {
	case h.Kind == schema.KindCompletion:
		id, object = "cmpl-", "text_completion" // chunks have the same name
	case chunk:
		object = "chat.completion.chunk"
	}
	dst = append(dst, `{"id":`...)
	dst = AppendString(dst, id+string(h.Request))
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, h.Created.Unix(), 10)
	dst = append(dst, `,"model":`...)
	dst = AppendString(dst, h.Model)
	if h.Fingerprint != "" {
		dst = append(dst, `,"system_fingerprint":`...)
		dst = AppendString(dst, h.Fingerprint)
	}
	return dst
}

// Stream encodes the events of one streamed answer. It holds only bytes made at the start, so that any goroutine may
// use it. The caller numbers the events from 0, each number once; a client that comes back names the last one it saw.
type Stream struct {
	chat    bool
	request string
	open    []byte // of a chunk, up to the value of choices
	choice  []byte // of choices, up to the text
	close   []byte // of a chunk, after choices
}

// NewStream prepares a stream. If includeUsage, AppendUsage makes the last event before Done, and the chunks before it
// have a null usage, as OpenAI's do.
func NewStream(h Head, includeUsage bool) *Stream {
	s := &Stream{
		chat:    h.Kind == schema.KindChat,
		request: string(h.Request),
		open:    append(h.appendOpen(nil, true), `,"choices":`...),
		choice:  []byte(`[{"index":0,"text":`),
		close:   []byte("}\n\n"),
	}
	if s.chat {
		s.choice = []byte(`[{"index":0,"delta":{"content":`)
	}
	if includeUsage {
		s.close = []byte(`,"usage":null}` + "\n\n")
	}
	return s
}

func (s *Stream) appendOpen(dst []byte, n int64) []byte {
	dst = append(dst, "id: "...)
	dst = AppendEventID(dst, s.request, n)
	dst = append(dst, "\ndata: "...)
	return append(dst, s.open...)
}

// AppendRole appends the first event of a chat, which names the assistant. Completions have none: for them it appends
// nothing, and n stays free.
func (s *Stream) AppendRole(dst []byte, n int64) []byte {
	if !s.chat {
		return dst
	}
	dst = s.appendOpen(dst, n)
	dst = append(dst, `[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]`...)
	return append(dst, s.close...)
}

// AppendText appends an event with a piece of the answer. It allocates nothing if dst has room for len(text) plus the
// fixed parts (a few hundred bytes); text should be whole UTF-8, see AppendString.
func (s *Stream) AppendText(dst []byte, n int64, text string) []byte {
	dst = s.appendOpen(dst, n)
	dst = append(dst, s.choice...)
	dst = AppendString(dst, text)
	if s.chat {
		dst = append(dst, '}')
	}
	dst = append(dst, `,"finish_reason":null}]`...)
	return append(dst, s.close...)
}

// AppendTokens is AppendText with the log-probabilities of the tokens that came with the text. The text may be empty: what
// the tokens say may be held back, or have come to nothing.
func (s *Stream) AppendTokens(dst []byte, n int64, text string, tokens []Logprob) []byte {
	dst = s.appendOpen(dst, n)
	dst = append(dst, s.choice...)
	dst = AppendString(dst, text)
	if s.chat {
		dst = append(dst, '}')
	}
	dst = appendLogprobs(dst, s.chat, tokens)
	dst = append(dst, `,"finish_reason":null}]`...)
	return append(dst, s.close...)
}

// AppendFinish appends the event that says why the answer ended. It has no text.
func (s *Stream) AppendFinish(dst []byte, n int64, reason schema.FinishReason) []byte {
	dst = s.appendOpen(dst, n)
	if s.chat {
		dst = append(dst, `[{"index":0,"delta":{},"finish_reason":`...)
	} else {
		dst = append(dst, `[{"index":0,"text":"","finish_reason":`...)
	}
	dst = AppendString(dst, string(reason))
	dst = append(dst, "}]"...)
	return append(dst, s.close...)
}

// AppendUsage appends the event with the token counts, whose choices are empty.
func (s *Stream) AppendUsage(dst []byte, n int64, u Usage) []byte {
	dst = s.appendOpen(dst, n)
	dst = append(dst, `[],"usage":`...)
	dst = u.appendJSON(dst)
	return append(dst, "}\n\n"...)
}

// AppendError appends the event that ends a broken stream: OpenAI's error object, on which its clients raise an
// error. Done must not follow. It has an id, so that a client does not ask for it again.
func (s *Stream) AppendError(dst []byte, n int64, e *Error) []byte {
	dst = append(dst, "id: "...)
	dst = AppendEventID(dst, s.request, n)
	dst = append(dst, "\ndata: "...)
	dst = e.AppendJSON(dst)
	return append(dst, "\n\n"...)
}
