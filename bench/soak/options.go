package soak

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// ErrConfig is returned for options that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("soak: invalid options")

// The engines.
const (
	OnMock  = "mock"
	OnLlama = "llama"
)

// Options says what to run. The tags are the flags of `cadence bench soak`.
type Options struct {
	On       string        `help:"engine: mock (every token is checked) or llama (llama.cpp on a small random model)" enum:"mock,llama" default:"mock"`
	Duration time.Duration `help:"length of the load, pauses included" default:"20m"`
	Every    time.Duration `help:"time between two pauses in which memory is measured" default:"15s"`
	Warmup   time.Duration `help:"beginning whose memory is not judged; with less than 3m no memory is, for the stream server is still filling its two minutes of remembered ids; 0: 3m, or a third of a load of up to 4m" default:"0s"`

	KVTokens   int     `help:"cells of the engine's KV cache" default:"1536" name:"kv-tokens"`
	Overcommit float64 `help:"KV pages promised for each there is" default:"3" name:"kv-overcommit"`
	MaxBatch   int     `help:"requests that run at once" default:"16"`
	Sequences  int     `help:"sequence ids of the engine" default:"24"`
	Threads    int     `help:"threads of llama.cpp" default:"1"`
	Seed       uint64  `help:"seed of the load" default:"1"`

	HeapRate int64 `help:"allowed growth of the heap, bytes a minute, besides 1 MiB of noise" default:"65536"`
	RSSRate  int64 `help:"allowed growth of the resident memory, bytes a minute, besides 16 MiB of noise" default:"524288" name:"rss-rate"`

	// Progress, if not nil, gets a line at each quiet point.
	Progress io.Writer    `kong:"-"`
	Log      *slog.Logger `kong:"-"` // nil: none
}

// Noise of a measurement at a quiet point, in bytes: pools and caches that are full at one of them and empty at the next.
const (
	heapNoise = 1 << 20
	rssNoise  = 16 << 20
)

// memoryWarmup is the least warm-up after which memory is judged: the stream server remembers the ids of two minutes, and
// its books have to settle after that.
const memoryWarmup = 3 * time.Minute

// DefaultOptions returns the defaults of the flags.
func DefaultOptions() Options {
	return Options{
		On: OnMock, Duration: 20 * time.Minute, Every: 15 * time.Second,
		KVTokens: 1536, Overcommit: 3, MaxBatch: 16, Sequences: 24, Threads: 1, Seed: 1,
		HeapRate: 64 << 10, RSSRate: 512 << 10, Log: slog.New(slog.DiscardHandler),
	}
}

// warmup sets it if the user did not.
func (o *Options) warmup() {
	switch {
	case o.Warmup > 0:
	case o.Duration > 4*time.Minute:
		o.Warmup = memoryWarmup
	default:
		o.Warmup = o.Duration / 3
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
		{"on", o.On == OnMock || o.On == OnLlama, o.On, "mock, llama"},
		{"duration", o.Duration > 0, o.Duration, "more than 0"},
		{"every", o.Every > 0, o.Every, "more than 0"},
		{"warmup", o.Warmup >= 0 && o.Warmup < o.Duration, o.Warmup, "0 to less than duration"},
		{"kv_tokens", o.KVTokens >= 2*longest && o.KVTokens%256 == 0, o.KVTokens, fmt.Sprintf("a multiple of 256, %d and more", 2*longest)},
		{"kv_overcommit", o.Overcommit >= 1 && o.Overcommit <= 16, o.Overcommit, "1 to 16"},
		{"max_batch", o.MaxBatch >= 1 && o.MaxBatch <= o.Sequences, o.MaxBatch, "1 to sequences"},
		{"sequences", o.Sequences >= 1 && o.Sequences <= 256, o.Sequences, "1 to 256"},
		{"threads", o.Threads >= 1, o.Threads, "1 and more"},
		{"heap_rate", o.HeapRate >= 0, o.HeapRate, "0 and more"},
		{"rss_rate", o.RSSRate >= 0, o.RSSRate, "0 and more"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	return nil
}
