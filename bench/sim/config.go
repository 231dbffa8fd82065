package sim

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrConfig is returned for a configuration that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("sim: invalid configuration")

// Engine says how long a step takes, > 0, with so many tokens of prefill and so many sequences that decode, which hold context
// tokens after it. A *profile.Profile is one.
type Engine interface {
	Step(prefill, decodes, context int) time.Duration
}

// Latency holds the constant times between the parts of the pipeline, all ≥ 0. The zero value is a pipeline that takes no time.
type Latency struct {
	Request  time.Duration // a client sends until the scheduler has it, stored in REQUESTS; also until a refusal is answered
	Append   time.Duration // a group of events is stored in EVENTS
	Dispatch time.Duration // the scheduler to a worker, and the answer back
	Token    time.Duration // a worker has a token until the client has it; a worker's event until the scheduler has it
}

// DefaultLatency is what the pipeline was measured to add to a first token on two cores of a small server, 0.86 ms in the
// median (see the README), in equal parts.
func DefaultLatency() Latency {
	const hop = 215 * time.Microsecond
	return Latency{Request: hop, Append: hop, Dispatch: hop, Token: hop}
}

// Speed is a change of the engines' speed.
type Speed struct {
	At     time.Duration // steps that begin then or later
	Factor float64       // take 1/Factor of what the profile says, > 0
}

// Forever is a Drain that cuts nothing.
const Forever time.Duration = math.MaxInt64

// Config is one run.
type Config struct {
	Source   workload.Source
	Arrivals iter.Seq[time.Duration] // since the start, ascending; the i-th is that of Source.Request(i); those from Length on are left out
	// Capped sends a request's cap as max_tokens, and the answer may end before; otherwise the answer's length is sent, with
	// ignore_eos. It is load.Form's. Without it promises of KV and the order sjf go by the very length: an oracle.
	Capped bool
	// Requests is the most that arrive; 0: all of Arrivals. The run's Length is then the time at which the next would have come,
	// and there is no Tail.
	Requests int
	Seed     uint64 // of ids and of generated tokens; Source and Arrivals have their own

	Profile Engine // of every worker
	// Believed is what workers take their engines for, and say of them; nil: Profile. They notice how much slower it is.
	Believed Engine
	Workers  int // ≥ 1
	Batch    batch.Config
	// ShareAll lets tenants find each other's prefixes.
	ShareAll bool
	// Speeds are in order of their times.
	Speeds []Speed

	Order     core.Order     // nil: the core's default
	Placement core.Placement // nil: the core's default
	// MaxQueueWait ends a request that waited as long and was not dispatched: it counts as shed. 0: no limit.
	MaxQueueWait time.Duration
	// Deadlines makes requests carry the objectives of their class, E2E and TTFT.
	Deadlines bool
	// OnDeadline says what becomes of requests that cannot meet these any more; empty: demote.
	OnDeadline schema.OnDeadline
	// MaxOpen and MaxWaiting are the ingress's bounds: requests held at once, and of them those that wait for their first token.
	// Where one is reached the next is refused for "capacity", before Admit. 0: no bound, unlike the ingress, which always has one.
	MaxOpen, MaxWaiting int
	// Admit decides on each request when it arrives; nil admits all.
	Admit Admit

	// ClientTimeout is how long a client waits for the whole answer, ReadTimeout for the first token, and from one token to the
	// next. Then it hangs up, which cancels the request. 0: for ever.
	ClientTimeout, ReadTimeout time.Duration
	Latency                    Latency

	SLOs   map[string]record.SLO // by class; nil: the Source's
	Length time.Duration         // of the arrivals, > 0
	Warmup time.Duration         // arrivals before are of phase warmup
	Tail   time.Duration         // the last of Length are of phase tail
	// Drain is how long after Length answers are waited for; what is open then is censored. 0: cut at once; Forever: until
	// everything has ended.
	Drain time.Duration

	// Sink gets each request when its client is done with it; the record is lent for the call, but for its ITL.
	Sink func(*record.Request) error
	// KeepITL fills record.Request.ITL.
	KeepITL bool
	// Events, if not nil, gets the event log: see Line.
	Events io.Writer
	// Progress, if not nil, is called now and then.
	Progress func(Progress)
	// CheckInvariants verifies every planner's books after each step: slow.
	CheckInvariants bool
}

