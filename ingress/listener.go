package ingress

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// listener bounds the number of connections, and makes each of them a conn.
type listener struct {
	net.Listener
	tls          *tls.Config // nil: plain
	limit        int
	writeTimeout time.Duration
	rejection    []byte // a complete response for connections beyond the limit

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed chan struct{}
	once   sync.Once
}

func newListener(ln net.Listener, tls *tls.Config, limit int, writeTimeout time.Duration, rejection []byte) *listener {
	return &listener{Listener: ln, tls: tls, limit: limit, writeTimeout: writeTimeout, rejection: rejection,
		conns: map[*conn]struct{}{}, closed: make(chan struct{})}
}

// Accept returns the next connection within the limit. Running out of files or memory does not end it: the server
// would stop listening.
func (l *listener) Accept() (net.Conn, error) {
	for wait := 5 * time.Millisecond; ; {
		raw, err := l.Listener.Accept()
		if err != nil {
			if !scarce(err) {
				return nil, err
			}
			select {
			case <-l.closed:
				return nil, net.ErrClosed
			case <-time.After(wait):
			}
			wait = min(2*wait, time.Second)
			continue
		}
		wait = 5 * time.Millisecond
		if c, ok := l.add(raw); ok {
			return c, nil
		} else if c != nil {
			go c.reject(l.rejection)
		}
	}
}

// scarce reports whether an error of accept passes when others close something.
func scarce(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// rejecting is how many connections beyond the limit are told so at once; more are just closed.
const rejecting = 128

// add makes a connection of raw. It is not within the limit if !ok; then, if not nil, it is to be rejected.
func (l *listener) add(raw net.Conn) (c *conn, ok bool) {
	c = &conn{Conn: raw, ln: l, timeout: l.writeTimeout}
	if sc, is := raw.(syscall.Conn); is {
		c.raw, _ = sc.SyscallConn() // without it the connection is not watched
	}
	if l.tls != nil {
		c.Conn = tls.Server(raw, l.tls)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.conns)
	if n >= l.limit+rejecting {
		_ = raw.Close()
		return nil, false
	}
	l.conns[c] = struct{}{}
	return c, n < l.limit
}

// count is the number of connections.
func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Close stops accepting.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// sever closes every connection that is still there.
func (l *listener) sever() {
	l.mu.Lock()
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.linger.Store(false)
		_ = c.Close()
	}
}

// conn is a client's connection. Its goroutine owns it; gone and Close may be called by others.
type conn struct {
	net.Conn // TLS, if any, included
	ln       *listener
	raw      syscall.RawConn // of the socket; nil: unknown
	timeout  time.Duration
	deadline time.Time // of writes, as last set
	linger   atomic.Bool
	closing  sync.Once
}

// Write bounds how long one write may be stuck. The deadline is moved only when half of it is used up, to save the
// timer's work.
func (c *conn) Write(p []byte) (int, error) {
	if now := time.Now(); c.deadline.Sub(now) < c.timeout/2 {
		c.deadline = now.Add(c.timeout)
		if err := c.SetWriteDeadline(c.deadline); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// SetDeadline forgets the deadline of writes that Write has set.
func (c *conn) SetDeadline(t time.Time) error {
	c.deadline = time.Time{}
	return c.Conn.SetDeadline(t)
}

// How long, and for how many bytes, Close waits for a client that is still sending.
const (
	lingerTime  = time.Second
	lingerBytes = 64 << 20
)

// Close closes the connection. If the client may still be sending, the response would be lost with the reset that its
// bytes cause: then it is only closed for writing at first, and what comes is read for a while.
func (c *conn) Close() (err error) {
	c.closing.Do(func() {
		c.ln.mu.Lock()
		delete(c.ln.conns, c)
		c.ln.mu.Unlock()
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger.Load() && half.CloseWrite() == nil {
			_ = c.SetReadDeadline(time.Now().Add(lingerTime))
			_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, lingerBytes))
		}
		err = c.Conn.Close()
	})
	return err
}

// reject answers a connection beyond the limit without reading from it.
func (c *conn) reject(response []byte) {
	c.linger.Store(true)
	_ = c.SetReadDeadline(time.Now().Add(lingerTime)) // of a TLS handshake
	_, _ = c.Write(response)
	_ = c.Close()
}

// gone reports whether the client has closed the connection, or its half of it: what it sends and does not read
// is no sign of that, so that the kernel is asked.
func (c *conn) gone() bool { return c.raw != nil && hungUp(c.raw) }
