package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/trainer/service"
	"github.com/jedib0t/go-pretty/v6/table"
)

// PredictorCmd groups the commands about models of latencies.
type PredictorCmd struct {
	List     PredictorListCmd     `cmd:"" help:"List the models that were a pool's, the present one first."`
	Show     PredictorShowCmd     `cmd:"" help:"Show what a model was learned from, and what its bounds are worth."`
	Rollback PredictorRollbackCmd `cmd:"" help:"Make an earlier model, or none, a pool's again."`
}

// Help implements kong.HelpProvider.
func (PredictorCmd) Help() string {
	return `Models of latencies are made by cadence train and cadence trainer (see docs/trainer.md); model files of engines are under cadence model.

Examples:
  cadence predictor list --nats-url nats://127.0.0.1:4222
  cadence predictor rollback --nats-url nats://127.0.0.1:4222`
}

// poolFlags say whose models are meant.
type poolFlags struct {
	Nats streams.Config `embed:"" prefix:"nats-"`
	Pool string         `help:"pool whose models are meant" default:"default"`
}

// open connects to the store. The client is to be closed.
func (f *poolFlags) open(ctx context.Context, g *Globals) (*streams.Client, *streams.ModelStore, error) {
	if err := needURL(f.Nats); err != nil {
		return nil, nil, err
	}
	if !schema.ValidName(f.Pool) {
		return nil, nil, fmt.Errorf("%w: pool is %q, want 1 to 64 of A-Z, a-z, 0-9, _ and -", ErrFlags, f.Pool)
	}
	client, err := (dialer{cfg: f.Nats, log: g.Log}).dial(ctx, "predictor", nil)
	if err != nil {
		return nil, nil, err
	}
	models, err := client.Models(ctx)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, models, nil
}

// listed is a line of a pool's history.
type listed struct {
	Revision uint64    `json:"revision"`
	At       time.Time `json:"at"`
	Artifact string    `json:"artifact"` // empty: none
	Reason   string    `json:"reason"`
	Source   string    `json:"source"`
	Current  bool      `json:"current"`
}

