package overhead

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ErrConfig is returned for options that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("overhead: invalid options")

// Options says what to measure. The tags are the flags of `cadence bench overhead`.
type Options struct {
	Rate   float64       `help:"requests/s of the latency measurement" default:"200"`
	Length time.Duration `help:"length of the latency measurement" default:"30s"`
	Warmup time.Duration `help:"load before it that is not counted" default:"5s"`

	PromptTokens int `help:"tokens of each prompt" default:"500"`
	OutputTokens int `help:"tokens of each answer" default:"8"`

	AddedP50 time.Duration `help:"target: median time added to the first token" default:"800us"`
	AddedP99 time.Duration `help:"target: 99th percentile of it" default:"5ms"`

	SearchFrom   float64       `help:"first rate of the search for the highest sustained one, requests/s; 0 skips it" default:"400"`
	SearchStep   float64       `help:"step of the search" default:"200"`
	SearchTo     float64       `help:"highest rate tried" default:"4000"`
	SearchLength time.Duration `help:"length of each stretch of the search" default:"10s"`
	SearchFine   float64       `help:"how close the found rate is to one that fails" default:"50"`
	E2ELimit     time.Duration `help:"limit of the 99th percentile of the time to the last byte, for a rate to count as sustained" default:"50ms"`
	Sustained    float64       `help:"target: highest sustained rate, requests/s" default:"1000"`

	Seed uint64 `help:"seed of the arrivals" default:"1"`
	// Profile is a directory for the child's CPU profiles, one a measurement; empty takes none.
	Profile string `help:"directory for CPU profiles of the services; empty takes none" type:"path"`
	// UpArgs are further arguments of `cadence up`.
	UpArgs []string `kong:"-"`

	// Executable is cadence's own; Dir is where the child's state lives, empty is a temporary directory, removed at the
	// end.
	Executable string       `kong:"-"`
	Dir        string       `kong:"-"`
	Log        *slog.Logger `kong:"-"`
}

// DefaultOptions returns the defaults of the flags, without an executable.
func DefaultOptions() Options {
	return Options{
		Rate: 200, Length: 30 * time.Second, Warmup: 5 * time.Second, PromptTokens: 500, OutputTokens: 8,
		AddedP50: 800 * time.Microsecond, AddedP99: 5 * time.Millisecond,
		SearchFrom: 400, SearchStep: 200, SearchTo: 4000, SearchLength: 10 * time.Second, SearchFine: 50,
		E2ELimit: 50 * time.Millisecond, Sustained: 1000, Seed: 1,
		Log: slog.New(slog.DiscardHandler),
	}
}

// Validate returns ErrConfig for the first key that is outside its range.
func (o *Options) Validate() error {
	for _, k := range []struct {
		key     string
		ok      bool
		value   any
		allowed string
	}{
		{"rate", o.Rate > 0, o.Rate, "more than 0"},
		{"length", o.Length > 0, o.Length, "more than 0"},
		{"warmup", o.Warmup >= 0, o.Warmup, "0 and more"},
		{"prompt-tokens", o.PromptTokens >= 1, o.PromptTokens, "1 and more"},
		{"output-tokens", o.OutputTokens >= 1, o.OutputTokens, "1 and more"},
		{"search-from", o.SearchFrom >= 0, o.SearchFrom, "0 (no search) and more"},
		{"search-step", o.SearchStep > 0, o.SearchStep, "more than 0"},
		{"search-to", o.SearchTo >= o.SearchFrom, o.SearchTo, "search-from and more"},
		{"search-length", o.SearchLength > 0, o.SearchLength, "more than 0"},
		{"search-fine", o.SearchFine > 0, o.SearchFine, "more than 0"},
		{"e2e-limit", o.E2ELimit > 0, o.E2ELimit, "more than 0"},
		{"executable", o.Executable != "", o.Executable, "the path of cadence"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	return nil
}
