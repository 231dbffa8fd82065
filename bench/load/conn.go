package load

import (
	"bufio"
	"errors"
	"net"
	"strconv"
	"syscall"
)

// conn is a connection with what is used again from one request to the next. One goroutine at a time owns it.
type conn struct {
	net.Conn
	raw  syscall.RawConn // nil if the connection has none
	r    *bufio.Reader
	out  []byte
	sse  sseParser
	body []byte // of an answer that is not a stream
	text []byte

	lastID []byte
}

// newConn takes a connection and the socket below it, which is the same where nothing is encrypted.
func newConn(c, socket net.Conn) *conn {
	n := &conn{Conn: c, r: bufio.NewReaderSize(c, 16<<10)}
	if s, ok := socket.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			n.raw = raw
		}
	}
	return n
}

// alive reports whether an idle connection is open and silent. A request is never repeated (it might run twice), so a
// connection that the server closed meanwhile must be noticed before.
func (n *conn) alive() bool {
	if n.raw == nil {
		return true
	}
	ok := false
	err := n.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ok = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && ok
}

// send writes a request in one piece.
func (n *conn) send(c *Client, r *Request) error {
	b := n.out[:0]
	if r.Method == "" {
		b = append(b, "POST"...)
	} else {
		b = append(b, r.Method...)
	}
	b = append(b, ' ')
	b = append(b, c.prefix...)
	b = append(b, r.Path...)
	b = append(b, c.fixed...)
	field := func(key, value string) {
		b = append(b, key...)
		b = append(b, ": "...)
		b = append(b, value...)
		b = append(b, "\r\n"...)
	}
	if r.ClientID != "" {
		field("X-Request-Id", r.ClientID)
	}
	if r.LastEventID != "" {
		field("Last-Event-ID", r.LastEventID)
	}
	for key, value := range r.Header {
		field(key, value)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(r.Body)), 10)
	b = append(b, "\r\n\r\n"...)
	b = append(b, r.Body...)
	n.out = b
	_, err := n.Write(b)
	return err
}
