package ingress

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// ErrConfig is returned for a configuration that cannot work; the message names the key and what it may be.
var ErrConfig = errors.New("ingress: invalid configuration")

// Config configures an ingress.
type Config struct {
	// Listen is host:port; port 0 takes a free one (see Server.Addr).
	Listen  string `help:"address on which clients connect (host:port)" default:"127.0.0.1:8080"`
	TLSCert string `help:"PEM file of the server's certificate; with tls-key it turns TLS on" type:"path"`
	TLSKey  string `help:"PEM file of the server's private key" type:"path"`
	// ID names this life of the ingress; empty makes one up.
	ID schema.IngressID `kong:"-"`
	// Pool takes requests whose model no live worker names a pool for; it only appears in events of refusals.
	Pool string `help:"pool that refused requests are booked under while no worker is known" default:"default"`
	// APIKeys are tenant:key; none leaves the API open, with tenants named by X-Tenant.
	APIKeys     []string `help:"API keys as tenant:key; none leaves the API open" placeholder:"TENANT:KEY"`
	CORSOrigins []string `help:"origins that browsers may call from; * is any, none is no cross-origin call" default:"*"`

	MaxOpen         int   `help:"requests held at once" default:"8192"`
	MaxWaiting      int   `help:"requests that may wait for their first token at once" default:"1024"`
	MaxWaitingBytes int64 `help:"bytes of the bodies of requests that may wait at once" default:"67108864"`
	MaxConnections  int   `help:"connections at once" default:"16384"`
	MaxBody         int   `help:"largest request body in bytes (at most 4194304)" default:"4194304"`
	// BufferBytes bounds what one stream may be behind its tokens; each event counts 64 bytes beside its text.
	BufferBytes int `help:"bytes that a stream's client may be behind before it is cut" default:"262144"`

	MaxGrace    time.Duration `help:"longest X-Resume-Grace-Ms; 0 turns resuming off" default:"60s"`
	ResumeBytes int           `help:"bytes of ended answers kept for clients that may come back" default:"67108864"`

	KeepAlive time.Duration `help:"silence after which a stream gets a keep-alive comment" default:"10s"`
	Watch     time.Duration `help:"interval at which clients of open requests are watched" default:"250ms"`
	Heartbeat time.Duration `help:"interval of heartbeats" default:"500ms"`
	Silence   time.Duration `help:"silence of a request after which its tokens are looked for in the store" default:"5s"`

	HeaderTimeout time.Duration `help:"time limit of reading a request's header" default:"10s"`
	BodyTimeout   time.Duration `help:"time limit of reading a request's body" default:"60s"`
	IdleTimeout   time.Duration `help:"how long a connection may be kept without a request" default:"120s"`
	WriteTimeout  time.Duration `help:"how long one write to a client may be stuck" default:"30s"`

	// Admission is the rule by which requests are let in, and AdmissionLimit its constant, where it has one.
	Admission      string  `help:"who is let in: marginal (what adds more to the goodput than the engines' time is worth; a guarantee if its bound fits), online-u80 (whose latency is below its objective with 80 %), queue-depth, in-flight (by counts alone), none (everybody)" enum:"marginal,online-u80,queue-depth,in-flight,none" default:"marginal"`
	AdmissionLevel float64 `help:"probability with which a guaranteed request is within its objective" default:"0.95"`
	AdmissionLimit int     `help:"queue-depth: requests that may wait for each worker (0: 8); in-flight: that may be open for each (0: 16)" default:"0"`
	ExploreRate    float64 `help:"part of what marginal would refuse that is let in all the same, to keep learning of it; 0 turns it off" default:"0.01"`
	// SLOE2E and SLOTTFT are the objectives of requests that send none.
	SLOE2E           time.Duration `name:"slo-e2e" help:"objective of the last byte, from the arrival, for requests without X-SLO-E2E-Ms; 0 is none" default:"0s"`
	SLOTTFT          time.Duration `name:"slo-ttft" help:"objective of the first token, from the arrival, for requests without X-SLO-TTFT-Ms; 0 is none" default:"0s"`
	RevealPrediction bool          `help:"tell clients what was predicted of their requests; it shows what other tenants' requests have left in the cache, and how many there are"`
	ProbeToken       string        `help:"requests with this X-Cadence-Probe are canaries, which no rule refuses; empty: there are none"`
	// Limits of all and of each tenant, whatever the rule says; 0 is none.
	MaxOpenTokens       int64 `help:"tokens (prompts and most output) that open requests may have together; 0 is no limit" default:"0"`
	MaxTenantOpen       int64 `help:"requests that a tenant may have open; 0 is no limit" default:"0"`
	MaxTenantOpenTokens int64 `help:"tokens (prompts and most output) that a tenant's open requests may have together; 0 is no limit" default:"0"`

	PublishTimeout time.Duration `help:"time limit of storing a request" default:"2s"`
	RefuseTimeout  time.Duration `help:"time limit of storing a refusal before it is answered" default:"250ms"`
	DrainTimeout   time.Duration `help:"how long running streams may go on after the stop signal" default:"30s"`

	// Limits bounds what a body may hold; zero is openai.DefaultLimits. Its BodyBytes is MaxBody.
	Limits openai.Limits `kong:"-"`
}

