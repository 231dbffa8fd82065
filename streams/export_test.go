package streams

import "time"

// WithReplicas returns a client that appends as on streams of so many replicas, whatever they really have.
func WithReplicas(c *Client, n int) *Client {
	d := *c
	d.cfg.Replicas = n
	return &d
}

// WithMemory returns a client of a server that remembers ids for so long.
func WithMemory(c *Client, d time.Duration) *Client {
	e := *c
	e.remembered = d
	return &e
}
