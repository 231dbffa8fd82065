package services

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cadence-slo/cadence/bench/report"
)

// ReportCmd makes tables and figures from records.
type ReportCmd struct {
	Paths    []string `arg:"" name:"path" help:"directory of records; with --embed Markdown files"`
	Table    []string `help:"print this table only (repeatable)" placeholder:"NAME"`
	JSON     bool     `help:"print JSON"`
	HTML     string   `help:"write one page with all tables and figures" placeholder:"FILE"`
	Figures  string   `help:"write the figures, each as SVG and PNG" placeholder:"DIR"`
	Markdown string   `help:"write the tables" placeholder:"FILE"`
	SLO      []string `help:"objective instead of the runs' own: [CLASS:]KEY=DURATION[,…] of ttft, tpot and e2e (repeatable)" sep:"none" placeholder:"SLO"`
	Overload float64  `help:"rate (req/s) at which arms are compared past the knee; 0: 1.5 times the best knee of those that shed nothing, or the next above"`
	Baseline string   `help:"arm that every other is compared with; empty: each with the one before" placeholder:"ARM"`
	Partial  bool     `help:"count runs that were stopped before their end"`
	Embed    bool     `help:"put tables into Markdown files, between their markers"`
	Check    bool     `help:"with --embed: change nothing, and fail if a file differs from its records"`
}

// Help implements kong.HelpProvider.
func (ReportCmd) Help() string {
	return `Everything comes from the records that runs left (run.json and requests.parquet). Invalid and partial runs are listed, not counted.

A Markdown file asks for a table with two lines, between which it is put; DIR is relative to the file:

  <!-- cadence:report headline DIR [overload=RATE] [slo=SLO] [baseline=ARM] [partial] -->
  <!-- /cadence:report -->

Examples:
  cadence report results/ladder
  cadence report results/ladder --table headline --table worse
  cadence report results/ladder --html report.html --figures docs/figures
  cadence report results/ladder --slo e2e=2s,ttft=500ms --json
  cadence report results/queue-budget --baseline disabled
  cadence report --embed README.md docs/results.md
  cadence report --embed --check README.md docs/results.md`
}

// Run implements the command.
func (c *ReportCmd) Run(g *Globals) error {
	slos, err := report.ParseSLOs(c.SLO)
	if err != nil {
		return fmt.Errorf("%w: --slo: %w", ErrFlags, err)
	}
	options := report.Options{SLOs: slos, Partial: c.Partial, Overload: c.Overload, Baseline: c.Baseline}
	if c.Embed {
		return c.embed(g.Out, &report.Library{Options: options})
	}
	if c.Check {
		return fmt.Errorf("%w: --check says nothing without --embed", ErrFlags)
	}
	if len(c.Paths) != 1 {
		return fmt.Errorf("%w: give one directory of records", ErrFlags)
	}
	r, err := report.Load(c.Paths[0], options)
	if err != nil {
		return err
	}
	tables, err := c.tables(r)
	if err != nil {
		return err
	}
	if err := c.write(r, tables); err != nil {
		return err
	}
	switch {
	case c.JSON:
		d, err := r.Document()
		if err != nil {
			return err
		}
		return printJSON(g.Out, d)
	case c.HTML != "" || c.Figures != "" || c.Markdown != "":
		return nil
	}
	return report.Write(g.Out, tables)
}

// tables are those that were asked for, or all.
func (c *ReportCmd) tables(r *report.Report) ([]*report.Table, error) {
	if len(c.Table) == 0 {
		return r.Tables()
	}
	var out []*report.Table
	for _, name := range c.Table {
		t, err := r.Table(name)
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, fmt.Errorf("%w: nothing for table %q", report.ErrRecords, name)
		}
		out = append(out, t)
	}
	return out, nil
}

// write writes the files.
func (c *ReportCmd) write(r *report.Report, tables []*report.Table) error {
	if c.Markdown != "" {
		if err := os.WriteFile(c.Markdown, []byte(report.Markdown(r.Title(), tables)), 0o644); err != nil {
			return err
		}
	}
	if c.HTML == "" && c.Figures == "" {
		return nil
	}
	figures, err := r.Figures()
	if err != nil {
		return err
	}
	if c.Figures != "" {
		if err := report.Save(c.Figures, figures); err != nil {
			return err
		}
	}
	if c.HTML == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.HTML), 0o755); err != nil {
		return err
	}
	f, err := os.Create(c.HTML)
	if err != nil {
		return err
	}
	return errors.Join(r.Page(f, tables, figures), f.Close())
}

// embed rewrites files, or says how they would change.
func (c *ReportCmd) embed(w io.Writer, library *report.Library) error {
	drifted := 0
	for _, path := range c.Paths {
		diff, err := library.EmbedFile(path, c.Check)
		if err != nil {
			return err
		}
		if diff == "" {
			continue
		}
		drifted++
		if c.Check {
			fmt.Fprintf(w, "%s differs from its records:\n%s", path, diff)
		} else {
			fmt.Fprintf(w, "%s: tables renewed\n", path)
		}
	}
	if c.Check && drifted > 0 {
		return fmt.Errorf("%w: %d of %d files; `cadence report --embed` renews them", report.ErrDrift, drifted, len(c.Paths))
	}
	return nil
}
