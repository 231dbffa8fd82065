package openai

import (
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// Usage counts a request's tokens.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	// CachedTokens of the prompt came from the prefix cache.
	CachedTokens int
}

func (u Usage) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CompletionTokens), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens)+int64(u.CompletionTokens), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CachedTokens), 10)
	return append(dst, "}}"...)
}

// AppendResponse appends the whole body of an answer that is not streamed. tokens are its log-probabilities; nil leaves
// them out.
func AppendResponse(dst []byte, h Head, text string, tokens []Logprob, finish schema.FinishReason, u Usage) []byte {
	dst = h.appendOpen(dst, false)
	dst = append(dst, `,"choices":[{"index":0,`...)
	if h.Kind == schema.KindChat {
		dst = append(dst, `"message":{"role":"assistant","content":`...)
		dst = AppendString(dst, text)
		dst = append(dst, `,"refusal":null}`...)
	} else {
		dst = append(dst, `"text":`...)
		dst = AppendString(dst, text)
	}
	if tokens != nil {
		dst = appendLogprobs(dst, h.Kind == schema.KindChat, tokens)
	}
	dst = append(dst, `,"finish_reason":`...)
	dst = AppendString(dst, string(finish))
	dst = append(dst, `}],"usage":`...)
	dst = u.appendJSON(dst)
	return append(dst, '}')
}

// Model is an entry of GET /v1/models.
type Model struct {
	ID      string
	Created time.Time
	OwnedBy string
	// ContextTokens is the most tokens of prompt and output together; 0 leaves it out. vLLM calls it max_model_len.
	ContextTokens int
}

// AppendModel appends the body of GET /v1/models/{id}.
func AppendModel(dst []byte, m Model) []byte {
	dst = append(dst, `{"id":`...)
	dst = AppendString(dst, m.ID)
	dst = append(dst, `,"object":"model","created":`...)
	dst = strconv.AppendInt(dst, m.Created.Unix(), 10)
	dst = append(dst, `,"owned_by":`...)
	dst = AppendString(dst, m.OwnedBy)
	if m.ContextTokens > 0 {
		dst = append(dst, `,"max_model_len":`...)
		dst = strconv.AppendInt(dst, int64(m.ContextTokens), 10)
	}
	return append(dst, '}')
}

// AppendModels appends the body of GET /v1/models.
func AppendModels(dst []byte, models []Model) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, m)
	}
	return append(dst, "]}"...)
}
