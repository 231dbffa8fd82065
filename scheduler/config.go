package scheduler

import (
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
)

// ErrConfig is returned for a configuration that cannot work; the message names the key and the allowed values.
var ErrConfig = core.ErrConfig

// Config configures the scheduler of one pool.
type Config struct {
	Pool string `help:"pool that is scheduled" default:"default"`
	// Name of this scheduler as a source of events; empty is a name of its own for every life.
	Name             string        `kong:"-"`
	MaxAttempts      uint32        `help:"workers that may be lost under a request before it fails" default:"3"`
	WorkerLostAfter  time.Duration `help:"silence after which a worker counts as lost" default:"2s"`
	IngressLostAfter time.Duration `help:"silence after which an ingress counts as lost and its requests are cancelled" default:"3s"`
	Order            string        `help:"who leaves the queue first: edf (earliest deadline; a request without one counts as due after the longest wait), fcfs, or sjf (fewest max_tokens; long ones may starve)" enum:"edf,fcfs,sjf" default:"edf"`
	MaxQueueWait     time.Duration `help:"longest wait in the queue before a request fails (0: no limit)" default:"10m"`
	DispatchTimeout  time.Duration `help:"time limit of one dispatch to a worker; it is sent again then" default:"1s"`
	SealTimeout      time.Duration `help:"time limit of one seal at an ingress; it is asked again then" default:"1s"`
	StopTimeout      time.Duration `help:"time limit of the append in flight when the scheduler stops" default:"5s"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	c := core.DefaultConfig("default", "")
	return Config{
		Pool: c.Pool, Order: "edf",
		MaxAttempts: c.MaxAttempts, WorkerLostAfter: c.WorkerLostAfter, IngressLostAfter: c.IngressLostAfter, MaxQueueWait: c.MaxQueueWait,
		DispatchTimeout: time.Second, SealTimeout: time.Second, StopTimeout: 5 * time.Second,
	}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	for key, d := range map[string]time.Duration{"dispatch_timeout": c.DispatchTimeout, "seal_timeout": c.SealTimeout, "stop_timeout": c.StopTimeout} {
		if d <= 0 {
			return fmt.Errorf("%w: %s is %v, want more than 0", ErrConfig, key, d)
		}
	}
	if _, err := core.OrderOf(c.Order); err != nil {
		return err
	}
	rules := c.core()
	return rules.Validate()
}

// core returns the rules of the core, for a valid configuration.
func (c *Config) core() core.Config {
	r := core.DefaultConfig(c.Pool, c.Name)
	r.Order, _ = core.OrderOf(c.Order) // Validate has seen the name
	if r.Source == "" {
		r.Source = "scheduler"
	}
	r.MaxAttempts, r.WorkerLostAfter, r.IngressLostAfter, r.MaxQueueWait = c.MaxAttempts, c.WorkerLostAfter, c.IngressLostAfter, c.MaxQueueWait
	return r
}
