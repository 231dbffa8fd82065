package services

import (
	"context"

	"github.com/cadence-slo/cadence/bench/validate"
)

// ArrivalsCmd checks the load generator.
type ArrivalsCmd struct {
	validate.Options
	JSON bool `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (ArrivalsCmd) Help() string {
	return `It checks the instrument without any model: arrival processes over many seeds (Kolmogorov and Smirnov against the exponential
distribution, index of dispersion, mean rate), with processes that must be told apart from Poisson's; a stub that can do half of
what is offered, whose latency must grow without bound, and the same stub at half of its capacity; and how far the generator is
behind its schedule at several rates. It takes about five minutes, and wants a machine with nothing else to do. The exit status is
1 if a check fails.

Examples:
  cadence bench arrivals
  cadence bench arrivals --json > arrivals.json
  cadence bench arrivals --seeds 1000 --rate 8 --lag-rates 100,1000 --lag-length 30s`
}

// Run implements the command.
func (c *ArrivalsCmd) Run(ctx context.Context, g *Globals) error {
	c.Version = g.Version
	c.Note = func(what string) { g.Log.Info("checking", "what", what) }
	report, err := validate.Run(ctx, c.Options)
	if err != nil {
		return err
	}
	return deliver(g.Out, report, c.JSON, report.Passed, ErrTarget)
}
