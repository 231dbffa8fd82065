package control

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
)

// ErrOptions is returned for options that cannot work; the message names the key and the allowed values.
var ErrOptions = errors.New("control: invalid options")

// Options choose a controller.
type Options struct {
	Arm   string  // one of Arms
	Level float64 // of bounds; 0: 0.8, which the gate is best at
	// Constant is the arm's own; 0: its usual one. Of queue-wait the limit in seconds; of queue-depth how many may wait for each
	// worker; of in-flight how many may be held for each worker; of shed and marginal the part of the engines' time that is given
	// away; of constant-quantile and throughput the level that they are fitted at; of frozen-bound the hysteresis; of online-bound
	// what the bound is multiplied with; none has none.
	Constant float64
	// Seen is what constant-quantile, throughput and frozen-bound are fitted to.
	Seen    *Seen
	Profile *profile.Profile // that workers and controllers believe of the engines; they may have another
	// Belief is how many times as fast as Profile says workers and controllers believe the engines to be, in (0, 1000]; 0: as fast.
	// Workers notice how far they are off, and tell. sim.Config.Believed is set by it.
	Belief float64
	// Slow, if not nil, says by how much engines are slower than they are believed to be, > 0, in the place of the workers, of which
	// controllers hear nothing then. It is called by the control's owner alone.
	Slow func(now time.Duration) float64
	Seed uint64

	// Open lets all in, whatever the arm says; what is expected of them is learned and said all the same. Of arms that ask a predictor.
	Open bool

	// Guarantee is the part of the requests, in [0, 1], that ask for a guarantee, beside those whose class is schema.Guaranteed. Which
	// they are does not depend on the arm.
	Guarantee float64

	// Ingresses share the requests, 1 to 1000; 0 is 1. Each decides for itself: it has an arm and a predictor of its own, and learns
	// from what it admitted. Its own requests it sees at once; those of others only once they are older than what tells of them, which
	// is PoolAge for what waits and EngineAge for what engines have; both ≥ 0. What engines have done is seen at once.
	Ingresses          int
	PoolAge, EngineAge time.Duration
	// ByHash deals requests to ingresses by chance, instead of one to each in turn.
	ByHash bool
}

// Validate returns ErrOptions, naming the key and the allowed values. Arm and Seen are looked at by Attach.
func (o *Options) Validate() error {
	for _, k := range []struct {
		key     string
		ok      bool
		value   any
		allowed string
	}{
		{"level", o.Level >= 0 && o.Level < 1, o.Level, "0 (0.8) to below 1"},
		{"belief", o.Belief >= 0 && o.Belief <= 1000, o.Belief, "0 (as the profile says) to 1000"},
		{"guarantee", o.Guarantee >= 0 && o.Guarantee <= 1, o.Guarantee, "0 to 1"},
		{"ingresses", o.Ingresses >= 0 && o.Ingresses <= 1000, o.Ingresses, "0 to 1000"},
		{"pool_age", o.PoolAge >= 0, o.PoolAge, "0 and more"},
		{"engine_age", o.EngineAge >= 0, o.EngineAge, "0 and more"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrOptions, k.key, k.value, k.allowed)
		}
	}
	return nil
}

func (o *Options) level() float64 { return cmp.Or(o.Level, 0.8) }

func (o *Options) ingresses() int { return max(1, o.Ingresses) }

// believed is the profile that controllers have.
func (o *Options) believed() *profile.Profile {
	if o.Belief == 0 || o.Belief == 1 || o.Profile == nil {
		return o.Profile
	}
	p := *o.Profile
	c := &p.Cost
	c.Base, c.Prefill, c.PrefillToken, c.ContextToken = c.Base/o.Belief, c.Prefill/o.Belief, c.PrefillToken/o.Belief, c.ContextToken/o.Belief
	c.Decode = append([]profile.Point(nil), c.Decode...)
	for i := range c.Decode {
		c.Decode[i].Time /= o.Belief
	}
	return &p
}
