package openai

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// TokenLogprob is a token with its log-probability.
type TokenLogprob struct {
	// Token is the token's bytes; a character may spread over several tokens.
	Token   []byte
	Logprob float32
}

// Logprob is what is known of one token of an answer.
type Logprob struct {
	TokenLogprob
	// Top are the most probable tokens in its place, by falling probability.
	Top []TokenLogprob
	// Offset is where the token begins in the text of all tokens, in code points. Only completions show it.
	Offset int
}

// appendChat appends the value of logprobs of a chat's choice.
func appendChat(dst []byte, tokens []Logprob) []byte {
	dst = append(dst, `{"content":[`...)
	for i := range tokens {
		t := &tokens[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = t.appendOpen(dst)
		dst = append(dst, `,"top_logprobs":[`...)
		for j := range t.Top {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(t.Top[j].appendOpen(dst), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendOpen appends a token as chats show it, without the closing brace.
func (t *TokenLogprob) appendOpen(dst []byte) []byte {
	dst = append(dst, `{"token":`...)
	dst = t.appendToken(dst, "")
	dst = append(dst, `,"logprob":`...)
	dst = appendLogprob(dst, t.Logprob)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range t.Token {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

// appendToken appends a token's text. Bytes that are no characters are written as OpenAI does: all of them as \xNN, after
// a prefix.
func (t *TokenLogprob) appendToken(dst []byte, prefix string) []byte {
	if utf8.Valid(t.Token) {
		return AppendString(dst, string(t.Token))
	}
	dst = append(dst, '"')
	dst = append(dst, prefix...)
	for _, b := range t.Token {
		dst = append(dst, '\\', '\\', 'x', hexDigits[b>>4], hexDigits[b&0xf])
	}
	return append(dst, '"')
}

// appendCompletion appends the value of logprobs of a completion's choice.
func appendCompletion(dst []byte, tokens []Logprob) []byte {
	const prefix = "bytes:"
	list := func(name string, one func(*Logprob)) {
		dst = append(dst, name...)
		for i := range tokens {
			if i > 0 {
				dst = append(dst, ',')
			}
			one(&tokens[i])
		}
		dst = append(dst, ']')
	}
	list(`{"tokens":[`, func(t *Logprob) { dst = t.appendToken(dst, prefix) })
	list(`,"token_logprobs":[`, func(t *Logprob) { dst = appendLogprob(dst, t.Logprob) })
	list(`,"top_logprobs":[`, func(t *Logprob) {
		// The generated token belongs to them, and no key comes twice, even if two tokens have the same text.
		dst = append(dst, '{')
		for i := range t.Top {
			if !has(t.Top[:i], t.Top[i].Token) {
				dst = t.Top[i].appendPair(dst, i > 0, prefix)
			}
		}
		if !has(t.Top, t.Token) {
			dst = t.appendPair(dst, len(t.Top) > 0, prefix)
		}
		dst = append(dst, '}')
	})
	list(`,"text_offset":[`, func(t *Logprob) { dst = strconv.AppendInt(dst, int64(t.Offset), 10) })
	return append(dst, '}')
}

func (t *TokenLogprob) appendPair(dst []byte, comma bool, prefix string) []byte {
	if comma {
		dst = append(dst, ',')
	}
	dst = append(t.appendToken(dst, prefix), ':')
	return appendLogprob(dst, t.Logprob)
}

func has(tokens []TokenLogprob, token []byte) bool {
	for i := range tokens {
		if bytes.Equal(tokens[i].Token, token) {
			return true
		}
	}
	return false
}

func appendLogprob(dst []byte, p float32) []byte {
	return strconv.AppendFloat(dst, float64(p+0), 'g', -1, 32) // + 0 turns -0 into 0
}

// appendLogprobs appends the field of a choice, with the comma before it.
func appendLogprobs(dst []byte, chat bool, tokens []Logprob) []byte {
	dst = append(dst, `,"logprobs":`...)
	if chat {
		return appendChat(dst, tokens)
	}
	return appendCompletion(dst, tokens)
}
