package streams

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Durability says what an acknowledged publish survives.
type Durability string

// The durabilities of the embedded server. Process: the death of every Cadence process, kill -9 included, but not a
// power cut (the file system syncs every two minutes). Power: a power cut too, at 1 ms or so a write.
const (
	DurableProcess Durability = "process"
	DurablePower   Durability = "power"
)

// MaxPayload is the largest message, body and headers, in bytes: set on the embedded server, asked of an external
// one. An HTTP body above MaxBody is refused with 413 before it gets here.
const (
	MaxPayload = 8 << 20
	MaxBody    = 4 << 20
)

// ErrConfig is returned for a configuration that cannot work; the message names the key.
var ErrConfig = errors.New("streams: invalid configuration")

// Config says how to reach JetStream.
type Config struct {
	// URL of one or more external servers, comma separated (nats://, tls://, ws://); empty is the embedded server.
	URL      string `help:"NATS server URLs, comma separated; empty runs the embedded server"`
	Creds    string `help:"NATS credentials file" type:"path"`
	User     string `help:"NATS user name"`
	Password string `help:"NATS password"`
	Token    string `help:"NATS token"`
	CA       string `help:"PEM file of the certificate authority of the NATS server" type:"path"`
	Cert     string `help:"PEM file of the client certificate for NATS" type:"path"`
	Key      string `help:"PEM file of the client key for NATS" type:"path"`
	// Replicas of each stream: 1, 3 or 5.
	Replicas int `help:"replicas of each stream (1, 3 or 5)" default:"1"`
	// Name of this connection on the server.
	Name string `kong:"-"`
	// Timeout of one acknowledged publish or request.
	Timeout time.Duration `help:"time limit of one acknowledged publish or request" default:"5s"`
	Limits  Limits        `kong:"-"`
}

// DefaultConfig uses the embedded server.
func DefaultConfig() Config {
	return Config{Replicas: 1, Name: "cadence", Timeout: 5 * time.Second, Limits: DefaultLimits()}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	switch c.Replicas {
	case 1, 3, 5:
	default:
		return fmt.Errorf("%w: replicas is %d, want 1, 3 or 5", ErrConfig, c.Replicas)
	}
	if c.Timeout <= 0 {
		return fmt.Errorf("%w: timeout is %v, want more than 0", ErrConfig, c.Timeout)
	}
	if (c.Cert == "") != (c.Key == "") {
		return fmt.Errorf("%w: cert and key go together", ErrConfig)
	}
	if c.URL == "" {
		return nil
	}
	for one := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" {
			return fmt.Errorf("%w: url %q, want nats://host:port", ErrConfig, redacted(one))
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return fmt.Errorf("%w: url %q has scheme %q, want nats, tls, ws or wss", ErrConfig, redacted(one), u.Scheme)
		}
	}
	return nil
}

// redacted is a list of URLs for logs and errors: without passwords and tokens.
func redacted(urls string) string {
	var out []string
	for one := range strings.SplitSeq(urls, ",") {
		scheme, rest, found := strings.Cut(one, "://")
		if at := strings.LastIndexByte(rest, '@'); found && at >= 0 {
			one = scheme + "://xxxxx" + rest[at:]
		} else if at := strings.LastIndexByte(one, '@'); at >= 0 {
			one = "xxxxx" + one[at:]
		}
		out = append(out, one)
	}
	return strings.Join(out, ",")
}