// DefaultConfig listens on loopback, with an open API.
func DefaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:8080", Pool: "default", CORSOrigins: []string{"*"},
		MaxOpen: 8192, MaxWaiting: 1024, MaxWaitingBytes: 64 << 20, MaxConnections: 16384, MaxBody: streams.MaxBody,
		BufferBytes: 256 << 10, MaxGrace: time.Minute, ResumeBytes: 64 << 20,
		KeepAlive: 10 * time.Second, Watch: 250 * time.Millisecond, Heartbeat: 500 * time.Millisecond, Silence: 5 * time.Second,
		HeaderTimeout: 10 * time.Second, BodyTimeout: time.Minute, IdleTimeout: 2 * time.Minute, WriteTimeout: 30 * time.Second,
		Admission: ruleMarginal, AdmissionLevel: 0.95, ExploreRate: admission.DefaultExplore().Rate,
		PublishTimeout: 2 * time.Second, RefuseTimeout: 250 * time.Millisecond, DrainTimeout: 30 * time.Second,
	}
}

// Validate returns ErrConfig, naming the key and what it may be.
func (c *Config) Validate() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("%w: listen is %q, want host:port: %w", ErrConfig, c.Listen, err)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return fmt.Errorf("%w: tls-cert and tls-key go together", ErrConfig)
	}
	if c.ID != "" && !schema.ValidName(string(c.ID)) {
		return fmt.Errorf("%w: id is %q, want 1 to 64 of letters, digits, _ and -", ErrConfig, c.ID)
	}
	if !schema.ValidName(c.Pool) {
		return fmt.Errorf("%w: pool is %q, want 1 to 64 of letters, digits, _ and -", ErrConfig, c.Pool)
	}
	if _, err := newTenants(c.APIKeys); err != nil {
		return err
	}
	for _, o := range c.CORSOrigins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || strings.TrimSuffix(u.Path, "/") != "") {
			return fmt.Errorf("%w: cors-origins has %q, want * or scheme://host[:port]", ErrConfig, o)
		}
	}
	for _, k := range []struct {
		key    string
		v, min int64
	}{
		{"max-open", int64(c.MaxOpen), 1},
		{"max-waiting", int64(c.MaxWaiting), 1},
		{"max-waiting-bytes", c.MaxWaitingBytes, int64(c.MaxBody)},
		{"max-connections", int64(c.MaxConnections), 1},
		{"max-body", int64(c.MaxBody), 1},
		{"buffer-bytes", int64(c.BufferBytes), 1 << 10},
		{"resume-bytes", int64(c.ResumeBytes), 0},
		{"admission-limit", int64(c.AdmissionLimit), 0},
		{"max-open-tokens", c.MaxOpenTokens, 0},
		{"max-tenant-open", c.MaxTenantOpen, 0},
		{"max-tenant-open-tokens", c.MaxTenantOpenTokens, 0},
	} {
		if k.v < k.min {
			return fmt.Errorf("%w: %s is %d, want at least %d", ErrConfig, k.key, k.v, k.min)
		}
	}
	if c.MaxBody > streams.MaxBody {
		return fmt.Errorf("%w: max-body is %d, want at most %d, which a stored message can hold", ErrConfig, c.MaxBody, streams.MaxBody)
	}
	for _, k := range []struct {
		key    string
		v, min time.Duration
	}{
		{"max-grace", c.MaxGrace, 0},
		{"keep-alive", c.KeepAlive, time.Millisecond},
		{"watch", c.Watch, time.Millisecond},
		{"heartbeat", c.Heartbeat, time.Millisecond},
		{"silence", c.Silence, time.Millisecond},
		{"header-timeout", c.HeaderTimeout, time.Millisecond},
		{"body-timeout", c.BodyTimeout, time.Millisecond},
		{"idle-timeout", c.IdleTimeout, time.Millisecond},
		{"write-timeout", c.WriteTimeout, time.Millisecond},
		{"publish-timeout", c.PublishTimeout, time.Millisecond},
		{"refuse-timeout", c.RefuseTimeout, time.Millisecond},
		{"drain-timeout", c.DrainTimeout, 0},
		{"slo-e2e", c.SLOE2E, 0},
		{"slo-ttft", c.SLOTTFT, 0},
	} {
		if k.v < k.min {
			return fmt.Errorf("%w: %s is %v, want at least %v", ErrConfig, k.key, k.v, k.min)
		}
	}
	if c.Watch > time.Second {
		return fmt.Errorf("%w: watch is %v, want at most 1s: clients that went away are to be noticed within a second", ErrConfig, c.Watch)
	}
	if !(c.AdmissionLevel > 0 && c.AdmissionLevel < 1) {
		return fmt.Errorf("%w: admission-level is %v, want between 0 and 1", ErrConfig, c.AdmissionLevel)
	}
	if _, err := c.arm(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	limits := c.limits()
	if err := limits.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// limits are those of the dialect, with the body's limit.
func (c *Config) limits() openai.Limits {
	l := c.Limits
	if l == (openai.Limits{}) {
		l = openai.DefaultLimits()
	}
	l.BodyBytes = c.MaxBody
	return l
}

// The rules of admission.
const (
	ruleMarginal   = "marginal"
	ruleOnline     = "online-u80"
	ruleQueueDepth = "queue-depth"
	ruleInFlight   = "in-flight"
	ruleNone       = "none"
)

// onlineLevel is what online-u80 is called after.
const onlineLevel = 0.8

// level is that of the bounds that the rule looks at.
func (c *Config) level() float64 {
	if c.Admission == ruleOnline {
		return onlineLevel
	}
	return c.AdmissionLevel
}

// arm returns the rule, new, or an error that names the key.
func (c *Config) arm() (admission.Arm, error) {
	switch c.Admission {
	case ruleMarginal:
		a := admission.DefaultConfig()
		a.Explore.Rate = c.ExploreRate
		return admission.NewMarginal(a)
	case ruleOnline:
		a := admission.Online(onlineLevel)
		return &a, a.Validate()
	case ruleQueueDepth:
		a := admission.DefaultQueueDepth()
		if c.AdmissionLimit > 0 {
			a.PerWorker = float64(c.AdmissionLimit)
		}
		return &a, a.Validate()
	case ruleInFlight:
		return &inFlight{perWorker: cmp.Or(c.AdmissionLimit, 16), retry: admission.DefaultRetry()}, nil
	case ruleNone:
		return admission.None{}, nil
	}
	return nil, fmt.Errorf("admission is %q, want one of %s, %s, %s, %s, %s", c.Admission, ruleMarginal, ruleOnline, ruleQueueDepth, ruleInFlight, ruleNone)
}

// holds are the limits of what open requests may hold, beside those of the gate.
func (c *Config) holds() admission.Limits {
	return admission.Limits{Total: admission.Amount{Tokens: c.MaxOpenTokens},
		Tenant: admission.Amount{Requests: c.MaxTenantOpen, Tokens: c.MaxTenantOpenTokens}}
}
