package openai

import (
	"math"
	"strconv"

	"github.com/cadence-slo/cadence/schema"
)

// field is a key of the body that the dialect knows.
type field struct {
	bit uint64
	// refuse, if not empty, says why any value but a neutral one (null, false, 0, "", [], {}) is refused.
	refuse string
}

// completionLogprobs is the largest 'logprobs' of a completion, as at OpenAI.
const completionLogprobs = 5

// Both endpoints know these keys.
var sharedFields = []struct{ key, refuse string }{
	{"model", ""},
	{"max_tokens", ""},
	{"max_completion_tokens", ""},
	{"temperature", ""},
	{"top_p", ""},
	{"top_k", ""},
	{"min_p", ""},
	{"presence_penalty", ""},
	{"frequency_penalty", ""},
	{"repetition_penalty", ""},
	{"seed", ""},
	{"stop", ""},
	{"stream", ""},
	{"stream_options", ""},
	{"n", ""},
	{"best_of", ""},
	{"ignore_eos", ""},
	{"user", ""},
	{"response_format", ""},
	{"logit_bias", "biasing tokens is not supported"},
	{"min_tokens", "a least number of tokens is not supported; see 'ignore_eos'"},
	{"stop_token_ids", "only 'stop' strings are supported"},
	{"prompt_logprobs", "log probabilities of the prompt are not supported"},
	{"grammar", "it is not supported; use 'response_format'"},
	{"guided_json", "it is not supported; use 'response_format'"},
	{"guided_regex", "it is not supported; use 'response_format'"},
	{"guided_choice", "it is not supported; use 'response_format'"},
	{"guided_grammar", "it is not supported; use 'response_format'"},
	{"structured_outputs", "it is not supported; use 'response_format'"},
	{"use_beam_search", "only sampling and greedy decoding are supported"},
}

var chatFields = fieldTable([]struct{ key, refuse string }{
	{"messages", ""},
	{"tool_choice", ""},
	{"function_call", ""},
	{"modalities", ""},
	{"tools", "tool calls are not supported"},
	{"functions", "function calls are not supported"},
	{"logprobs", ""},
	{"top_logprobs", ""},
	{"audio", "only text is supported"},
	{"web_search_options", "web search is not supported"},
	{"continue_final_message", "continuing the last message is not supported"},
	{"chat_template", "the model's own chat template is used"},
})

var completionFields = fieldTable([]struct{ key, refuse string }{
	{"prompt", ""},
	{"logprobs", ""},
	{"echo", "echoing the prompt is not supported"},
	{"suffix", "inserting before a suffix is not supported"},
})

func fieldTable(own []struct{ key, refuse string }) map[string]field {
	t := make(map[string]field, len(sharedFields)+len(own))
	for _, list := range [][]struct{ key, refuse string }{sharedFields, own} {
		for _, f := range list {
			t[f.key] = field{bit: 1 << len(t), refuse: f.refuse}
		}
	}
	return t
}

// shared reads the value of a key that is not messages or prompt.
func (p *parser) shared(key string) (err *Error) {
	c := p.common
	s := &c.Sampling
	switch key {
	case "model":
		c.Model, err = p.text(key, 1, maxModelBytes)
	case "user":
		c.User, err = p.text(key, 0, maxUserBytes)
	case "max_tokens", "max_completion_tokens":
		err = p.maxTokens(key)
	case "temperature":
		s.Temperature, err = p.float(key, 0, 2, true)
	case "top_p":
		s.TopP, err = p.float(key, 0, 1, false)
	case "min_p":
		s.MinP, err = p.float(key, 0, 1, true)
	case "presence_penalty":
		s.PresencePenalty, err = p.float(key, -2, 2, true)
	case "frequency_penalty":
		s.FrequencyPenalty, err = p.float(key, -2, 2, true)
	case "repetition_penalty":
		s.RepetitionPenalty, err = p.float(key, 0, 2, false)
	case "top_k":
		s.TopK, err = p.topK(key)
	case "seed":
		var v int64
		v, err = p.integer(key, math.MinInt64, "a 64-bit integer", false)
		s.Seed, c.HasSeed = uint64(v), true
	case "stop":
		err = p.stop(key)
	case "stream":
		c.Stream, err = p.flag(key)
	case "ignore_eos":
		c.IgnoreEOS, err = p.flag(key)
	case "stream_options":
		err = p.streamOptions(key)
	case "n", "best_of":
		err = p.one(key)
	case "response_format":
		err = p.responseFormat(key)
	case "modalities":
		err = p.modalities(key)
	case "tool_choice", "function_call":
		err = p.toolChoice(key)
	case "logprobs":
		err = p.logprobs(key)
	case "top_logprobs":
		p.top, err = p.upTo(key, schema.MaxTopLogprobs)
	}
	return err
}

// text reads a string of least to most bytes.
func (p *parser) text(param string, least, most int) (string, *Error) {
	if p.peek() != kindString {
		return "", p.wrongType(param, "a string")
	}
	s, err := p.string()
	switch {
	case err != nil:
		return "", err
	case len(s) < least:
		return "", InvalidParameter(param, "it is empty")
	case len(s) > most:
		return "", InvalidParameter(param, "it has %d bytes; allowed are %d", len(s), most)
	}
	return s, nil
}

func (p *parser) flag(param string) (bool, *Error) {
	if p.peek() != kindBool {
		return false, p.wrongType(param, "a boolean")
	}
	return p.bool()
}

