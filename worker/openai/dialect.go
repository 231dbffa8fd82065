package openai

import (
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
)

// path is where completions are asked for.
func (d Dialect) path() string {
	if d == DialectLlama {
		return "/completion" // unlike /v1/completions it tells token ids
	}
	return "/v1/completions"
}

// completion is the body of a request. Where a server has a default that is not "off", what is off is sent, too.
type completion struct {
	Model            string         `json:"model,omitempty"`
	Prompt           any            `json:"prompt"` // token ids or text
	Stream           bool           `json:"stream"`
	StreamOptions    *streamOptions `json:"stream_options,omitempty"`
	MaxTokens        int            `json:"max_tokens,omitempty"`
	NPredict         int            `json:"n_predict,omitempty"`
	Temperature      float32        `json:"temperature"`
	TopP             float32        `json:"top_p"`
	TopK             *int32         `json:"top_k,omitempty"`
	MinP             *float32       `json:"min_p,omitempty"`
	PresencePenalty  float32        `json:"presence_penalty"`
	FrequencyPenalty float32        `json:"frequency_penalty"`
	RepetitionFactor *float32       `json:"repetition_penalty,omitempty"`
	RepeatFactor     *float32       `json:"repeat_penalty,omitempty"`
	RepeatLast       *int           `json:"repeat_last_n,omitempty"`
	Seed             uint32         `json:"seed"`
	IgnoreEOS        bool           `json:"ignore_eos,omitempty"`
	ReturnTokenIDs   bool           `json:"return_token_ids,omitempty"`
	ReturnTokens     bool           `json:"return_tokens,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// body is the request for a sequence.
func (c *Config) body(s *worker.Start) ([]byte, error) {
	p := &s.Sampling
	q := completion{
		Model: c.UpstreamModel, Stream: true, Temperature: p.Temperature, TopP: orOne(p.TopP), PresencePenalty: p.PresencePenalty,
		FrequencyPenalty: p.FrequencyPenalty, Seed: seed(p.Seed, len(s.Output)), IgnoreEOS: s.IgnoreEOS,
	}
	if c.Dialect == DialectLlama {
		q.Model = "" // it has one
	}
	tokens := append(append(make([]int32, 0, len(s.Prompt)+len(s.Output)), s.Prompt...), s.Output...)
	if q.Prompt = tokens; c.PromptText {
		spoken, err := withoutBeginning(c.Tokenizer, tokens)
		if err != nil {
			return nil, err
		}
		var text []byte
		for _, id := range spoken {
			if text, err = c.Tokenizer.AppendPiece(text, id, true); err != nil {
				return nil, err
			}
		}
		q.Prompt = string(text)
	}
	repeat := orOne(p.RepetitionPenalty)
	switch c.Dialect {
	case DialectLlama:
		q.NPredict, q.ReturnTokens, q.TopK, q.MinP, q.RepeatFactor = s.MaxNew, true, &p.TopK, &p.MinP, &repeat
		all := len(tokens) + s.MaxNew
		q.RepeatLast = &all
	case DialectVLLM:
		q.MaxTokens, q.ReturnTokenIDs, q.TopK, q.MinP, q.RepetitionFactor = s.MaxNew, true, &p.TopK, &p.MinP, &repeat
	default:
		q.MaxTokens = s.MaxNew
		if p.TopK != 0 {
			q.TopK = &p.TopK
		}
		if p.MinP != 0 {
			q.MinP = &p.MinP
		}
		if repeat != 1 {
			q.RepetitionFactor = &repeat
		}
	}
	if c.Dialect != DialectLlama {
		q.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	return json.Marshal(&q)
}

// withoutBeginning drops the token that the model's vocabulary puts before every text (BOS): a server that is given a text
// puts it there itself.
func withoutBeginning(t Tokenizer, tokens []int32) ([]int32, error) {
	const any = "a"
	with, err := t.Tokenize(any, true, false)
	if err != nil {
		return nil, err
	}
	without, err := t.Tokenize(any, false, false)
	if err != nil {
		return nil, err
	}
	if len(with) > len(without) && len(without) > 0 && with[0] != without[0] && len(tokens) > 0 && tokens[0] == with[0] {
		tokens = tokens[1:]
	}
	return tokens, nil
}

func orOne(v float32) float32 {
	if v == 0 {
		return 1
	}
	return v
}

// seed is a server's: 31 bits of ours and of where the server begins, so that a continued answer does not repeat the
// draws of its beginning.
func seed(s uint64, position int) uint32 {
	h := s + uint64(position)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return uint32(h>>32) & 0x7fffffff
}

// usage is what a server counted, in total.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"` // not every server tells
	} `json:"prompt_tokens_details"`
}

