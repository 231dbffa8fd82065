package services

import (
	"context"
	"errors"
	"io"

	"github.com/cadence-slo/cadence/bench/overhead"
)

// BenchCmd groups the measurements.
type BenchCmd struct {
	Overhead      OverheadCmd      `cmd:"" help:"Measure what the pipeline adds to an engine that takes no time."`
	PeerEngine    PeerEngineCmd    `cmd:"" help:"Compare the pipeline with llama-server on the same model."`
	EngineProfile EngineProfileCmd `cmd:"" help:"Say what a step of the engine is spent on, with a CPU profile and a flame graph."`
	Soak          SoakCmd          `cmd:"" help:"Run a worker under a load that never lets it rest, and look for what it loses."`
	Fidelity      FidelityCmd      `cmd:"" help:"Compare simulator, mock and llama.cpp on the same requests, with a profile calibrated on the latter."`
	Arrivals      ArrivalsCmd      `cmd:"" help:"Check the load generator: arrival processes, an overloaded stub, dispatch lag."`
	Admission     AdmissionCmd     `cmd:"" help:"Compare rules of admission in the simulator, at every load."`
}

// Help implements kong.HelpProvider.
func (BenchCmd) Help() string {
	return "Examples:\n  cadence bench overhead --json\n  cadence bench peer-engine --model 120m --threads 2\n  cadence bench soak --duration 1m"
}

// OverheadCmd measures the pipeline's overhead.
type OverheadCmd struct {
	overhead.Options
	JSON bool `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (OverheadCmd) Help() string {
	return "It starts `cadence up` with a mock engine that takes no time, sends requests at a steady rate, and compares the time to the first\ntoken with the engine's own; then it looks for the highest rate that is sustained. The exit status is 1 if a target is missed.\n\nExamples:\n  cadence bench overhead\n  cadence bench overhead --json --length 60s"
}

// ErrTarget is returned when a measurement misses its target.
var ErrTarget = errors.New("a target was missed")

// Run implements the command.
func (c *OverheadCmd) Run(ctx context.Context, g *Globals) error {
	c.Options.Log = g.Log
	report, err := overhead.Run(ctx, c.Options)
	if err != nil {
		return err
	}
	return deliver(g.Out, &report, c.JSON, report.Passed, ErrTarget)
}

// deliver prints what a measurement found, and returns missed if that is not what it should be.
func deliver(out io.Writer, report interface{ Write(io.Writer) error }, asJSON, passed bool, missed error) (err error) {
	if asJSON {
		err = printJSON(out, report)
	} else {
		err = report.Write(out)
	}
	if err == nil && !passed {
		err = missed
	}
	return err
}
