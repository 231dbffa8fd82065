package service

import (
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/trainer"
)

// ErrConfig is returned for a configuration that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("trainer: invalid configuration of the service")

// Config says what models are made of. See DefaultConfig.
type Config struct {
	Pool string `help:"pool whose requests are learned from, and whose model it becomes" default:"default"`
	// Window is how far back requests are learned from, 1 min to a year.
	Window time.Duration `help:"how far back requests are learned from" default:"168h"`
	// RoundMinutes are those of a round; see trainer.Rounding.
	RoundMinutes int `help:"minutes of a round: long enough for the engine to have seen every load; whole rounds are held out" default:"10"`
	// Level of the bounds, in (0, 1); an ingress needs them at its own.
	Level float64 `help:"probability with which a bound is to hold: the admission-level of the ingresses" default:"0.95"`
	// MinRows is how many held-out requests, unknown to the running model too, it takes to compare; GroupRows the same for one group.
	MinRows   int `help:"held-out requests that it takes to compare two models" default:"2000"`
	GroupRows int `help:"held-out requests that it takes to compare two models in one group of class and load" default:"500"`
	// PerStratum is how many requests of each regime are kept.
	PerStratum  int    `help:"requests that are kept of each regime of queue, KV cache and prefix; beyond them a sample" default:"20000"`
	Seed        uint64 `help:"seed of the sample and of the trees" default:"1"`
	Fingerprint string `help:"fingerprint of the engine to learn of, and of requests that tell of none; empty: the one with the most new requests"`
	Profile     string `help:"profile that latencies were simulated with: a file or the name of an embedded one; empty: the running workers are asked" placeholder:"FILE|NAME"`
	// ProfileWait bounds the wait for a worker that tells its profile, 0 to 10 min.
	ProfileWait time.Duration `help:"time to wait for a running worker to tell its profile" default:"5s"`
}

// DefaultConfig learns from the last week.
func DefaultConfig() Config {
	return Config{Pool: "default", Window: 168 * time.Hour, RoundMinutes: 10, Level: 0.95, MinRows: 2000, GroupRows: 500, PerStratum: 20_000, Seed: 1,
		ProfileWait: 5 * time.Second}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	bad := func(key string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, key, value, allowed)
	}
	switch {
	case !schema.ValidName(c.Pool):
		return bad("pool", c.Pool, "1 to 64 of A-Z, a-z, 0-9, _ and -")
	case c.Window < time.Minute || c.Window > 366*24*time.Hour:
		return bad("window", c.Window, "1m to 8784h")
	case c.ProfileWait < 0 || c.ProfileWait > 10*time.Minute:
		return bad("profile_wait", c.ProfileWait, "0s to 10m")
	case !(c.Level > 0 && c.Level < 1):
		return bad("level", c.Level, "between 0 and 1")
	}
	p := c.plan()
	if err := p.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if _, err := trainer.NewCollector(c.PerStratum, c.Seed, c.rounding(), c.Fingerprint); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func (c *Config) rounding() trainer.Rounding { return trainer.Rounding{Minutes: c.RoundMinutes} }

func (c *Config) plan() trainer.Plan {
	p := trainer.DefaultPlan(c.Level)
	p.Seed, p.Rule.MinRows, p.Rule.GroupRows = c.Seed, c.MinRows, c.GroupRows
	return p
}

// Schedule is when the service trains. See DefaultSchedule.
type Schedule struct {
	// Interval between two looks, 1 s to a week.
	Interval time.Duration `help:"time between two looks at what there is to learn from" default:"15m"`
	// MinNew is how many requests must have ended that neither the running model nor the last attempt has seen, ≥ 1.
	MinNew int `help:"new requests that it takes to train again" default:"8000"`
	// KeepFiles is how long files that no pool's history names stay.
	KeepFiles time.Duration `help:"time after which files of models that no history names are deleted" default:"24h"`
}

// DefaultSchedule looks four times an hour.
func DefaultSchedule() Schedule {
	return Schedule{Interval: 15 * time.Minute, MinNew: 8000, KeepFiles: 24 * time.Hour}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (s *Schedule) Validate() error {
	switch {
	case s.Interval < time.Second || s.Interval > 7*24*time.Hour:
		return fmt.Errorf("%w: interval is %v, allowed: 1s to 168h", ErrConfig, s.Interval)
	case s.MinNew < 1:
		return fmt.Errorf("%w: min_new is %d, allowed: 1 and more", ErrConfig, s.MinNew)
	case s.KeepFiles < time.Minute:
		return fmt.Errorf("%w: keep_files is %v, allowed: 1m and more", ErrConfig, s.KeepFiles)
	}
	return nil
}
