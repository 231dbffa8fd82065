package mock

import (
	"errors"
	"fmt"
	"strings"
)

// ErrToken is returned for an id outside the vocabulary.
var ErrToken = errors.New("mock: token is not in the vocabulary")

// The vocabulary: every byte, three control tokens, and every word of two syllables of a consonant and a vowel with a
// space before it (" kato"). Only words and control tokens are generated, so that each piece is text by itself.
const (
	EndOfText int32 = 256 + iota // <|endoftext|>
	TurnStart                    // <|im_start|>
	TurnEnd                      // <|im_end|>, with which an answer ends
	firstWord

	consonants = "bcdfghjklmnpqrstvwxyz"
	vowels     = "aeiou"
	syllables  = int32(len(consonants) * len(vowels))
	words      = syllables * syllables

	// Vocab is the number of token ids.
	Vocab = int(firstWord + words)
)

var control = [...]string{EndOfText - 256: "<|endoftext|>", TurnStart - 256: "<|im_start|>", TurnEnd - 256: "<|im_end|>"}

// ChatTemplate is the chat template (Jinja, ChatML) that an ingress renders messages with.
const ChatTemplate = `{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// Tokenizer is the mock's: a word of the vocabulary is one token, any other byte one of its own, so that the pieces of
// a text's tokens add up to the text. Safe for concurrent use.
type Tokenizer struct{}

// Tokenize returns the tokens of text. With parseSpecial, the text of a control token becomes that token. addSpecial
// adds nothing: the vocabulary has no token for a beginning. It does not err.
func (Tokenizer) Tokenize(text string, _, parseSpecial bool) ([]int32, error) {
	ids := make([]int32, 0, len(text)/2+1)
next:
	for len(text) > 0 {
		if parseSpecial && text[0] == '<' {
			for i, c := range control {
				if strings.HasPrefix(text, c) {
					ids, text = append(ids, EndOfText+int32(i)), text[len(c):]
					continue next
				}
			}
		}
		if id, ok := word(text); ok {
			ids, text = append(ids, id), text[5:]
		} else {
			ids, text = append(ids, int32(text[0])), text[1:]
		}
	}
	return ids, nil
}

// word returns the token that text begins with, if that is a word.
func word(text string) (int32, bool) {
	if len(text) < 5 || text[0] != ' ' {
		return 0, false
	}
	a, b := syllable(text[1], text[2]), syllable(text[3], text[4])
	return firstWord + a*syllables + b, a >= 0 && b >= 0
}

// syllable returns the number of a syllable, or one so negative that it stays negative.
func syllable(c, v byte) int32 {
	i, j := strings.IndexByte(consonants, c), strings.IndexByte(vowels, v)
	if i < 0 || j < 0 {
		return -1
	}
	return int32(i*len(vowels) + j)
}

// AppendPiece appends a token's bytes; those of a control token only if special. It returns ErrToken.
func (Tokenizer) AppendPiece(dst []byte, token int32, special bool) ([]byte, error) {
	switch {
	case token < 0 || int(token) >= Vocab:
		return dst, fmt.Errorf("%w: %d", ErrToken, token)
	case token < EndOfText:
		return append(dst, byte(token)), nil
	case token < firstWord:
		if special {
			dst = append(dst, control[token-EndOfText]...)
		}
		return dst, nil
	}
	w := token - firstWord
	dst = append(dst, ' ')
	for _, s := range [2]int32{w / syllables, w % syllables} {
		dst = append(dst, consonants[s/int32(len(vowels))], vowels[s%int32(len(vowels))])
	}
	return dst, nil
}

// IsEOG reports whether an answer ends with this token.
func (Tokenizer) IsEOG(token int32) bool { return token == EndOfText || token == TurnEnd }
