package artifact

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/profile"
)

// Version of the file and of its header.
const Version = 1

var (
	// ErrFormat is the error of bytes that are not an artifact of this version; the text says what is wrong.
	ErrFormat = errors.New("artifact: format")
	// ErrHash is the error of bytes that were an artifact and are damaged.
	ErrHash = errors.New("artifact: damaged")
	// ErrInvalid is the error of an artifact whose parts are out of range or do not fit together; the text names the key.
	ErrInvalid = errors.New("artifact: invalid")
	// ErrIncompatible is the error of an artifact of another engine or other features; the text names what differs.
	ErrIncompatible = errors.New("artifact: incompatible")
)

// Bounds of what a header may hold.
const (
	maxText   = 256 // bytes
	maxStrata = 4096
	maxCells  = 1 << 16
)

// Header says what a model is and what it was learned from.
type Header struct {
	Schema  int       `json:"schema_version"` // Encode sets it
	Created time.Time `json:"created"`        // in UTC
	// Code is the version of the program that trained it.
	Code string `json:"code_version"`
	// Backend is the fingerprint of the engine whose requests it learned from.
	Backend string `json:"backend_fingerprint"`
	// Profile is what the physics ran on. A residual is of a profile: with another one the model means nothing.
	Profile *profile.Profile `json:"engine_profile"`
	// Features are those of the model, in its order.
	Features []feature.Info `json:"features"`
	// From and To bound the arrivals that were learned from, in UTC, To not before From.
	From time.Time `json:"training_from"`
	To   time.Time `json:"training_to"`
	// Strata are the rows that were seen and kept, by stratum.
	Strata []Stratum `json:"strata"`
	// Coverage is what the bound was worth on rows that were held out.
	Coverage []Cell `json:"coverage"`
}

// Stratum counts the rows of a regime.
type Stratum struct {
	Name string `json:"name"`
	Seen int64  `json:"seen"` // ≥ Kept
	Kept int64  `json:"kept"` // ≥ 0
}

// Cell is the coverage of a group in a held-out fold.
type Cell struct {
	Fold int `json:"fold"` // ≥ 0; the rotation in which the rows were held out
	// Group is nil for all rows together.
	Group    *conformal.Group   `json:"group,omitempty"`
	Alpha    float64            `json:"alpha"` // in (0, 1)
	Coverage conformal.Coverage `json:"coverage"`
	// Low and High are the interval of the coverage at 95 %, clustered by run; 0 and 1 where runs are too few.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// MeanBound and MedianBound are in seconds, ≥ 0.
	MeanBound   float64 `json:"mean_bound_s"`
	MedianBound float64 `json:"median_bound_s"`
}

// Compatible returns nil if the model is for an engine with this fingerprint and a code with these features, else ErrIncompatible with
// what differs.
func (h *Header) Compatible(backend string, features []feature.Info) error {
	if h.Backend != backend {
		return fmt.Errorf("%w: backend fingerprint is %q, the engine's is %q", ErrIncompatible, h.Backend, backend)
	}
	if len(h.Features) != len(features) {
		return fmt.Errorf("%w: %d features, the code has %d", ErrIncompatible, len(h.Features), len(features))
	}
	for i, f := range h.Features {
		if f != features[i] {
			return fmt.Errorf("%w: feature %d is %s (%s, sign %+d), the code's is %s (%s, sign %+d)", ErrIncompatible, i, f.Name, f.Unit, f.Sign,
				features[i].Name, features[i].Unit, features[i].Sign)
		}
	}
	return nil
}

// validate returns ErrInvalid for the first key that is out of range.
func (h *Header) validate() error {
	bad := func(key string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrInvalid, key, value, allowed)
	}
	text := func(key, s string) error {
		if s == "" || len(s) > maxText || !utf8.ValidString(s) {
			return bad(key, fmt.Sprintf("%q", s), "1 to 256 bytes of UTF-8")
		}
		return nil
	}
	if h.Schema != Version {
		return bad("schema_version", h.Schema, fmt.Sprint(Version))
	}
	if err := errors.Join(text("code_version", h.Code), text("backend_fingerprint", h.Backend)); err != nil {
		return err
	}
	for _, t := range []struct {
		key string
		v   time.Time
	}{{"created", h.Created}, {"training_from", h.From}, {"training_to", h.To}} {
		if y := t.v.Year(); y < 1970 || y > 9999 || t.v.Location() != time.UTC {
			return bad(t.key, t.v, "from 1970 to 9999, in UTC")
		}
	}
	if h.To.Before(h.From) {
		return bad("training_to", h.To, "not before training_from")
	}
	if h.Profile == nil {
		return bad("engine_profile", "missing", "a profile")
	}
	if err := h.Profile.Validate(); err != nil {
		return fmt.Errorf("%w: engine_profile: %w", ErrInvalid, err)
	}
	names := map[string]bool{}
	for i, f := range h.Features {
		key := fmt.Sprintf("features[%d]", i)
		if err := errors.Join(text(key+".name", f.Name), text(key+".unit", f.Unit)); err != nil {
			return err
		}
		if names[f.Name] {
			return bad(key+".name", f.Name, "a name that is not there yet")
		}
		if names[f.Name] = true; f.Sign < -1 || f.Sign > 1 {
			return bad(key+".sign", f.Sign, "-1, 0 and 1")
		}
	}
	if len(h.Strata) > maxStrata {
		return bad("strata", len(h.Strata), "at most 4096")
	}
	for i, s := range h.Strata {
		key := fmt.Sprintf("strata[%d]", i)
		if err := text(key+".name", s.Name); err != nil {
			return err
		}
		if s.Kept < 0 || s.Seen < s.Kept {
			return bad(key+".kept", s.Kept, "0 to seen")
		}
	}
	if len(h.Coverage) > maxCells {
		return bad("coverage", len(h.Coverage), "at most 65536")
	}
	for i := range h.Coverage {
		if !h.Coverage[i].valid() {
			return bad(fmt.Sprintf("coverage[%d]", i), fmt.Sprintf("%+v", h.Coverage[i]), "counts from 0, shares from 0 to 1, bounds from 0")
		}
	}
	return nil
}

func (c *Cell) valid() bool {
	const most = 1e12 // seconds
	within := func(x, lo, hi float64) bool { return x >= lo && x <= hi }
	return c.Fold >= 0 && c.Alpha > 0 && c.Alpha < 1 && (c.Group == nil || c.Group.Decile <= 9) &&
		min(c.Coverage.Hits, c.Coverage.Misses, c.Coverage.Censored) >= 0 &&
		within(c.Low, 0, 1) && within(c.High, c.Low, 1) && within(c.MeanBound, 0, most) && within(c.MedianBound, 0, most)
}
