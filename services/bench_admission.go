package services

import (
	"context"
	"io"
	"slices"

	"github.com/cadence-slo/cadence/bench/admission"
)

// AdmissionCmd asks questions about admission in the simulator.
type AdmissionCmd struct {
	admission.Options
	Profile string `help:"profile of engine and controller: an embedded one or a file" default:"seed-laptop" placeholder:"NAME|FILE"`
	JSON    bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (AdmissionCmd) Help() string {
	return `The experiment arms compares rules: every arm runs in virtual time at every offered load with every seed, on the same requests at the
same times. Before, the best goodput without admission is measured, of which the loads are multiples; what is fitted once is fitted to a
run below the knee; and the constant of each arm is chosen from as many candidates as that of any other, on seeds that are not reported.
All of it takes minutes; it uses every core, and the result does not depend on how many there are.

Others ask of the same runs what promises are worth (guarantee), what happens when the engine's speed changes (shift), when the controller
believes in another engine (foreign), when several ingresses decide for themselves (ingresses), at loads far above what was learned at
(far), and whether rules swing (damping).

Examples:
  cadence bench admission --experiment guarantee --json --out figures > admission-guarantee.json
  cadence bench admission --quick
  cadence bench admission --json --out figures > admission.json
  cadence bench admission --arms online-u80,marginal --rates 1.4,1.9,2.6 --seeds 20`
}

// Run implements the command.
func (c *AdmissionCmd) Run(ctx context.Context, g *Globals) error {
	o := c.Options
	o.Version = g.Version
	var err error
	if o.Profile, err = openProfile(c.Profile); err != nil {
		return err
	}
	show, finish := count(g.Err, "simulating")
	o.Progress = show
	var report interface {
		Write(w io.Writer) error
		Save(dir string) error
	}
	if slices.Contains(admission.Experiments()[1:], o.Experiment) {
		report, err = admission.Try(ctx, o)
	} else {
		report, err = admission.Compare(ctx, o)
	}
	finish()
	if err != nil {
		return err
	}
	if o.Out != "" {
		if err := report.Save(o.Out); err != nil {
			return err
		}
	}
	return deliver(g.Out, report, c.JSON, true, nil)
}
