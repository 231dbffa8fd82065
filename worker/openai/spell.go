package openai

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// speller turns what a server says, text and maybe token ids, into token ids that spell that text. One goroutine owns it.
type speller struct {
	tokenizer Tokenizer
	eog       bool // control tokens that end an answer count as tokens of it

	text   []byte  // said, not yet spelled
	ids    []int32 // told, whose text was not yet said
	piece  []byte  // of ids
	buffer []byte
}

// add takes the next text and the ids that came with it, and appends to dst the ids that are certain.
//
// A server tells a token's text later than its id while the text ends inside of a character. Some then tell the last id
// only: the text of ids is behind, and what was said is tokenized again.
func (s *speller) add(dst []int32, text []byte, ids []int32) ([]int32, error) {
	s.text = append(s.text, text...)
	for _, id := range ids {
		if !s.eog && s.tokenizer.IsEOG(id) {
			continue // the end is told by the finish_reason
		}
		var err error
		if s.piece, err = s.tokenizer.AppendPiece(s.piece, id, false); err != nil {
			return dst, fmt.Errorf("%w: token %d: %w", ErrProtocol, id, err)
		}
		s.ids = append(s.ids, id)
	}
	switch {
	case len(s.ids) == 0:
		return s.tokenize(dst, false)
	case bytes.Equal(s.text, s.piece):
		dst = append(dst, s.ids...)
		s.forget()
		return dst, nil
	case bytes.HasPrefix(s.piece, s.text): // the rest of the text comes with a later token
		return dst, nil
	default:
		s.ids, s.piece = s.ids[:0], s.piece[:0]
		return s.tokenize(dst, false)
	}
}

// end appends what is left when the server has said all. Ids whose text never came are believed: it ended inside of a
// character.
func (s *speller) end(dst []int32) ([]int32, error) {
	if len(s.ids) > 0 {
		dst = append(dst, s.ids...)
		s.forget()
		return dst, nil
	}
	return s.tokenize(dst, true)
}

func (s *speller) forget() { s.text, s.ids, s.piece = s.text[:0], s.ids[:0], s.piece[:0] }

// tokenize spells the text up to a character that is not complete; all of it if that is the end, where what is not UTF-8
// becomes U+FFFD.
func (s *speller) tokenize(dst []int32, end bool) ([]int32, error) {
	n := len(s.text) - incomplete(s.text)
	said := s.text[:n]
	if end {
		n, said = len(s.text), bytes.ToValidUTF8(s.text, []byte("\uFFFD"))
	}
	if n == 0 {
		return dst, nil
	}
	ids, err := s.tokenizer.Tokenize(string(said), false, false)
	if err != nil {
		return dst, fmt.Errorf("%w: %q: %w", ErrText, said, err)
	}
	s.buffer = s.buffer[:0]
	for _, id := range ids {
		if s.buffer, err = s.tokenizer.AppendPiece(s.buffer, id, false); err != nil {
			return dst, fmt.Errorf("%w: %q: %w", ErrText, said, err)
		}
	}
	if !bytes.Equal(s.buffer, said) {
		return dst, fmt.Errorf("%w: %q becomes %q", ErrText, said, s.buffer)
	}
	s.text = append(s.text[:0], s.text[n:]...)
	return append(dst, ids...), nil
}

// incomplete returns how many bytes at the end of text begin a character that more bytes could complete.
func incomplete(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
