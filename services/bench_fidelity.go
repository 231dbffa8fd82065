package services

import (
	"context"
	"fmt"

	"github.com/cadence-slo/cadence/bench/fidelity"
)

// FidelityCmd compares the simulator, the mock and llama.cpp.
type FidelityCmd struct {
	fidelity.Options
	Profile string `help:"profile of simulator and mock without llama: an embedded one or a file" default:"mock" placeholder:"NAME|FILE"`
	JSON    bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (FidelityCmd) Help() string {
	return `It offers the same requests at the same times to llama.cpp, the simulator and the mock engine at several loads, and compares E2E (p50,
p99) and goodput of each pair. Simulator and mock take their time from a profile that is fitted to the steps that llama.cpp made at that
load: how long each kind of step took, and nothing of when it was made. The exit status is 1 if a target is missed. On llama it takes about half an hour, and wants a machine with nothing else to do.

Examples:
  cadence bench fidelity --json
  cadence bench fidelity --on sim,mock --requests 100
  cadence bench fidelity --model 0.5b --loads 0.5,0.8 --out fidelity`
}

// Run implements the command.
func (c *FidelityCmd) Run(ctx context.Context, g *Globals) error {
	o := c.Options
	o.Executable, o.Version, o.Log = executable(), g.Version, g.Log
	o.Progress = func(what string) { fmt.Fprintln(g.Err, what) }
	var err error
	if o.Profile, err = openProfile(c.Profile); err != nil {
		return err
	}
	report, err := fidelity.Run(ctx, o)
	if err != nil {
		return err
	}
	return deliver(g.Out, report, c.JSON, report.Passed, ErrTarget)
}
