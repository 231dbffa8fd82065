package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// ErrProfile is returned where nobody tells what latencies were simulated with.
var ErrProfile = errors.New("trainer: no profile")

// engines notes the profiles that running workers tell, by fingerprint. It is safe for concurrent use.
type engines struct {
	mu       sync.Mutex
	profiles map[string]*profile.Profile
	came     chan struct{} // closed and made anew when one is noted
}

// watchEngines listens to a pool's workers until stop is called.
func watchEngines(c *streams.Client, pool string) (e *engines, stop func(), err error) {
	e = &engines{profiles: map[string]*profile.Profile{}, came: make(chan struct{})}
	sub, err := c.SubscribeEngineStates(func(s *schema.EngineState) {
		if s.Pool == pool && s.Settings != nil {
			e.note(s.Settings)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return e, func() { _ = sub.Unsubscribe() }, nil // it ends with the connection at the latest
}

func (e *engines) note(s *schema.EngineSettings) {
	if len(s.Profile) == 0 || s.Fingerprint == "" {
		return
	}
	p, err := profile.Decode(s.Profile)
	if err != nil {
		return // of a worker of another version
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.profiles[s.Fingerprint] = p
	close(e.came)
	e.came = make(chan struct{})
}

// of waits for the profile of an engine. ErrProfile, or ctx's error.
func (e *engines) of(ctx context.Context, pool, fingerprint string, wait time.Duration) (*profile.Profile, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		e.mu.Lock()
		p, came := e.profiles[fingerprint], e.came
		e.mu.Unlock()
		if p != nil {
			return p, nil
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, fmt.Errorf("%w: no running worker of pool %s with fingerprint %q tells it; allowed: a worker with one, or the flag profile",
				ErrProfile, pool, fingerprint)
		}
	}
}

// openProfile reads a profile that is named: an embedded one, or a file.
func openProfile(name string) (*profile.Profile, error) {
	if slices.Contains(profile.Embedded(), name) {
		return profile.Open(name)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	return profile.Decode(b)
}
