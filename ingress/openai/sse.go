package openai

import (
	"errors"
	"strconv"
	"strings"
)

// Fixed events. Each is complete, its blank line included.
const (
	// Done ends a stream whose answer is complete. It has no id: there is nothing after it to resume from.
	Done = "data: [DONE]\n\n"
	// PingComment keeps proxies from closing a silent stream; clients skip it.
	PingComment = ": ping\n\n"
)

// ErrEventID is returned for a Last-Event-ID that this dialect did not write.
var ErrEventID = errors.New("openai: malformed event id")

// maxEventIDBytes is more than any id that AppendEventID makes for a UUID.
const maxEventIDBytes = 128

// AppendEventID appends "<request>/<n>", the id of a stream's n-th event (from 0).
func AppendEventID(dst []byte, request string, n int64) []byte {
	dst = append(dst, request...)
	dst = append(dst, '/')
	return strconv.AppendInt(dst, n, 10)
}

// ParseEventID is the inverse of AppendEventID, for the header Last-Event-ID: the client has seen event n of the
// request and those before it. request has only letters, digits and '-', so that it is safe in a subject or a log; it
// need not exist. Everything that AppendEventID would not write for such a request is ErrEventID.
func ParseEventID(id string) (request string, n int64, err error) {
	request, digits, found := strings.Cut(id, "/")
	if !found || len(id) > maxEventIDBytes || request == "" || digits == "" || len(digits) > 1 && digits[0] == '0' {
		return "", 0, ErrEventID
	}
	for i := 0; i < len(request); i++ {
		switch c := request[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-':
		default:
			return "", 0, ErrEventID
		}
	}
	u, perr := strconv.ParseUint(digits, 10, 63)
	if perr != nil {
		return "", 0, ErrEventID
	}
	return request, int64(u), nil
}
