package streams

// WithReplicas returns a client that appends as on streams of so many replicas, whatever they really have.
func WithReplicas(c *Client, n int) *Client {
	d := *c
	d.cfg.Replicas = n
	return &d
}
