package schema

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"time"
)

// RequestID names a request: a UUIDv7 in canonical lower-case text, made by the ingress. Its order is arrival order
// (to the millisecond). A client's own X-Request-Id is never used as one.
type RequestID string

// WorkerID names one life of a worker process: a restarted worker has another.
type WorkerID string

// IngressID names one life of an ingress process.
type IngressID string

// NewID returns a UUIDv7 (RFC 9562) for the given time with randomness read from r. It errs only if r does.
func NewID(now time.Time, r io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(r, b[6:]); err != nil {
		return "", fmt.Errorf("schema: reading randomness for an id: %w", err)
	}
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint16(b[0:], uint16(ms>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(ms))
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var t [36]byte
	hex.Encode(t[0:8], b[0:4])
	hex.Encode(t[9:13], b[4:6])
	hex.Encode(t[14:18], b[6:8])
	hex.Encode(t[19:23], b[8:10])
	hex.Encode(t[24:36], b[10:16])
	t[8], t[13], t[18], t[23] = '-', '-', '-', '-'
	return string(t[:]), nil
}

// Valid reports whether id is canonical UUID text of any version. Request ids become subject tokens, so that nothing
// else may pass.
func (id RequestID) Valid() bool {
	if len(id) != 36 {
		return false
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// ValidName reports whether s can be one token of a subject: 1 to 64 characters of [A-Za-z0-9_-]. Pools, tenants,
// workers and ingresses are named so.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