var onDeadline = []schema.OnDeadline{"", schema.OnDeadlineDemote, schema.OnDeadlineCancel, schema.OnDeadlineContinue}

// Progress is how far a run is.
type Progress struct {
	Now           time.Duration // virtual
	Offered, Done int           // requests
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	bad := func(key string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, key, value, allowed)
	}
	switch {
	case c.Source == nil || c.Arrivals == nil || c.Profile == nil:
		return fmt.Errorf("%w: source, arrivals and profile are needed", ErrConfig)
	case c.Workers < 1 || c.Workers > 1<<16:
		return bad("workers", c.Workers, "1 to 65536")
	case c.Requests < 0:
		return bad("requests", c.Requests, "0 (all) and more")
	case c.MaxOpen < 0:
		return bad("max_open", c.MaxOpen, "0 (no bound) and more")
	case !slices.Contains(onDeadline, c.OnDeadline):
		return bad("on_deadline", c.OnDeadline, "demote, cancel and continue")
	case c.MaxWaiting < 0:
		return bad("max_waiting", c.MaxWaiting, "0 (no bound) and more")
	case c.Length <= 0:
		return bad("length", c.Length, "more than 0")
	case c.Requests > 0 && c.Tail > 0:
		return bad("tail", c.Tail, "0 where requests are limited")
	case c.Warmup < 0 || c.Tail < 0 || c.Warmup+c.Tail >= c.Length:
		return bad("warmup + tail", c.Warmup+c.Tail, "0 to below length")
	}
	for _, d := range []struct {
		key string
		v   time.Duration
	}{
		{"max_queue_wait", c.MaxQueueWait}, {"client_timeout", c.ClientTimeout}, {"read_timeout", c.ReadTimeout}, {"drain", c.Drain},
		{"latency.request", c.Latency.Request}, {"latency.append", c.Latency.Append}, {"latency.dispatch", c.Latency.Dispatch}, {"latency.token", c.Latency.Token},
	} {
		if d.v < 0 {
			return bad(d.key, d.v, "0 and more")
		}
	}
	for i, s := range c.Speeds {
		if !(s.Factor > 0 && s.Factor <= 1e6) || s.At < 0 {
			return bad("speeds", s, "a time from 0 and a factor above 0, to 1e6")
		}
		if i > 0 && s.At < c.Speeds[i-1].At {
			return bad("speeds", c.Speeds, "in order of their times")
		}
	}
	if err := c.Batch.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// maxTokens is what a request asks for.
func (c *Config) maxTokens(r *workload.Request) int {
	if c.Capped {
		return r.Cap
	}
	return r.Output
}

// slos are the objectives that count.
func (c *Config) slos() map[string]record.SLO {
	if c.SLOs != nil {
		return c.SLOs
	}
	if s := c.Source.SLOs(); s != nil {
		return s
	}
	return map[string]record.SLO{"": {}}
}

// minNew is how many tokens a request that may have most of them generates at least.
func (c *Config) minNew(most int) int {
	if c.Capped {
		return 1
	}
	return most
}

// believed is what workers take their engines for.
func (c *Config) believed() Engine {
	if c.Believed != nil {
		return c.Believed
	}
	return c.Profile
}

// speed is the factor at a time.
func (c *Config) speed(now time.Duration) float64 {
	i, _ := slices.BinarySearchFunc(c.Speeds, now, func(s Speed, t time.Duration) int {
		if s.At <= t {
			return -1
		}
		return 1
	})
	if i == 0 {
		return 1
	}
	return c.Speeds[i-1].Factor
}