// PredictorListCmd lists models.
type PredictorListCmd struct {
	poolFlags
	JSON bool `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (PredictorListCmd) Help() string {
	return "Examples:\n  cadence predictor list --nats-url nats://127.0.0.1:4222\n  cadence predictor list --nats-url nats://127.0.0.1:4222 --pool gpu --json"
}

// Run implements the command.
func (c *PredictorListCmd) Run(ctx context.Context, g *Globals) error {
	client, models, err := c.open(ctx, g)
	if err != nil {
		return err
	}
	defer client.Close()
	history, err := models.History(ctx, c.Pool)
	if err != nil {
		return err
	}
	all := make([]listed, len(history))
	for i, p := range history {
		all[i] = listed{Revision: p.Revision, At: p.At, Artifact: p.Artifact, Reason: p.Reason, Source: p.Source, Current: i == 0}
	}
	if c.JSON {
		return printJSON(g.Out, all)
	}
	t := newTable(g.Out)
	t.AppendHeader(table.Row{"since", "model", "reason", "by", ""})
	for _, l := range all {
		now := ""
		if l.Current {
			now = "current"
		}
		t.AppendRow(table.Row{l.At.Format(time.DateTime), modelName(l.Artifact), l.Reason, l.Source, now})
	}
	t.Render()
	return nil
}

func modelName(digest string) string {
	if digest == "" {
		return "none: the physics alone"
	}
	return digest
}

// PredictorShowCmd shows a model.
type PredictorShowCmd struct {
	Model string `arg:"" optional:"" help:"first digits of a model in the pool's history, 6 and more, current, or a file" default:"current"`
	poolFlags
	JSON bool `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (PredictorShowCmd) Help() string {
	return "Examples:\n  cadence predictor show --nats-url nats://127.0.0.1:4222\n  cadence predictor show 3f9a1c --nats-url nats://127.0.0.1:4222 --json\n  cadence predictor show ./model.cad"
}

// shown is what is shown of a model.
type shown struct {
	Artifact string          `json:"artifact"`
	Header   artifact.Header `json:"header"`
	Trees    int             `json:"trees"`
	Alpha    float64         `json:"alpha"`
	Groups   int             `json:"groups"` // with a bound of their own
}

// Run implements the command.
func (c *PredictorShowCmd) Run(ctx context.Context, g *Globals) error {
	a, digest, err := c.find(ctx, g)
	if err != nil {
		return err
	}
	s := shown{Artifact: digest, Header: a.Header, Trees: a.Model.Trees(), Alpha: a.Calibration.Supported.All.Alpha, Groups: len(a.Calibration.Supported.Groups)}
	if c.JSON {
		return printJSON(g.Out, s)
	}
	printModel(g.Out, &s)
	return nil
}

// find reads a file, or the pool's store.
func (c *PredictorShowCmd) find(ctx context.Context, g *Globals) (*artifact.Artifact, string, error) {
	if c.Nats.URL == "" {
		a, err := readArtifact(c.Model)
		if err != nil {
			return nil, "", fmt.Errorf("%w (a model in a pool's history needs nats-url)", err)
		}
		b, err := a.Encode()
		return a, artifact.Digest(b), err
	}
	client, models, err := c.open(ctx, g)
	if err != nil {
		return nil, "", err
	}
	defer client.Close()
	history, err := models.History(ctx, c.Pool)
	if err != nil {
		return nil, "", err
	}
	p, err := service.Find(history, c.Model)
	if err != nil {
		return nil, "", err
	}
	file, err := models.Get(ctx, p.Artifact)
	if err != nil {
		return nil, "", err
	}
	a, err := artifact.Decode(file)
	return a, p.Artifact, err
}

func printModel(w io.Writer, s *shown) {
	h := &s.Header
	t := newTable(w)
	t.AppendRows([]table.Row{
		{"model", s.Artifact},
		{"made", fmt.Sprintf("%s by cadence %s", h.Created.Format(time.DateTime), h.Code)},
		{"engine", fmt.Sprintf("%s, profile %s (%s)", h.Backend, h.Profile.Name, h.Profile.Source)},
		{"learned from", fmt.Sprintf("requests of %s to %s", h.From.Format(time.DateTime), h.To.Format(time.DateTime))},
		{"trees", fmt.Sprintf("%d of %d features", s.Trees, len(h.Features))},
		{"bounds", fmt.Sprintf("at %.3f; %d groups have their own", 1-s.Alpha, s.Groups)},
	})
	t.Render()
	c := newTable(w)
	c.AppendHeader(table.Row{"held out", "coverage", "95 %", "requests", "median bound, s"})
	for i := range h.Coverage {
		cell := &h.Coverage[i]
		kept, _ := cell.Coverage.Range()
		c.AppendRow(table.Row{groupName(cell.Group), fmt.Sprintf("%.4f", kept), fmt.Sprintf("%.3f to %.3f", cell.Low, cell.High), cell.Coverage.Rows(),
			fmt.Sprintf("%.3f", cell.MedianBound)})
	}
	c.Render()
	r := newTable(w)
	r.AppendHeader(table.Row{"regime", "seen", "kept"})
	for _, x := range h.Strata {
		r.AppendRow(table.Row{x.Name, x.Seen, x.Kept})
	}
	r.Render()
}

func groupName(g *conformal.Group) string {
	switch {
	case g == nil:
		return "all"
	case g.Class == 1:
		return fmt.Sprintf("guaranteed, load decile %d", g.Decile+1)
	}
	return fmt.Sprintf("best effort, load decile %d", g.Decile+1)
}

// PredictorRollbackCmd moves a pool's pointer back.
type PredictorRollbackCmd struct {
	poolFlags
	To     string `help:"first digits of an earlier model, 6 and more, or none (the physics alone); empty: the model before the present one" placeholder:"MODEL"`
	Reason string `help:"why, for the event log" placeholder:"TEXT"`
	JSON   bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (PredictorRollbackCmd) Help() string {
	return "Ingresses follow within moments. A trainer that runs goes on from there: stop it first, or it may publish again.\n\n" +
		"Examples:\n  cadence predictor rollback --nats-url nats://127.0.0.1:4222 --reason \"bounds too wide\"\n" +
		"  cadence predictor rollback --nats-url nats://127.0.0.1:4222 --to 3f9a1c\n  cadence predictor rollback --nats-url nats://127.0.0.1:4222 --to none"
}

// Run implements the command.
func (c *PredictorRollbackCmd) Run(ctx context.Context, g *Globals) error {
	client, models, err := c.open(ctx, g)
	if err != nil {
		return err
	}
	defer client.Close()
	name, err := instance("operator")
	if err != nil {
		return err
	}
	was, is, err := service.Rollback(ctx, client, models, c.Pool, c.To, name, c.Reason, time.Now())
	if errors.Is(err, service.ErrModel) {
		return fmt.Errorf("%w (cadence predictor list shows the history)", err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(g.Out, map[string]string{"pool": c.Pool, "was": was.Artifact, "is": is.Artifact})
	}
	_, err = fmt.Fprintf(g.Out, "pool %s: from %s back to %s\n", c.Pool, modelName(was.Artifact), modelName(is.Artifact))
	return err
}
