package enginecore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// ErrConfig is returned for options that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("enginecore: invalid options")

// The arms: whose pages and prefix tree the worker runs on.
const (
	Fast  = "fast"
	Naive = "naive"
)

// Options says what to profile. The tags are the flags of `cadence bench engine-profile`.
type Options struct {
	On       string `help:"engine: llama or mock (at no cost: what is left is the cores' own time)" enum:"llama,mock" default:"llama"`
	Model    string `help:"model: a GGUF file, the name of a pulled one, or synth:tiny, synth:120m, synth:0.5b" default:"synth:120m"`
	ModelDir string `help:"directory of models; empty: the user's cache" type:"path"`
	Threads  int    `help:"threads of llama.cpp; with one, the CPU profile sees all of it" default:"1"`

	// Cores names the second arm; Fast: there is none.
	Cores  string        `help:"pages and prefix tree: fast, or naive: alternate with those that search everything, as tests do" enum:"fast,naive" default:"fast"`
	Blocks int           `help:"blocks of each arm" default:"2"`
	Length time.Duration `help:"measured length of a block" default:"30s"`
	Warmup time.Duration `help:"load before it, which fills the prefix cache" default:"10s"`

	Batch        int     `help:"requests at once" default:"16"`
	KVTokens     int     `help:"cells of the engine's KV cache" default:"16384" name:"kv-tokens"`
	SharedRatio  float64 `help:"part of the requests that begin with one of four system prompts" default:"0.9"`
	SystemTokens int     `help:"tokens of a system prompt" default:"256"`
	TailTokens   int     `help:"tokens of a prompt after it, on average" default:"32"`
	OutputTokens int     `help:"tokens of an answer" default:"64"`
	Seed         uint64  `help:"seed of the requests" default:"1"`

	Out string `help:"folder for the CPU profiles (go tool pprof) and flame graphs (SVG); empty: none are written" type:"path"`

	// Progress, if not nil, gets a line for each block.
	Progress io.Writer    `kong:"-"`
	Log      *slog.Logger `kong:"-"` // nil: none
}

// DefaultOptions returns the defaults of the flags.
func DefaultOptions() Options {
	return Options{
		On: "llama", Model: "synth:120m", Threads: 1, Cores: Fast, Blocks: 2, Length: 30 * time.Second, Warmup: 10 * time.Second,
		Batch: 16, KVTokens: 16384, SharedRatio: 0.9, SystemTokens: 256, TailTokens: 32, OutputTokens: 64, Seed: 1,
	}
}

// Validate returns ErrConfig for the first key that is outside its range.
func (o *Options) Validate() error {
	longest := o.SystemTokens + 2*o.TailTokens + o.OutputTokens
	for _, k := range []struct {
		key     string
		ok      bool
		value   any
		allowed string
	}{
		{"on", o.On == "llama" || o.On == "mock", o.On, "llama, mock"},
		{"threads", o.Threads >= 1, o.Threads, "1 and more"},
		{"cores", o.Cores == Fast || o.Cores == Naive, o.Cores, "fast, naive"},
		{"blocks", o.Blocks >= 1, o.Blocks, "1 and more"},
		{"length", o.Length > 0, o.Length, "more than 0"},
		{"warmup", o.Warmup >= 0, o.Warmup, "0 and more"},
		{"batch", o.Batch >= 1 && o.Batch <= 128, o.Batch, "1 to 128"},
		{"shared_ratio", o.SharedRatio >= 0 && o.SharedRatio <= 1, o.SharedRatio, "0 to 1"},
		{"system_tokens", o.SystemTokens >= 1, o.SystemTokens, "1 and more"},
		{"tail_tokens", o.TailTokens >= 1, o.TailTokens, "1 and more"},
		{"output_tokens", o.OutputTokens >= 1, o.OutputTokens, "1 and more"},
		{"kv_tokens", o.KVTokens%256 == 0 && o.KVTokens >= o.Batch*longest, o.KVTokens, fmt.Sprintf("a multiple of 256, %d (batch times the longest request) and more", o.Batch*longest)},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	return nil
}

// engine names what ran.
func (o *Options) engine() string {
	if o.On == "mock" {
		return o.On
	}
	return o.Model
}
