package fidelity

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/calibrate"
	"github.com/cadence-slo/cadence/bench/ladder"
	"github.com/cadence-slo/cadence/predictor/profile"
)

// ErrConfig is returned for options that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("fidelity: invalid options")

// kinds is from the least real to the most.
var kinds = []string{ladder.Sim, ladder.Mock, ladder.Llama}

// Targets are the largest errors, as parts, that are still good.
type Targets struct {
	P50     float64 `help:"largest error of the median E2E" default:"0.1" json:"e2e_p50" name:"target-p50"`
	P99     float64 `help:"largest error of the p99 of E2E" default:"0.2" json:"e2e_p99" name:"target-p99"`
	Goodput float64 `help:"largest error of goodput" default:"0.1" json:"goodput" name:"target-goodput"`
}

// DefaultTargets returns the defaults of the flags.
func DefaultTargets() Targets { return Targets{P50: 0.1, P99: 0.2, Goodput: 0.1} }

// Options say what to compare. The tags are the flags of `cadence bench fidelity`.
type Options struct {
	On       []string  `help:"what to compare, two or three of sim, mock and llama" default:"sim,mock,llama"`
	Workload string    `help:"workload: a name or a file (see cadence workload)" default:"seed"`
	Arrivals string    `help:"arrival process (see cadence load)" default:"poisson"`
	Seed     uint64    `help:"seed of requests and arrivals" default:"1"`
	Loads    []float64 `help:"offered rates, as multiples of what the simulator says that the engine can do" default:"0.4,0.7,0.9"`
	Requests int       `help:"requests of each run, in the mean, after the warm-up" default:"200"`
	Warmup   int       `help:"requests before that" default:"20"`
	// SLO is the objective of goodput.
	SLO   time.Duration `help:"objective of goodput: E2E; 0: eight times what a request takes that is alone in the simulator" default:"0s" name:"slo-e2e"`
	Drain time.Duration `help:"how long after the last arrival answers are waited for" default:"3m"`
	Cache bool          `help:"with the prefix cache" default:"true" negatable:""`
	Out   string        `help:"directory of the records; empty: they are not kept" type:"path"`
	Targets

	Model     string `help:"model on llama: tiny, 120m or 0.5b (random weights, made here), the name of a pulled one, or a GGUF file" default:"120m"`
	ModelDir  string `help:"directory of models; empty: the user's cache" type:"path"`
	Threads   int    `help:"threads of llama.cpp" default:"1"`
	KVTokens  int    `help:"tokens of KV cache" default:"16384" name:"kv-tokens"`
	Sequences int    `help:"sequence ids of the engine" default:"64"`
	MaxBatch  int    `help:"requests that the worker runs at once" default:"16"`
	Rounds    int    `help:"rounds of the calibration on llama, which the loads are scaled by" default:"1"`

	// Profile is of simulator and mock where llama is not among what is compared.
	Profile    *profile.Profile `kong:"-"`
	Executable string           `kong:"-"`
	Version    string           `kong:"-"`
	Log        *slog.Logger     `kong:"-"`
	// Progress, if not nil, hears what is under way.
	Progress func(what string) `kong:"-"`
}

// DefaultOptions returns the defaults of the flags, without an executable.
func DefaultOptions() Options {
	return Options{
		On: slices.Clone(kinds), Workload: "seed", Arrivals: "poisson", Seed: 1, Loads: []float64{0.4, 0.7, 0.9}, Requests: 200, Warmup: 20,
		Drain: 3 * time.Minute, Cache: true, Targets: DefaultTargets(), Model: "120m", Threads: 1, KVTokens: 16384, Sequences: 64, MaxBatch: 16, Rounds: 1,
		Log: slog.New(slog.DiscardHandler),
	}
}

// Validate returns ErrConfig for the first key that is outside its range.
func (o *Options) Validate() error {
	distinct := map[string]bool{}
	for _, k := range o.On {
		if !slices.Contains(kinds, k) || distinct[k] {
			return fmt.Errorf("%w: on has %q, allowed: each of %v once", ErrConfig, k, kinds)
		}
		distinct[k] = true
	}
	positive := func(v float64) bool { return v > 0 }
	part := func(v float64) bool { return v > 0 && v < 1 } // with 1, nothing would be too little
	for _, k := range []struct {
		key     string
		ok      bool
		value   any
		allowed string
	}{
		{"on", len(o.On) >= 2, o.On, "two or three"},
		{"workload", o.Workload != "", o.Workload, "a name or a file"},
		{"loads", len(o.Loads) > 0 && !slices.ContainsFunc(o.Loads, func(v float64) bool { return !positive(v) }), o.Loads, "numbers above 0"},
		{"requests", o.Requests >= 2, o.Requests, "2 and more"},
		{"warmup", o.Warmup >= 0, o.Warmup, "0 and more"},
		{"slo-e2e", o.SLO >= 0, o.SLO, "0 (by the simulator) and more"},
		{"drain", o.Drain > 0, o.Drain, "more than 0"},
		{"target-p50", part(o.P50), o.P50, "more than 0, less than 1"},
		{"target-p99", part(o.P99), o.P99, "more than 0, less than 1"},
		{"target-goodput", part(o.Goodput), o.Goodput, "more than 0, less than 1"},
		{"rounds", o.Rounds >= 1, o.Rounds, "1 and more"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	if distinct[ladder.Llama] {
		e := o.engine()
		return e.Validate()
	}
	return nil
}

// engine is what is calibrated.
func (o *Options) engine() calibrate.EngineOptions {
	e := calibrate.DefaultEngineOptions()
	e.Model, e.ModelDir, e.Threads, e.KVTokens, e.Sequences, e.MaxBatch = o.Model, o.ModelDir, o.Threads, o.KVTokens, o.Sequences, o.MaxBatch
	return e
}
