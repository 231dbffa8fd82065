package services

import (
	"context"
	"errors"

	"github.com/cadence-slo/cadence/bench/soak"
)

// SoakCmd runs a worker for long and looks for leaks.
type SoakCmd struct {
	soak.Options
	JSON bool `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (SoakCmd) Help() string {
	return `It runs a worker on an embedded stream server in this process, with a KV cache so small that eviction and preemption never stop,
under random requests: shared prefixes, cancels, attempts that newer ones replace, tenants, deadlines. The worker verifies its
books after each step. Every few seconds the load pauses, everything must have come back, and heap, resident memory and
goroutines are measured. On the mock every token is checked. The exit status is 1 if anything is lost or wrong.

Examples:
  cadence bench soak
  cadence bench soak --on llama --json > soak.json
  cadence bench soak --duration 1m --every 5s --warmup 20s`
}

// ErrLeak is returned when a soak found something lost or wrong.
var ErrLeak = errors.New("something is lost or wrong")

// Run implements the command.
func (c *SoakCmd) Run(ctx context.Context, g *Globals) error {
	c.Options.Log, c.Options.Progress = g.Log, g.Err
	report, err := soak.Run(ctx, c.Options)
	if err != nil {
		return err
	}
	return deliver(g.Out, report, c.JSON, report.Passed, ErrLeak)
}
