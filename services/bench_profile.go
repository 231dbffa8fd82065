package services

import (
	"context"

	"github.com/cadence-slo/cadence/bench/enginecore"
)

// EngineProfileCmd says what an engine step is spent on.
type EngineProfileCmd struct {
	enginecore.Options
	JSON bool `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (EngineProfileCmd) Help() string {
	return `It keeps a worker busy with as many requests as it runs at once, on an embedded stream server in this process, and reports what a
step is spent on: decode, sampling, planner, pages, prefix tree, moves, text, publishing. Wall time comes from clocks around the
interfaces, the rest from a CPU profile of the Go runtime, in which time inside llama.cpp counts for the Go function that called
it; threads that llama.cpp starts are not in it. With --cores naive, blocks on the pages and the prefix tree of the tests, which
search everything, alternate with the real ones. The exit status does not depend on the figures.

Examples:
  cadence bench engine-profile --out profile
  cadence bench engine-profile --cores naive --blocks 4 --json > profile.json
  cadence bench engine-profile --model synth:tiny --length 5s --warmup 2s`
}

// Run implements the command.
func (c *EngineProfileCmd) Run(ctx context.Context, g *Globals) error {
	c.Options.Log, c.Options.Progress = g.Log, g.Err
	report, err := enginecore.Profile(ctx, c.Options)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(g.Out, report)
	}
	return report.Write(g.Out)
}
