package ladder

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/alecthomas/kong"
	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/scheduler"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// flags are those of `cadence up` that the simulator understands, by the same names: an arm has one set of arguments,
// whatever it runs on.
type flags struct {
	KVTokens      int    `name:"kv-tokens" default:"16384"`
	Sequences     int    `default:"64"`
	EngineBatch   int    `default:"512"`
	ContextTokens int    `default:"4096"`
	MaxOpen       int    `default:"0"` // unlike the ingress's, which are 8192 and 1024: no bound
	MaxWaiting    int    `default:"0"`
	Admission     string `default:"none" enum:"marginal,online-u80,queue-depth,in-flight,none"` // without objectives, which most ladders do not send, all are none
	// AdmissionLimit is of queue-depth and in-flight.
	AdmissionLimit int              `default:"0"`
	Worker         worker.Config    `embed:"" prefix:"worker-"`
	Scheduler      scheduler.Config `embed:"" prefix:"scheduler-"`
}

// parseFlags reads arguments as `cadence up` would, or returns ErrConfig for one that the simulator has no use for.
func parseFlags(args []string) (*flags, error) {
	f := &flags{}
	k, err := kong.New(f, kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) {}))
	if err != nil {
		return nil, fmt.Errorf("ladder: %w", err)
	}
	if _, err := k.Parse(args); err != nil {
		return nil, fmt.Errorf("%w: the simulator cannot take %q: %v", ErrConfig, args, err) //nolint:errorlint // kong's own exit status is for the command line
	}
	if err := f.Worker.Validate(); err != nil {
		return nil, err
	}
	return f, f.Scheduler.Validate()
}

// batch is how the worker would plan, or an error where it would not start: the engine has less than it asks for.
func (f *flags) batch() (batch.Config, error) {
	info := worker.Info{KVCells: f.KVTokens, Sequences: f.Sequences, BatchTokens: f.EngineBatch, ContextTokens: f.ContextTokens, Sharing: true}
	if err := f.Worker.Fits(info); err != nil {
		return batch.Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return f.Worker.Planner(info), nil
}

// admit puts the rule of admission before a simulation.
func (f *flags) admit(cfg *sim.Config, p *profile.Profile) error {
	o := control.Options{Arm: f.Admission, Constant: float64(f.AdmissionLimit), Profile: p, Seed: cfg.Seed}
	if f.Admission == "online-u80" {
		o.Arm, o.Level = "online-bound", 0.8
	}
	_, err := control.Attach(cfg, o)
	return err
}

// sizes are the arguments by which an engine is as large as the profile says. Others may follow them.
func sizes(p *profile.Profile) []string {
	l := &p.Limits
	var args []string
	for _, s := range []struct {
		flag  string
		value int
	}{
		{"kv-tokens", l.KVTokens}, {"sequences", l.Sequences}, {"engine-batch", l.BatchTokens}, {"context-tokens", l.ContextTokens},
		{"worker-page-tokens", l.PageTokens}, {"worker-max-batch", l.MaxBatch}, {"worker-chunk-tokens", l.ChunkTokens},
	} {
		args = append(args, "--"+s.flag+"="+strconv.Itoa(s.value))
	}
	return slices.Clip(args)
}
