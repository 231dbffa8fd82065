package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cadence-slo/cadence/bench/gate"
)

// GateCmd looks for regressions.
type GateCmd struct {
	Budget  string        `help:"file with what is expected" type:"path" default:"bench/gate/budget.json"`
	Rates   []float64     `help:"judge at these of the budget's rates alone (requests/s)"`
	UpArgs  []string      `help:"further arguments of cadence up, as a change to be judged" sep:"none" placeholder:"--FLAG=VALUE"`
	Limit   time.Duration `help:"end by then, and do nothing again for which no time is left; 0: no limit" default:"3m"`
	Refresh bool          `help:"measure what is to be expected from now on, and write the file"`
	Passes  int           `help:"with --refresh: how many times it is measured; the medians count" default:"3"`
	Length  time.Duration `help:"with --refresh: time of arrivals, at all rates together" default:"90s"`
	Out     string        `help:"directory of the records; empty: they are not kept" type:"path"`
	JSON    bool          `help:"print JSON"`

	// judge measures; nil: gate.Run.
	judge func(context.Context, *gate.Budget, gate.Options) (*gate.Report, error)
}

// Help implements kong.HelpProvider.
func (GateCmd) Help() string {
	return `It runs ` + "`cadence up`" + ` with the mock engine at a rate below the knee and at one beyond it, 90 seconds together, and compares goodput,
p99 and failures with what is expected. Exit status: 0 nothing is worse; 1 a regression (a p99 of more than 15 % above, goodput of more
than 10 % below, 0.5 % more failures, no answers at all); 2 the run says nothing (the generator was late, the machine too slow, the budget
of something else). What says nothing is done again, and a regression confirmed, as long as there is time. make ends with 2 either way.

Examples:
  cadence gate
  cadence gate --rates 6 --limit 1m --up-args=--worker-max-batch=1
  cadence gate --refresh --passes 5`
}

// ErrRegression is returned when something is worse than the budget allows.
var ErrRegression = errors.New("a regression")

// noVerdict is an error after which nothing can be said.
type noVerdict struct{ error }

func (e noVerdict) Unwrap() error { return e.error }

// ExitCode tells it from a regression.
func (e noVerdict) ExitCode() int { return int(gate.Invalid) }

// Run implements the command.
func (c *GateCmd) Run(ctx context.Context, g *Globals) error {
	exit, err := c.run(ctx, g)
	switch {
	case err != nil:
		return noVerdict{err}
	case exit == gate.Invalid:
		return noVerdict{errors.New("no verdict")}
	case exit == gate.Regression:
		return ErrRegression
	}
	return nil
}

func (c *GateCmd) run(ctx context.Context, g *Globals) (gate.Exit, error) {
	o := gate.Options{Dir: c.Out, UpArgs: c.UpArgs, Limit: c.Limit, Executable: executable(), Version: g.Version, Log: g.Log}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "cadence-gate-")
		if err != nil {
			return gate.Invalid, err
		}
		defer os.RemoveAll(dir)
		o.Dir = dir
	}
	if c.Refresh {
		return gate.Passed, c.refresh(ctx, g, o)
	}
	b, err := gate.Open(c.Budget)
	if err != nil {
		return gate.Invalid, err
	}
	if len(c.Rates) > 0 {
		if b, err = b.At(c.Rates); err != nil {
			return gate.Invalid, err
		}
	}
	judge := c.judge
	if judge == nil {
		judge = gate.Run
	}
	r, err := judge(ctx, b, o)
	if err != nil {
		return gate.Invalid, err
	}
	if c.JSON {
		return r.Exit, printJSON(g.Out, r)
	}
	return r.Exit, r.Write(g.Out)
}

func (c *GateCmd) refresh(ctx context.Context, g *Globals, o gate.Options) error {
	if len(c.UpArgs) > 0 || len(c.Rates) > 0 {
		return fmt.Errorf("%w: up-args or rates with refresh: a budget is of the pipeline as it is, and of all rates", ErrFlags)
	}
	s := gate.DefaultSettings()
	s.Length = c.Length / time.Duration(len(s.Rates))
	b, err := gate.Refresh(ctx, s, c.Passes, o)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(g.Out, b); err != nil {
			return err
		}
	}
	return b.Write(c.Budget)
}
