package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/batch"
)

// What Config.Profile may be, beside the name of an embedded profile and a file.
const (
	ProfileMeasure = "measure"
	ProfileNone    = "none"
)

// Profiler is implemented by a Backend that knows how long its steps take, so that nothing is measured.
type Profiler interface {
	// Profile returns the engine's profile, which nobody changes, or nil if it has none. Its limits do not matter.
	Profile() *profile.Profile
}

// probeTime is how long a measurement may take, all in all.
const probeTime = 2500 * time.Millisecond

// know finds out how fast the engine is and makes the settings that states come with. It measures before the first life, on the
// goroutine that owns the engine. It returns ErrBackend if the engine broke under it; one that cannot be measured is not known.
func (w *Worker) know(ctx context.Context) error {
	p, err := w.profile(ctx)
	if err != nil {
		return err
	}
	if p != nil {
		own := *p
		own.Limits = limits(&w.plan)
		if own.Fingerprint == "" {
			own.Fingerprint = w.info.Fingerprint
		}
		w.engine.profile = &own
	}
	w.settings, err = w.engineSettings()
	return err
}

func (w *Worker) profile(ctx context.Context) (*profile.Profile, error) {
	if w.given != nil {
		if f := w.given.Fingerprint; f != "" && f != w.info.Fingerprint {
			w.log.Warn("profile is of another engine", "profile", w.given.Name, "fingerprint", f, "engine_fingerprint", w.info.Fingerprint)
		}
		return w.given, nil
	}
	if w.cfg.Profile == ProfileNone {
		return nil, nil
	}
	if own, ok := w.backend.(Profiler); ok {
		return own.Profile(), nil
	}
	if !w.info.Sharing || w.cfg.NewPlanner != nil { // the cells are another server's, or an experiment's
		return nil, nil
	}
	begin := w.now()
	p, steps, err := probe(ctx, w.backend, &w.plan, probeTime, w.now)
	switch {
	case errors.Is(err, ErrBackend):
		return nil, err
	case ctx.Err() != nil:
		return nil, nil
	case err != nil:
		w.log.Warn("engine not measured: nothing is predicted", "steps", steps, "took", w.now()-begin, "error", err)
		return nil, nil
	}
	w.log.Info("engine measured", "steps", steps, "took", w.now()-begin, "error_p50", p.Fit.ErrorP50, "error_p95", p.Fit.ErrorP95,
		"decode_1", p.Step(0, 1, 64), "prefill_64", p.Step(64, 0, 64))
	return p, nil
}

// openProfile returns the profile that the configuration names, or nil if it is to be found out. It returns ErrConfig.
func (c *Config) openProfile() (*profile.Profile, error) {
	if c.Profile == ProfileMeasure || c.Profile == ProfileNone {
		return nil, nil
	}
	if slices.Contains(profile.Embedded(), c.Profile) {
		return profile.Open(c.Profile)
	}
	b, err := os.ReadFile(c.Profile)
	if err != nil {
		return nil, fmt.Errorf("%w: profile is %q, allowed: %s, %s, %s, or a file: %w", ErrConfig, c.Profile, ProfileMeasure, ProfileNone,
			strings.Join(profile.Embedded(), ", "), err)
	}
	p, err := profile.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%w: profile %s: %w", ErrConfig, c.Profile, err)
	}
	return p, nil
}

// limits are those of an engine as the worker uses it.
func limits(c *batch.Config) profile.Limits {
	return profile.Limits{KVTokens: c.KVPages * c.PageTokens, PageTokens: c.PageTokens, Sequences: c.Sequences, MaxBatch: c.MaxBatch,
		BatchTokens: c.BatchTokens, ChunkTokens: c.ChunkTokens, ContextTokens: c.Longest()}
}
