package online

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cadence-slo/cadence/predictor/conformal"
)

var (
	// ErrConfig is returned for constants that cannot work; the message names the key and the allowed values.
	ErrConfig = errors.New("online: invalid configuration")
	// ErrModel is returned for a model that cannot be asked: it is of other features.
	ErrModel = errors.New("online: model of other features")
)

// Config are the constants of a Predictor.
type Config struct {
	// Classes of output lengths, ≥ 1: predictor.Sequence.Lengths is below it.
	Classes int
	// HalfLife is after how many answers of its class an answer weighs half; 0: never.
	HalfLife float64
	// Window is how many residuals make the distribution, ≥ 1.
	Window int
	// Level of the bounds, in (0, 1).
	Level float64
	// Start is the margin that calibration begins with: the logarithm of bound by prediction, ≥ 0.
	Start float64
	// Warm is how many must have ended, or be late, before a bound is given, ≥ 0. As soon as 40 of them, or what the level needs, were such
	// that a rule would let in, margins are anchored at their split quantile; before, they follow them from Start.
	Warm int
	// Groups gives each class and load a margin of its own where it has rows enough; else all have the same.
	Groups bool
	// Open is how many admitted requests are remembered at most, ≥ 1, and Forget how long each, > 0: of one whose end was never told, and of
	// the oldest beyond Open, nothing more is expected.
	Open   int
	Forget time.Duration
}

// DefaultConfig returns the constants for bounds at a level.
func DefaultConfig(level float64) Config {
	return Config{Classes: 1, HalfLife: 2000, Window: 512, Level: level, Start: 1, Warm: enough(level), Groups: true,
		Open: 1 << 14, Forget: time.Hour}
}

// enough is how many rows a margin begins with: as many as the level needs, and more, lest a few slow ones at the start make a bound that
// lets in nobody.
func enough(level float64) int { return max(conformal.MinRows(1-level), 40) }

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	bad := func(key string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, key, value, allowed)
	}
	switch {
	case c.Classes < 1 || c.Classes > 1<<16:
		return bad("classes", c.Classes, "1 to 65536")
	case !(c.HalfLife >= 0) || math.IsInf(c.HalfLife, 0):
		return bad("half_life", c.HalfLife, "0 (never) and more")
	case c.Window < 1 || c.Window > 1<<20:
		return bad("window", c.Window, "1 to 1048576")
	case !(c.Level >= 1e-6 && c.Level <= 1-1e-6):
		return bad("level", c.Level, "between 0 and 1")
	case !(c.Start >= 0 && c.Start <= 10):
		return bad("start", c.Start, "0 to 10")
	case c.Warm < 0:
		return bad("warm", c.Warm, "0 and more")
	case c.Open < 1 || c.Open > 1<<24:
		return bad("open", c.Open, "1 to 16777216")
	case c.Forget <= 0:
		return bad("forget", c.Forget, "more than 0")
	}
	return nil
}

// rows is how many scored rows are kept.
func (c *Config) rows() int { return max(c.Window, conformal.MinRows(1-c.Level)) }

// speak is after how many rows a group has a margin of its own.
func (c *Config) speak() int {
	if !c.Groups {
		return math.MaxInt
	}
	return enough(c.Level)
}

// groupRows is how many rows a group's margin keeps, and that of an idle engine.
func (c *Config) groupRows() int { return min(c.rows(), max(conformal.DefaultWindow, enough(c.Level))) }
