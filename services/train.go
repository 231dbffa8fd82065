package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/trainer/service"
	"github.com/jedib0t/go-pretty/v6/table"
)

// TrainCmd trains once.
type TrainCmd struct {
	From string         `help:"where what requests took is read: clickhouse, stream (the events that NATS keeps) or file" enum:"clickhouse,stream,file" default:"clickhouse"`
	File string         `help:"event log to read (--from file): the simulator's, or EVENTS exported in the same form" type:"path" placeholder:"FILE"`
	Nats streams.Config `embed:"" prefix:"nats-"`
	tracesFlags
	service.Config
	Champion string `help:"file of the model to compare with, where no NATS server tells the running one" type:"path" placeholder:"FILE"`
	Out      string `help:"write the model to a file, too, whatever the comparison says" short:"o" type:"path" placeholder:"FILE"`
	DryRun   bool   `help:"compare, and publish nothing"`
	JSON     bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (TrainCmd) Help() string {
	return `It makes a model of the latencies of a pool's requests, compares it with the running one on requests that neither has learned from, and
publishes it if it is not worse. See docs/trainer.md.

Examples:
  cadence train --nats-url nats://127.0.0.1:4222 --dry-run
  cadence train --nats-url nats://127.0.0.1:4222 --from stream --json
  cadence train --from file --file events.jsonl --profile mock --fingerprint mock/1 --out model.cad`
}

// Run implements the command.
func (c *TrainCmd) Run(ctx context.Context, g *Globals) error {
	if err := c.validate(); err != nil {
		return err
	}
	o := service.Options{Config: c.Config, Code: g.Version, Log: g.Log}
	var err error
	if o.Name, err = instance("train"); err != nil {
		return err
	}
	if c.Champion != "" {
		if o.Champion, err = readArtifact(c.Champion); err != nil {
			return err
		}
	}
	if c.Nats.URL != "" {
		if o.Client, err = (dialer{cfg: c.Nats, log: g.Log}).dial(ctx, "train", nil); err != nil {
			return err
		}
		defer o.Client.Close()
		if o.Models, err = o.Client.Models(ctx); err != nil {
			return err
		}
	}
	stop := func() {}
	switch c.From {
	case fromStream:
		o.Source = service.Stream{Client: o.Client}
	case fromFile:
		o.Source = logFile(c.File)
	default:
		if o.Source, stop, err = c.open(ctx); err != nil {
			return err
		}
	}
	defer stop()
	s, err := service.New(o)
	if err != nil {
		return err
	}
	defer s.Close()
	g.Log.Info("training", "pool", c.Pool, "from", o.Source.Name())
	r, file, err := s.Train(ctx, c.DryRun)
	if err != nil {
		return err
	}
	if c.Out != "" {
		if err := writeWhole(c.Out, file); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(g.Out, r)
	}
	printReport(g.Out, r, c.DryRun)
	return nil
}

func (c *TrainCmd) validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	switch {
	case (c.From == fromFile) != (c.File != ""):
		return fmt.Errorf("%w: file is %q with from %s: they go together", ErrFlags, c.File, c.From)
	case c.From == fromStream && c.Nats.URL == "":
		return fmt.Errorf("%w: nats-url is empty: from stream needs a NATS server", ErrFlags)
	case c.Nats.URL == "" && !c.DryRun && c.Out == "":
		return fmt.Errorf("%w: nats-url is empty: there is nowhere to publish to; allowed without it: dry-run, out", ErrFlags)
	case c.Nats.URL != "" && c.Champion != "":
		return fmt.Errorf("%w: champion is %s with a nats-url: the running model is the pool's", ErrFlags, c.Champion)
	}
	if c.Nats.URL != "" {
		return c.Nats.Validate()
	}
	return nil
}

// logFile reads an event log.
func logFile(path string) service.Log {
	return service.Log{Read: func(add func(*schema.Stored) error) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return sim.ReadLog(f, add)
	}}
}

// readArtifact reads a model's file.
func readArtifact(path string) (*artifact.Artifact, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	a, err := artifact.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// writeWhole writes a file that appears under its name with all of it.
func writeWhole(path string, b []byte) error {
	if err := os.WriteFile(path+".tmp", b, 0o644); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return errors.Join(err, os.Remove(path+".tmp"))
	}
	return nil
}

func printReport(w io.Writer, r *service.Report, try bool) {
	verdict := "rejected"
	switch {
	case r.Published:
		verdict = "published"
	case r.Swap && try:
		verdict = "would be published"
	case r.Swap:
		verdict = "good, and there is nowhere to publish it"
	}
	bounds := func(c *service.Coverage) string {
		return fmt.Sprintf("%.4f in [%.4f, %.4f] of %d, median bound %.3f s, %d without one", c.Kept, c.Low, c.High, c.Rows, c.MedianBound, c.Unbounded)
	}
	t := newTable(w)
	t.AppendRows([]table.Row{
		{"model", r.Artifact},
		{"verdict", fmt.Sprintf("%s: %s", verdict, r.Reason)},
		{"why", r.Message},
		{"pool", fmt.Sprintf("%s, engine %s, profile %s", r.Pool, r.Fingerprint, r.Profile)},
		{"learned from", fmt.Sprintf("%d requests in %d rounds, %s to %s (%s)", r.Rows, r.Rounds, r.From.Format(time.DateTime), r.To.Format(time.DateTime), r.Source)},
		{"of them", fmt.Sprintf("%d fit, %d calibrate, %d test; compared on %d; %d were cut short", r.Fit, r.Calibrate, r.Test, r.Compared, r.Censored)},
		{"error", fmt.Sprintf("%.4f, of the physics %.4f (median |log|), %d trees", r.Error, r.PhysicsError, r.Trees)},
		{fmt.Sprintf("bounds at %.3f", r.Level), bounds(&r.Candidate)},
	})
	if r.Running != nil {
		t.AppendRow(table.Row{"running model", r.Champion})
		t.AppendRow(table.Row{"its bounds", fmt.Sprintf("%s; the candidate's are %.3f times as wide", bounds(r.Running), r.Width)})
	}
	for why, n := range r.Skipped {
		t.AppendRow(table.Row{"skipped", fmt.Sprintf("%d %s", n, why)})
	}
	t.Render()
}
