package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/ladder"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// LadderCmd runs a ladder.
type LadderCmd struct {
	Name string `arg:"" optional:"" help:"a ladder that comes with cadence, or a file; none: list them"`
	On   string `help:"what runs the arms: sim (virtual time), mock (the services with a stated cost model) or llama" enum:"sim,mock,llama" default:"sim"`
	Out  string `help:"directory of the records; one that holds a part of this ladder is completed; empty: ladder/NAME-ON" type:"path"`
	ladder.Change
	ModelDir     string `help:"directory of models; empty: the user's cache" type:"path"`
	Jsonl        bool   `help:"write each run's requests as lines of JSON, too"`
	RetryInvalid bool   `help:"run again what is complete but invalid"`
	TrustBuild   bool   `help:"go on in a directory whose runs are of a build that does not know its sources (not made by make, or from a tree with changes), as this one does not"`
	Show         bool   `help:"print the ladder's file"`
	DryRun       bool   `help:"print the order and how long it takes"`
	JSON         bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (LadderCmd) Help() string {
	return `Every arm runs at every rate with every seed: the same requests at the same times, fresh services for each run, the order of the arms
rotated, a canary before each run that tells how fast the machine is. Begun again with the same --out, it goes on where it stopped,
however it stopped. Reports are made of the directory: cadence report DIR.

Examples:
  cadence ladder
  cadence ladder seed --on sim
  cadence ladder rungs --on llama --threads 2 --out results/rungs
  cadence ladder rungs --on mock --dry-run
  cadence ladder chunks --on sim --rates 1.4 --slo-e2e 4s --json
  cadence ladder ./mine.yaml --on mock`
}

// Run implements the command.
func (c *LadderCmd) Run(ctx context.Context, g *Globals) error {
	if c.Name == "" {
		return c.list(g.Out)
	}
	if c.Show {
		b, err := ladder.Text(c.Name)
		if err == nil {
			_, err = g.Out.Write(b)
		}
		return err
	}
	d, err := ladder.Open(c.Name)
	if err != nil {
		return err
	}
	if err := c.Change.Apply(d); err != nil {
		return err
	}
	o := ladder.Options{Definition: d, On: c.On, Dir: c.Out, JSONL: c.Jsonl, RetryInvalid: c.RetryInvalid, TrustBuild: c.TrustBuild, ModelDir: c.ModelDir,
		Executable: executable(), Version: g.Version, Log: g.Log, Profile: openProfile}
	if o.Dir == "" {
		o.Dir = filepath.Join("ladder", d.Name+"-"+c.On)
	}
	if err := o.Check(); err != nil {
		return err
	}
	if c.DryRun {
		return c.plan(g.Out, &o)
	}
	show, finish := ladderProgress(g)
	o.Progress = show
	res, err := ladder.Run(ctx, o)
	finish()
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("stopped: the same command goes on from here: %w", err)
		}
		return err
	}
	if c.JSON {
		return printJSON(g.Out, res)
	}
	return writeLadder(g.Out, res, o.Dir)
}

// list prints what there is.
func (c *LadderCmd) list(w io.Writer) error {
	p := &printer.Printer{W: w}
	var all []*ladder.Definition
	for _, name := range ladder.Embedded() {
		d, err := ladder.Open(name)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	if c.JSON {
		return printJSON(w, all)
	}
	t := p.Table("ladder", "on", "runs", "what it tells")
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 4, WidthMax: 80, WidthMaxEnforcer: text.WrapSoft}})
	for _, d := range all {
		t.AppendRow(table.Row{d.Name, strings.Join(d.On, ", "), len(d.Plan()), d.About})
	}
	p.Render(t)
	return p.Err
}

// plan prints the order.
func (c *LadderCmd) plan(w io.Writer, o *ladder.Options) error {
	d := o.Definition
	jobs, capacity := d.Plan(), 0.0
	if s, err := ladder.OpenState(o.Dir); err == nil {
		capacity = s.Capacity
	}
	least, most, known := d.Estimate(capacity)
	if c.JSON {
		return printJSON(w, map[string]any{"runs": jobs, "least_ns": least, "most_ns": most, "estimated": known})
	}
	p := &printer.Printer{W: w}
	t := p.Table("run", "block", "offered", "seed", "arm")
	for _, j := range jobs {
		t.AppendRow(table.Row{j.Order, j.Block, offered(&j), j.Seed, j.Arm})
	}
	p.Render(t)
	starts := time.Duration(len(jobs)) * 5 * time.Second
	switch {
	case c.On == ladder.Sim:
		p.Line("%d runs in virtual time: %s to %s of it, thousands of requests a second in real time", len(jobs), minutes(least), minutes(most))
	case known:
		p.Line("%d runs: %s if answers come at once, at most %s; about %s of it to start services", len(jobs), minutes(least+starts), minutes(most+starts), minutes(starts))
	default:
		p.Line("%d runs; how long they take depends on the capacity, which is measured first", len(jobs))
	}
	return p.Err
}

