package peer

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Rung is one mode of the worker.
type Rung struct {
	Name string   `json:"name"`
	Args []string `json:"args"` // of cadence up
}

// DefaultRungs are the modes from the simplest to the best: each is to serve more than the one before.
func DefaultRungs() []Rung {
	const cache = "--worker-prefix-cache="
	return []Rung{
		{"fifo", []string{"--worker-mode", "fifo", cache + "false"}},
		{"static", []string{"--worker-mode", "static", "--worker-max-batch", "8", "--worker-static-wait", "50ms", cache + "false"}},
		{"continuous", []string{"--worker-mode", "continuous", cache + "false"}},
		{"continuous+cache", []string{"--worker-mode", "continuous", cache + "true"}},
	}
}

// RungsOptions says how to compare the modes. The tags are the flags of `cadence bench rungs`.
type RungsOptions struct {
	On       string `help:"engine: llama or mock" enum:"llama,mock" default:"llama"`
	Model    string `help:"model on llama: tiny, 120m or 0.5b (random weights, made here), the name of a pulled one, or a GGUF file" default:"120m"`
	ModelDir string `help:"directory of models; empty: the user's cache" type:"path"`
	Threads  int    `help:"threads of llama.cpp" default:"1"`
	Workload string `help:"workload: seed, unique, shared, or a file (see bench/workload)" default:"seed"`
	Seed     uint64 `help:"seed of requests and arrivals" default:"1"`
	Quick    bool   `help:"one short run of each: to see that it works, not to measure"`

	Load     float64       `help:"offered rate, as a multiple of what fifo serves" default:"1.6"`
	Capacity int           `help:"requests with which fifo's capacity is measured" default:"24"`
	Length   time.Duration `help:"time of arrivals of each run" default:"60s"`
	Drain    time.Duration `help:"how long after the last arrival answers are waited for" default:"2m"`
	Repeats  int           `help:"runs of each mode; the order is rotated" default:"3"`

	SLOTTFT time.Duration `help:"objective: time to the first token; 0: ten times that of a request that is alone" default:"0s" name:"slo-ttft"`
	SLOE2E  time.Duration `help:"objective: time to the last token; 0: five times that of a request that is alone" default:"0s" name:"slo-e2e"`

	KVTokens  int      `help:"tokens of KV cache" default:"32768" name:"kv-tokens"`
	Sequences int      `help:"sequence ids of the engine" default:"64"`
	UpArgs    []string `help:"further arguments of cadence up, for every mode" sep:"none"`
	Analytics bool     `help:"run ClickHouse and the projector beside it" default:"false" negatable:""`

	// Rungs are the modes in the order that is to hold; the first tells the capacity.
	Rungs      []Rung       `kong:"-"`
	Executable string       `kong:"-"`
	Version    string       `kong:"-"`
	Log        *slog.Logger `kong:"-"`
}

// DefaultRungsOptions returns the defaults of the flags, without an executable.
func DefaultRungsOptions() RungsOptions {
	return RungsOptions{
		On: "llama", Model: "120m", Threads: 1, Workload: "seed", Seed: 1, Load: 1.6, Capacity: 24, Length: time.Minute, Drain: 2 * time.Minute, Repeats: 3,
		KVTokens: 32768, Sequences: 64, Rungs: DefaultRungs(), Log: slog.New(slog.DiscardHandler),
	}
}

func (o *RungsOptions) quick() {
	o.Capacity, o.Length, o.Drain, o.Repeats = min(o.Capacity, 6), min(o.Length, 6*time.Second), min(o.Drain, 30*time.Second), 1
}

// Validate returns ErrConfig for the first key that is outside its range.
func (o *RungsOptions) Validate() error {
	return check([]constraint{
		{"on", slices.Contains([]string{"llama", "mock"}, o.On), o.On, "llama, mock"},
		{"model", o.Model != "" || o.On == "mock", o.Model, "a name or a file"},
		{"threads", o.Threads >= 1, o.Threads, "1 and more"},
		{"workload", o.Workload != "", o.Workload, "a name or a file"},
		{"load", o.Load > 0, o.Load, "more than 0"},
		{"capacity", o.Capacity >= 2, o.Capacity, "2 and more"},
		{"length", o.Length > 0, o.Length, "more than 0"},
		{"drain", o.Drain >= 0, o.Drain, "0 and more"},
		{"repeats", o.Repeats >= 1, o.Repeats, "1 and more"},
		{"slo-ttft", o.SLOTTFT >= 0, o.SLOTTFT, "0 (by measurement) and more"},
		{"slo-e2e", o.SLOE2E >= 0, o.SLOE2E, "0 (by measurement) and more"},
		{"kv-tokens", o.KVTokens >= 1, o.KVTokens, "1 and more"},
		{"sequences", o.Sequences >= 1 && o.Sequences <= 256, o.Sequences, "1 to 256"},
	})
}

// PickRungs returns the rungs with the given names, in the order of the names; no names are all. It returns ErrConfig for a
// name that no rung has.
func PickRungs(all []Rung, names []string) ([]Rung, error) {
	if len(names) == 0 {
		return all, nil
	}
	var out []Rung
	for _, name := range names {
		i := slices.IndexFunc(all, func(r Rung) bool { return r.Name == name })
		if i < 0 {
			known := make([]string, len(all))
			for k := range all {
				known[k] = all[k].Name
			}
			return nil, fmt.Errorf("%w: rungs has %q, allowed: %s", ErrConfig, name, strings.Join(known, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}
