package ingress

import (
	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
)

// Speller tells the bytes of tokens. Any number of goroutines use it at once.
type Speller interface {
	// AppendPiece appends a token's bytes; with special also those that name a control token, which has no text.
	AppendPiece(dst []byte, token int32, special bool) ([]byte, error)
}

// tokenBytes is what a token with its log-probability counts for against a stream's bounds, and each alternative.
const tokenBytes = 16

// said is what one event of an answer says.
type said struct {
	text   string
	tokens *tokens // nil: nobody wants to know
}

// tokens are those of an event with their log-probabilities, which may be fewer.
type tokens struct {
	ids      schema.Tokens
	logprobs *schema.Logprobs
	offset   int // of the first one in the answer, in code points
}

// bytes is what the event counts for against a stream's bounds.
func (t *said) bytes() int {
	n := len(t.text) + eventBytes
	if t.tokens != nil {
		n += tokenBytes * (len(t.tokens.ids) + len(t.tokens.logprobs.Top))
	}
	return n
}

// measure tells where the tokens of a completion's event begin, and drops what nobody asked for. Events are measured in
// order. The caller holds a.mu.
func (a *answer) measure(t *said) {
	if a.speller == nil {
		t.tokens = nil
	}
	if t.tokens == nil || a.kind != schema.KindCompletion {
		return
	}
	t.tokens.offset = a.points
	for _, id := range t.tokens.ids {
		a.points += begun(a.spell(id, false))
	}
}

// begun counts the code points that begin in a piece.
func begun(piece []byte) (n int) {
	for _, b := range piece {
		if b&0xC0 != 0x80 {
			n++
		}
	}
	return n
}

// spell returns a token's bytes, none of a token that the model here does not have. It needs no lock.
func (a *answer) spell(id int32, special bool) []byte {
	piece, err := a.speller.AppendPiece(nil, id, special)
	if err != nil {
		return nil
	}
	return piece
}

// appendLogprobs appends an event's tokens as a client sees them. It needs no lock.
func (a *answer) appendLogprobs(dst []openai.Logprob, t *tokens) []openai.Logprob {
	l, n, points := t.logprobs, t.logprobs.N(), t.offset
	for i, p := range l.Chosen {
		one := openai.Logprob{TokenLogprob: openai.TokenLogprob{Token: a.spell(t.ids[i], true), Logprob: p}, Offset: points}
		piece := a.spell(t.ids[i], false)
		if len(piece) > 0 && piece[0]&0xC0 == 0x80 && points > 0 {
			one.Offset-- // it goes on with a character
		}
		points += begun(piece)
		for j := i * n; j < (i+1)*n; j++ {
			one.Top = append(one.Top, openai.TokenLogprob{Token: a.spell(l.Top[j], true), Logprob: l.TopLogprobs[j]})
		}
		dst = append(dst, one)
	}
	return dst
}