func minutes(d time.Duration) string { return d.Round(time.Second).String() }

// offered is a job's rate or load in a few characters.
func offered(j *ladder.Job) string {
	if j.Load > 0 {
		return strconv.FormatFloat(j.Load, 'g', 4, 64) + "×"
	}
	return strconv.FormatFloat(j.Rate, 'g', 4, 64) + "/s"
}

// ladderProgress shows a bar with the time that is left on a terminal, and logs a line for each run elsewhere.
func ladderProgress(g *Globals) (show func(ladder.Progress), finish func()) {
	f, ok := g.Err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func(p ladder.Progress) {
			if r := p.Last; r != nil {
				g.Log.Info("run", "id", r.ID, "done", p.Kept+p.Done, "of", p.All, "rate_per_s", strconv.FormatFloat(r.Rate, 'f', 3, 64),
					"goodput_per_s", strconv.FormatFloat(r.Good, 'f', 3, 64), "invalid", len(r.Invalid) > 0, "left", p.Left.Round(time.Second))
			}
		}, func() {}
	}
	var bar *progressbar.ProgressBar
	return func(p ladder.Progress) {
			if bar == nil {
				bar = progressbar.NewOptions(p.All, progressbar.OptionSetWriter(g.Err), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false),
					progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
			}
			what := "starting"
			if r := p.Last; r != nil {
				what = fmt.Sprintf("%s at %s: %.2f good/s, %s left", r.Arm, offered(&r.Job), r.Good, p.Left.Round(time.Second))
			}
			bar.Describe(what)
			// The terminal may be gone; the work goes on.
			_ = bar.Set(p.Kept + p.Done)
		}, func() {
			if bar != nil {
				_ = bar.Finish()
			}
		}
}

// cell is where the runs of an arm at a rate or load stand in the table.
type cell struct {
	block int
	arm   string
	point float64
}

// point is a job's rate or load.
func point(j *ladder.Job) float64 { return cmp.Or(j.Load, j.Rate) }

// writeLadder prints mean goodput by arm and rate, of valid runs.
func writeLadder(w io.Writer, res *ladder.Result, dir string) error {
	p := &printer.Printer{W: w}
	s := res.State
	p.Line("%s on %s: goodput in requests/s, mean [least, most] over the seeds whose runs are valid", s.Definition.Name, s.On)
	if s.Capacity > 0 {
		p.Line("%s serves %.3f requests/s; loads are multiples of that", s.Definition.Capacity.Arm, s.Capacity)
	}
	for _, class := range slices.Sorted(maps.Keys(s.SLOs)) {
		slo := s.SLOs[class]
		of := ""
		if class != "" {
			of = " of " + class
		}
		p.Line("objective%s: TTFT %s, TPOT %s, E2E %s", of, limit(slo.TTFT), limit(slo.TPOT), limit(slo.E2E))
	}
	var columns []float64
	header := []any{"arm"}
	seen, of := map[cell][]float64{}, map[cell]int{} // what is valid, and how many there are
	kept, invalid := 0, 0
	for i := range res.Runs {
		r := &res.Runs[i]
		at := cell{r.Block, r.Arm, point(&r.Job)}
		if !slices.Contains(columns, at.point) {
			columns, header = append(columns, at.point), append(header, offered(&r.Job))
		}
		of[at]++
		if r.Kept {
			kept++
		}
		if len(r.Invalid) > 0 {
			invalid++
		} else {
			seen[at] = append(seen[at], r.Good)
		}
	}
	t := p.Table(header...)
	for block, arms := range s.Definition.Blocks {
		for _, arm := range arms {
			name := arm
			if len(s.Definition.Blocks) > 1 {
				name += fmt.Sprintf(" (block %d)", block+1)
			}
			row := table.Row{name}
			for _, at := range columns {
				key := cell{block, arm, at}
				v, text := stat.Over(seen[key]...), "-"
				if v.Count > 0 {
					text = fmt.Sprintf("%.2f [%.2f, %.2f]", v.Mean, v.Min, v.Max)
				}
				if n := of[key]; v.Count < n {
					text += fmt.Sprintf(" (%d of %d valid)", v.Count, n)
				}
				row = append(row, text)
			}
			t.AppendRow(row)
		}
	}
	p.Render(t)
	p.Line("%d runs, %d of them from before, %d invalid. Records are in %s", len(res.Runs), kept, invalid, dir)
	return p.Err
}

func limit(d time.Duration) string {
	if d == 0 {
		return "any"
	}
	return "≤ " + d.Round(time.Millisecond).String()
}