// integer reads a whole number ≥ least. One beyond 64 bits is clamped if clamp, and refused otherwise.
func (p *parser) integer(param string, least int64, want string, clamp bool) (int64, *Error) {
	if p.peek() != kindNumber {
		return 0, p.wrongType(param, want)
	}
	raw, err := p.number()
	if err != nil {
		return 0, err
	}
	v, exact := integer(raw)
	switch {
	case exact == fraction:
		return 0, InvalidParameter(param, "expected %s, got %s", want, clip(string(raw), maxQuoteBytes))
	case exact == clamped && !clamp, v < least:
		return 0, InvalidParameter(param, "%s is out of range; expected %s", clip(string(raw), maxQuoteBytes), want)
	}
	return v, nil
}

// float reads a number in [lo, hi], or in (lo, hi] unless closed. It never rounds a number above lo down to lo, which
// would turn a strict setting into "off".
func (p *parser) float(param string, lo, hi float64, closed bool) (float32, *Error) {
	want := "a number in [" + strconv.FormatFloat(lo, 'g', -1, 64) + ", " + strconv.FormatFloat(hi, 'g', -1, 64) + "]"
	if !closed {
		want = "a number greater than " + strconv.FormatFloat(lo, 'g', -1, 64) + ", up to " + strconv.FormatFloat(hi, 'g', -1, 64)
	}
	if p.peek() != kindNumber {
		return 0, p.wrongType(param, want)
	}
	raw, err := p.number()
	if err != nil {
		return 0, err
	}
	v, perr := strconv.ParseFloat(string(raw), 64)
	_, exact := integer(raw)
	tiny := v == 0 && exact == fraction // too small for a float64, but not 0
	if perr != nil || v < lo || v > hi || !closed && v <= lo && !(tiny && raw[0] != '-') {
		return 0, InvalidParameter(param, "%s is out of range; expected %s", clip(string(raw), maxQuoteBytes), want)
	}
	f := float32(v)
	if f == 0 && !closed {
		f = math.SmallestNonzeroFloat32
	}
	return f + 0, nil // + 0 turns -0 into 0
}

func (p *parser) maxTokens(param string) *Error {
	v, err := p.integer(param, 1, "an integer ≥ 1", true)
	if err != nil {
		return err
	}
	if other := p.maxTokensParam; other != "" && v != p.common.MaxTokens {
		return InvalidParameter(param, "it is %d, but '%s' is %d; give one of them", v, other, p.common.MaxTokens)
	}
	p.common.MaxTokens, p.maxTokensParam = v, param
	return nil
}

// topK reads an integer; -1 (vLLM's word for it) and 0 are off.
func (p *parser) topK(param string) (int32, *Error) {
	v, err := p.integer(param, -1, "an integer ≥ 0, or -1 for off", true)
	return int32(min(max(v, 0), math.MaxInt32)), err
}

func (p *parser) stop(param string) *Error {
	switch p.peek() {
	case kindString:
		s, err := p.text(param, 1, p.limits.StopBytes)
		p.common.Stop = []string{s}
		return err
	case kindArray:
		return p.array(func(i int) *Error {
			if i == p.limits.Stops {
				return InvalidParameter(param, "it has more than %d strings", p.limits.Stops)
			}
			s, err := p.text(path(param, i), 1, p.limits.StopBytes)
			p.common.Stop = append(p.common.Stop, s)
			return err
		})
	}
	return p.wrongType(param, "a string or an array of strings")
}

func (p *parser) streamOptions(param string) *Error {
	if p.peek() != kindObject {
		return p.wrongType(param, "an object")
	}
	seen := false
	return p.object(func(key string) (err *Error) {
		if key != "include_usage" {
			return p.skip()
		}
		if seen {
			return InvalidParameter(param+"."+key, "it is given twice")
		}
		seen = true
		if p.peek() == kindNull {
			return p.literal("null")
		}
		p.common.IncludeUsage, err = p.flag(param + "." + key)
		return err
	})
}

// one reads a number of choices.
func (p *parser) one(param string) *Error {
	v, err := p.integer(param, 1, "1", true)
	if err == nil && v != 1 {
		err = Unsupported(param, "only one choice per request is supported, and %d were asked for", v)
	}
	return err
}

func (p *parser) modalities(param string) *Error {
	if p.peek() != kindArray {
		return p.wrongType(param, "an array")
	}
	return p.array(func(i int) *Error {
		s, err := p.text(path(param, i), 1, p.limits.BodyBytes)
		if err == nil && s != "text" {
			err = Unsupported(param, "only 'text' is supported")
		}
		return err
	})
}

// toolChoice accepts only "none": without tools there is nothing to choose.
func (p *parser) toolChoice(param string) *Error {
	if p.peek() == kindString {
		s, err := p.string()
		if err != nil || s == "none" {
			return err
		}
	} else if err := p.skip(); err != nil {
		return err
	}
	return Unsupported(param, "tool calls are not supported; only 'none' is accepted")
}

// logprobs reads whether a chat wants log-probabilities, or how many alternatives a completion wants with them: 0 asks
// for those of the generated tokens alone, and false (not OpenAI's, but seen) for none.
func (p *parser) logprobs(param string) *Error {
	if p.chat {
		var err *Error
		p.wanted, err = p.flag(param)
		return err
	}
	if p.peek() == kindBool {
		v, err := p.bool()
		if err == nil && v {
			err = InvalidParameter(param, "expected an integer, got true")
		}
		return err
	}
	var err *Error
	p.top, err = p.upTo(param, completionLogprobs)
	p.wanted = true
	return err
}

// upTo reads a whole number in [0, most].
func (p *parser) upTo(param string, most int64) (int32, *Error) {
	want := "an integer in [0, " + strconv.FormatInt(most, 10) + "]"
	v, err := p.integer(param, 0, want, true)
	if err == nil && v > most {
		err = InvalidParameter(param, "%d is out of range; expected %s", v, want)
	}
	return int32(v), err
}
