package services

import (
	"context"
	"fmt"
	"os"

	"github.com/cadence-slo/cadence/bench/calibrate"
)

// CalibrateCmd measures an engine and makes a profile of it.
type CalibrateCmd struct {
	calibrate.EngineOptions
	calibrate.Options
	MockProfile string `help:"on mock: what it takes its time from: an embedded profile or a file" placeholder:"NAME|FILE"`
	Quick       bool   `help:"few and short experiments: seconds instead of minutes"`
	Name        string `help:"name of the profile; empty: of engine, model and threads"`
	Out         string `help:"file to write the profile to" short:"o" type:"path"`
	Plot        string `help:"file to draw measured against predicted steps in: .svg, .png or .pdf" type:"path"`
	JSON        bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (CalibrateCmd) Help() string {
	return `It drives the engine in this process through prefills in chunks of several sizes, batches that decode at several depths of context,
and requests that come and go, fits the time of a step by least squares, and shows the error on steps that were held out. The
profile is what the simulator and the mock engine take their time from. It wants a machine with nothing else to do.

Examples:
  cadence calibrate --model 120m --threads 1 --out profile.json
  cadence calibrate --model 0.5b --threads 2 --plot residuals.svg --json
  cadence calibrate --on mock --mock-profile seed-laptop --quick`
}

// Run implements the command.
func (c *CalibrateCmd) Run(ctx context.Context, g *Globals) error {
	if c.Quick {
		c.Options.Quick()
	}
	if c.MockProfile != "" {
		var err error
		if c.EngineOptions.Profile, err = openProfile(c.MockProfile); err != nil {
			return err
		}
	}
	report, finish := count(g.Err, "experiments")
	defer finish()
	r, err := calibrate.Run(ctx, c.EngineOptions, c.Options, c.Name, g.Version, g.Log, report)
	if err != nil {
		return err
	}
	finish()
	if c.Out != "" {
		b, err := r.Profile.Encode()
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.Out, b, 0o644); err != nil {
			return fmt.Errorf("out: %w", err)
		}
	}
	if c.Plot != "" {
		if err := r.Plot(c.Plot); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(g.Out, r)
	}
	return r.Write(g.Out)
}