// plausible reports whether a server counted at all, and in numbers that can be true; ours stand otherwise.
func (u *usage) plausible() bool {
	const most = 1 << 24 // more than any context
	return u != nil && u.Prompt >= 0 && u.Prompt <= most && u.Completion >= 0 && u.Completion <= most
}

// delta is what an event of a stream said.
type delta struct {
	text   []byte
	ids    []int32
	finish schema.FinishReason // "" until the last
	usage  *usage
	done   bool // nothing comes after it
}

// chunk is an event's data, of all dialects.
type chunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Index    int     `json:"index"`
		Text     rawText `json:"text"`
		TokenIDs []int32 `json:"token_ids"`
		Finish   string  `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`

	// llama-server's /completion.
	Content   rawText `json:"content"`
	Tokens    []int32 `json:"tokens"`
	Stop      bool    `json:"stop"`
	StopType  string  `json:"stop_type"`
	Predicted int     `json:"tokens_predicted"`
	Evaluated int     `json:"tokens_evaluated"`
	Timings   struct {
		Cached int `json:"cache_n"` // of Evaluated
	} `json:"timings"`
}

// read understands an event. It returns ErrProtocol or ErrReported.
func (d Dialect) read(e *event) (delta, error) {
	if string(e.data) == "[DONE]" {
		return delta{done: true}, nil
	}
	var c chunk
	if err := json.Unmarshal(e.data, &c); err != nil {
		if e.name == "error" {
			return delta{}, fmt.Errorf("%w: %s", ErrReported, words(string(e.data)))
		}
		return delta{}, fmt.Errorf("%w: %w in %q", ErrProtocol, err, words(string(e.data)))
	}
	if e.name == "error" || (len(c.Error) > 0 && string(c.Error) != "null") {
		return delta{}, fmt.Errorf("%w: %s", ErrReported, words(message(e.data)))
	}
	if d == DialectLlama {
		out := delta{text: c.Content, ids: c.Tokens}
		if c.Stop {
			out.done, out.usage = true, &usage{Prompt: c.Evaluated, Completion: c.Predicted}
			out.usage.Details.Cached = c.Timings.Cached
			reason := c.StopType
			if reason == "eos" {
				reason = "stop"
			}
			return finished(out, reason)
		}
		return out, nil
	}
	out := delta{usage: c.Usage}
	for i := range c.Choices {
		if x := &c.Choices[i]; x.Index == 0 {
			out.text, out.ids = x.Text, x.TokenIDs
			if x.Finish != "" {
				return finished(out, x.Finish)
			}
		}
	}
	return out, nil
}

// finished sets the finish_reason. We ask for no stop strings and no tools: anything but these two is a fault.
func finished(d delta, reason string) (delta, error) {
	switch reason {
	case "stop":
		d.finish = schema.FinishStop
	case "length", "limit":
		d.finish = schema.FinishLength
	default:
		return d, fmt.Errorf("%w: finish_reason %q", ErrReported, words(reason))
	}
	return d, nil
}

// message finds a server's words in the body of an error.
func message(body []byte) string {
	var v struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
	}
	if json.Unmarshal(body, &v) != nil {
		return string(body)
	}
	var inner struct {
		Message string `json:"message"`
	}
	var text string
	switch {
	case json.Unmarshal(v.Error, &inner) == nil && inner.Message != "":
		return inner.Message
	case json.Unmarshal(v.Error, &text) == nil && text != "":
		return text
	case v.Message != "":
		return v.Message
	case v.Detail != "":
		return v.Detail
	default:
		return string(body)
	}
}

// rawText is a JSON string with its bytes as they are: encoding/json would make U+FFFD of each half of a character that
// a server has split. A half surrogate pair becomes U+FFFD.
type rawText []byte

// UnmarshalJSON implements json.Unmarshaler. b is valid JSON.
func (t *rawText) UnmarshalJSON(b []byte) error {
	*t = nil
	if string(b) == "null" {
		return nil
	}
	if len(b) < 2 || b[0] != '"' {
		return fmt.Errorf("%w: text is %q", ErrProtocol, words(string(b)))
	}
	out := make([]byte, 0, len(b))
	for b = b[1 : len(b)-1]; len(b) > 0; {
		if b[0] != '\\' {
			out, b = append(out, b[0]), b[1:]
			continue
		}
		c := b[1]
		b = b[2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex(b)
			b = b[4:]
			if utf16.IsSurrogate(r) && len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
				if both := utf16.DecodeRune(r, hex(b[2:])); both != utf8.RuneError {
					r, b = both, b[6:]
				}
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
	}
	*t = out
	return nil
}

// hex reads four digits, which are there.
func hex(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		r <<= 4
		switch {
		case c <= '9':
			r |= rune(c - '0')
		case c <= 'F':
			r |= rune(c - 'A' + 10)
		default:
			r |= rune(c - 'a' + 10)
		}
	}
	return r
}
