package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// errProtocol is what a response that is not HTTP/1.1 gets.
var errProtocol = errors.New("load: malformed HTTP response")

// head is what this package reads of a response's header.
type head struct {
	status     int
	length     int64 // of the body; -1: until the connection ends
	chunked    bool
	close      bool // the connection ends with this response
	sse        bool
	retryAfter time.Duration
	id         string // value of the id header
}

// readHead reads a response's header, passing over interim (1xx) ones. idHeader is lower case.
func readHead(r *bufio.Reader, idHeader string) (head, error) {
	for {
		h := head{length: -1}
		line, err := readLine(r)
		if err != nil {
			return h, err
		}
		proto, rest, ok := bytes.Cut(line, []byte{' '})
		if !ok || !bytes.HasPrefix(proto, []byte("HTTP/1.")) || len(rest) < 3 {
			return h, fmt.Errorf("%w: status line %q", errProtocol, line)
		}
		h.close = string(proto) == "HTTP/1.0"
		if h.status, err = strconv.Atoi(string(rest[:3])); err != nil || h.status < 100 {
			return h, fmt.Errorf("%w: status line %q", errProtocol, line)
		}
		if err := h.readFields(r, idHeader); err != nil {
			return h, err
		}
		if h.status == 204 || h.status == 304 {
			h.length, h.chunked = 0, false
		}
		if h.status >= 200 {
			return h, nil
		}
	}
}

func (h *head) readFields(r *bufio.Reader, idHeader string) error {
	for {
		line, err := readLine(r)
		if err != nil {
			return noEOF(err)
		}
		if len(line) == 0 {
			return nil
		}
		key, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			return fmt.Errorf("%w: header line %q", errProtocol, line)
		}
		value = bytes.TrimSpace(value)
		switch {
		case foldEqual(key, "content-length"):
			if h.length, err = strconv.ParseInt(string(value), 10, 64); err != nil || h.length < 0 {
				return fmt.Errorf("%w: content-length %q", errProtocol, value)
			}
		case foldEqual(key, "transfer-encoding"):
			h.chunked = foldEqual(value, "chunked")
		case foldEqual(key, "connection"):
			h.close = foldEqual(value, "close")
		case foldEqual(key, "content-type"):
			const sse = "text/event-stream"
			h.sse = len(value) >= len(sse) && foldEqual(value[:len(sse)], sse)
		case foldEqual(key, "retry-after"):
			if s, err := strconv.Atoi(string(value)); err == nil && s >= 0 && s < math.MaxInt32 {
				h.retryAfter = time.Duration(s) * time.Second
			}
		case foldEqual(key, idHeader):
			h.id = string(value)
		}
	}
}

// readBody hands the body to feed piece by piece, as it comes; a piece is valid during the call. It stops with
// errStopped when feed returns false. io.ErrUnexpectedEOF is a body that was cut off.
func (h *head) readBody(r *bufio.Reader, feed func([]byte) bool) error {
	if !h.chunked {
		n := h.length
		if n < 0 {
			n = math.MaxInt64
		}
		err := readN(r, n, feed)
		if h.length < 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // the end of the connection is the end of this body
		}
		return err
	}
	for {
		line, err := readLine(r)
		if err != nil {
			return noEOF(err)
		}
		size, _, _ := bytes.Cut(line, []byte{';'})
		n, err := strconv.ParseInt(string(bytes.TrimSpace(size)), 16, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%w: chunk size %q", errProtocol, line)
		}
		if n == 0 {
			for { // trailer
				line, err := readLine(r)
				if err != nil {
					return noEOF(err)
				}
				if len(line) == 0 {
					return nil
				}
			}
		}
		if err := readN(r, n, feed); err != nil {
			return err
		}
		if line, err = readLine(r); err != nil {
			return noEOF(err)
		}
		if len(line) != 0 {
			return fmt.Errorf("%w: %q after a chunk", errProtocol, line)
		}
	}
}

// errStopped is returned when the reader of a body wanted no more.
var errStopped = errors.New("load: stopped reading")

func readN(r *bufio.Reader, n int64, feed func([]byte) bool) error {
	for n > 0 {
		if r.Buffered() == 0 {
			if _, err := r.Peek(1); err != nil {
				return noEOF(err)
			}
		}
		piece, _ := r.Peek(int(min(n, int64(r.Buffered()))))
		ok := feed(piece)
		n -= int64(len(piece))
		if _, err := r.Discard(len(piece)); err != nil {
			return noEOF(err)
		}
		if !ok {
			return errStopped
		}
	}
	return nil
}

// readLine returns a line without its end; it is valid until the next read. io.EOF is an end before its first byte.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("%w: line longer than %d bytes", errProtocol, r.Size())
		}
		if len(line) > 0 {
			err = noEOF(err)
		}
		return nil, err
	}
	line = line[:len(line)-1]
	return bytes.TrimSuffix(line, []byte{'\r'}), nil
}

// noEOF turns an ordinary end of the connection into one that was not expected.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// foldEqual reports whether b is the ASCII string s, which is lower case, whatever the case of b.
func foldEqual(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range b {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != s[i] {
			return false
		}
	}
	return true
}
