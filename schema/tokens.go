package schema

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Tokens is a sequence of token ids in [0, 2³¹). On the wire it is base64 (standard alphabet, no padding) of
// concatenated unsigned varints, at most four characters an id for the vocabularies of today. There is one text for a
// sequence: a longer varint than needed, stray bits and line breaks are refused. Nil and empty are the same sequence.
type Tokens []int32

// ErrTokens is returned for a token sequence that cannot be decoded or holds a negative id.
var ErrTokens = errors.New("schema: malformed token sequence")

// tokenText is base64 that refuses bits beyond the last byte.
var tokenText = base64.RawStdEncoding.Strict()

// AppendText implements encoding.TextAppender. It returns ErrTokens for a negative id.
func (t Tokens) AppendText(dst []byte) ([]byte, error) {
	var buf [256]byte // of varints; whole groups of three bytes leave it as they come
	raw := buf[:0]
	for _, id := range t {
		if id < 0 {
			return nil, fmt.Errorf("%w: id %d", ErrTokens, id)
		}
		raw = binary.AppendUvarint(raw, uint64(id))
		if len(raw) >= len(buf)-binary.MaxVarintLen32 {
			whole := len(raw) / 3 * 3
			dst = tokenText.AppendEncode(dst, raw[:whole])
			raw = append(buf[:0], raw[whole:]...)
		}
	}
	return tokenText.AppendEncode(dst, raw), nil
}

// MarshalText implements encoding.TextMarshaler.
func (t Tokens) MarshalText() ([]byte, error) { return t.AppendText(make([]byte, 0, 4*len(t))) }

// UnmarshalText implements encoding.TextUnmarshaler. The receiver never aliases text, and takes memory in proportion
// to it. It returns ErrTokens, and leaves the receiver as it was, for what AppendText does not write.
func (t *Tokens) UnmarshalText(text []byte) error {
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 { // the decoder would skip them
		return fmt.Errorf("%w: line break", ErrTokens)
	}
	var buf [64]byte // enough for the few tokens of a chunk
	raw, err := tokenText.AppendDecode(buf[:0], text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTokens, err)
	}
	count := 0
	for _, b := range raw {
		if b < 0x80 {
			count++
		}
	}
	var ids Tokens
	if len(raw) > 0 {
		ids = make(Tokens, 0, count)
	}
	var v uint64
	var shift uint
	for _, b := range raw {
		v |= uint64(b&0x7f) << shift
		if b >= 0x80 {
			if shift += 7; shift > 28 {
				return fmt.Errorf("%w: id %d is too large", ErrTokens, len(ids))
			}
			continue
		}
		if v > math.MaxInt32 || (b == 0 && shift > 0) {
			return fmt.Errorf("%w: id %d is too large or written longer than needed", ErrTokens, len(ids))
		}
		ids = append(ids, int32(v))
		v, shift = 0, 0
	}
	if shift > 0 {
		return fmt.Errorf("%w: cut off after %d ids", ErrTokens, len(ids))
	}
	*t = ids
	return nil
}
