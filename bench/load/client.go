package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// ErrConfig is returned for a configuration that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("load: invalid configuration")

// ClientConfig says how to reach a server and what to keep of its answers.
type ClientConfig struct {
	// URL of the server without /v1: http:// or https://host:port, or with a path in front of every request's.
	URL string
	// APIKey is sent as a bearer token; empty sends none.
	APIKey string
	// Timeout of one request, from the moment it is sent; > 0.
	Timeout time.Duration
	// TLS is of https; nil trusts the system's certificates.
	TLS *tls.Config
	// IDHeader is the response header with the server's own request id.
	IDHeader string
	// MaxIdle bounds the connections that are kept for later requests; ≥ 0.
	MaxIdle int
	// KeepText and KeepEventIDs keep the text and every event's id in the Record.
	KeepText, KeepEventIDs bool
}

// DefaultClientConfig is a configuration for Cadence's ingress; its URL is empty.
func DefaultClientConfig() ClientConfig {
	return ClientConfig{Timeout: 2 * time.Minute, IDHeader: "X-Cadence-Request-Id", MaxIdle: 4096}
}

// Validate returns ErrConfig for the first key that is outside its range.
func (c *ClientConfig) Validate() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%w: url is %q, want http://host:port or https://host:port", ErrConfig, c.URL)
	case c.Timeout <= 0:
		return fmt.Errorf("%w: timeout is %v, want more than 0", ErrConfig, c.Timeout)
	case c.MaxIdle < 0:
		return fmt.Errorf("%w: max_idle is %d, want 0 or more", ErrConfig, c.MaxIdle)
	}
	return nil
}

// Request is one call. It is not changed and may be sent again.
type Request struct {
	// Method is POST if empty.
	Method string
	// Path is /v1/chat/completions or the like.
	Path string
	// Body is JSON, whole.
	Body []byte
	// ClientID is sent as X-Request-Id if not empty.
	ClientID string
	// Header holds further header fields.
	Header map[string]string
	// LastEventID resumes a stream behind this event.
	LastEventID string
	// DropAfterEvents closes the connection once so many events with data came; 0 is never.
	DropAfterEvents int
	// DropAfter closes the connection so long after the request was sent; 0 is never.
	DropAfter time.Duration
}

// Client sends requests to one server. It is safe for concurrent use; Close it when no request is outstanding.
type Client struct {
	cfg      ClientConfig
	addr     string
	prefix   string // of every path
	fixed    string // header fields that every request has
	idHeader string
	dialer   net.Dialer
	tls      *tls.Config // nil: plain

	mu   sync.Mutex
	idle []*conn // the last used is the first to be used again
}

// NewClient returns a client, or ErrConfig. It opens no connection yet.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: url: %w", ErrConfig, err)
	}
	c := &Client{cfg: cfg, addr: u.Host, prefix: strings.TrimSuffix(u.Path, "/"), idHeader: strings.ToLower(cfg.IDHeader),
		dialer: net.Dialer{KeepAlive: -1}}
	if u.Port() == "" {
		c.addr = net.JoinHostPort(u.Hostname(), u.Scheme)
	}
	if u.Scheme == "https" {
		c.tls = cfg.TLS.Clone()
		if c.tls == nil {
			c.tls = &tls.Config{}
		}
		if c.tls.ServerName == "" {
			c.tls.ServerName = u.Hostname()
		}
	}
	c.fixed = " HTTP/1.1\r\nHost: " + u.Host + "\r\nContent-Type: application/json\r\n"
	if cfg.APIKey != "" {
		c.fixed += "Authorization: Bearer " + cfg.APIKey + "\r\n"
	}
	return c, nil
}

// Close closes the idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.idle {
		n.Close() // an idle connection has nothing to lose
	}
	c.idle = nil
}

// Do sends a request now and reads its answer to the end. It never returns nil; the record says what went wrong. The
// end of ctx closes the connection.
func (c *Client) Do(ctx context.Context, r *Request) *Record {
	return c.do(ctx, r, time.Now(), &Record{})
}

// do counts from the intended arrival, which is not after now.
func (c *Client) do(ctx context.Context, r *Request, intended time.Time, rec *Record) *Record {
	rec.ClientID, rec.TTFB, rec.TTFT, rec.E2E = r.ClientID, -1, -1, -1
	call := call{c: c, req: r, rec: rec, intended: intended}
	begin := time.Now()
	rec.Lag = begin.Sub(intended)
	deadline := begin.Add(c.cfg.Timeout)
	if r.DropAfter > 0 && r.DropAfter < c.cfg.Timeout {
		deadline = begin.Add(r.DropAfter)
		call.dropTimed = true
	}
	n, err := c.conn(ctx, deadline)
	if err == nil {
		err = call.exchange(ctx, n)
		if err == nil && call.reusable {
			c.put(n)
		} else {
			n.Close() // the answer, or the lack of it, is known already
		}
	}
	rec.E2E = cmp.Or(call.end, time.Since(intended))
	call.settle(ctx, err)
	return rec
}

// conn returns an idle connection that the server has not closed, or a new one, with its deadline set.
func (c *Client) conn(ctx context.Context, deadline time.Time) (*conn, error) {
	for {
		c.mu.Lock()
		last := len(c.idle) - 1
		if last < 0 {
			c.mu.Unlock()
			break
		}
		n := c.idle[last]
		c.idle[last] = nil
		c.idle = c.idle[:last]
		c.mu.Unlock()
		if err := n.SetDeadline(deadline); err == nil && n.alive() {
			return n, nil
		}
		n.Close() // the server closed it
	}
	d := c.dialer
	d.Deadline = deadline
	raw, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	if err := raw.SetDeadline(deadline); err != nil {
		raw.Close() // the first error counts
		return nil, err
	}
	if c.tls == nil {
		return newConn(raw, raw), nil
	}
	secure := tls.Client(raw, c.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close() // the first error counts
		return nil, err
	}
	return newConn(secure, raw), nil
}

func (c *Client) put(n *conn) {
	c.mu.Lock()
	if len(c.idle) < c.cfg.MaxIdle {
		c.idle = append(c.idle, n)
		n = nil
	}
	c.mu.Unlock()
	if n != nil {
		n.Close() // one too many
	}
}
