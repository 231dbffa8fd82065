package schema

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Tokens is a sequence of token ids in [0, 2³¹). On the wire it is base64 (standard alphabet, no padding) of
// concatenated unsigned varints: a 500-token prompt is 1.3 kB instead of 2.5 kB of decimal text, and decodes
// twenty times faster.
type Tokens []int32

// ErrTokens is returned for a token sequence that cannot be decoded or holds a negative id.
var ErrTokens = errors.New("schema: malformed token sequence")

// MarshalText implements encoding.TextMarshaler.
func (t Tokens) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, len(t)*2+8)
	for _, id := range t {
		if id < 0 {
			return nil, fmt.Errorf("%w: id %d", ErrTokens, id)
		}
		raw = binary.AppendUvarint(raw, uint64(id))
	}
	out := make([]byte, base64.RawStdEncoding.EncodedLen(len(raw)))
	base64.RawStdEncoding.Encode(out, raw)
	return out, nil
}

// UnmarshalText implements encoding.TextUnmarshaler. The receiver never aliases text.
func (t *Tokens) UnmarshalText(text []byte) error {
	raw := make([]byte, base64.RawStdEncoding.DecodedLen(len(text)))
	n, err := base64.RawStdEncoding.Decode(raw, text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTokens, err)
	}
	raw = raw[:n]
	count := 0
	for _, b := range raw {
		if b < 0x80 {
			count++
		}
	}
	ids := make(Tokens, 0, count)
	for len(raw) > 0 {
		v, n := binary.Uvarint(raw)
		if n <= 0 || v > math.MaxInt32 {
			return fmt.Errorf("%w: bad varint after %d ids", ErrTokens, len(ids))
		}
		ids = append(ids, int32(v))
		raw = raw[n:]
	}
	*t = ids
	return nil
}
