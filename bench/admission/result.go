package admission

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/jedib0t/go-pretty/v6/table"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"
)

// Write writes the result for people.
func (r *Result) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	p.Line("%s", r.Question)
	p.Line("workload %s on profile %s, one worker, prefill first, with the prefix cache; good is E2E ≤ %s unless said otherwise", r.Workload, r.Profile, r.SLO)
	p.Line("load 1 is the best goodput without admission, %.3f/s, which it has at %.2f/s offered", r.Peak.Goodput, r.Peak.Rate)
	if r.FitRate > 0 {
		p.Line("what is fitted once is fitted to a run at %.2f/s without admission (seed %d)", r.FitRate, fitSeed)
	}
	header := []any{"offered", "case"}
	for i := range r.Columns {
		header = append(header, r.Columns[i].title)
	}
	t := p.Table(header...)
	for i := range r.Findings {
		f := &r.Findings[i]
		if i > 0 && f.Rate != r.Findings[i-1].Rate {
			t.AppendSeparator()
		}
		row := table.Row{fmt.Sprintf("%.2f (%.2f/s)", f.Load, f.Rate), f.Case}
		for k := range r.Columns {
			row = append(row, r.Columns[k].text(f.Values))
		}
		t.AppendRow(row)
	}
	p.Render(t)
	for i := range r.Columns {
		p.Line("%s: %s", r.Columns[i].title, r.Columns[i].About)
	}
	p.Line("seeds %s, %s each with a warm-up of %s; 95 %% intervals: of shares clustered by seed, of the rest a bootstrap over seeds", span(r.Seeds), r.Length, r.Warmup)
	if len(r.Seeds) < stat.FewPairs {
		p.Line("%d seeds are few: intervals cover less than they say", len(r.Seeds))
	}
	return p.Err
}

// text is the column's value in the table.
func (c *Column) text(values map[string]Value) string {
	v, ok := values[c.Name]
	switch {
	case !ok:
		return absent
	case c.percent:
		return fmt.Sprintf("%.1f [%.1f, %.1f] %%", 100*v.Value, 100*v.Low, 100*v.High)
	default:
		return interval("%.3f", v.Estimate)
	}
}

// Save draws the experiment's main columns against the offered load into a directory, as SVG: a panel for each. Of a single load one panel
// has them side by side.
func (r *Result) Save(dir string) error {
	var panels []*plot.Plot
	if r.Findings[0].Rate == r.Findings[len(r.Findings)-1].Rate {
		p, err := r.across()
		if err != nil {
			return fmt.Errorf("admission: figures: %w", err)
		}
		return r.save(dir, []*plot.Plot{p})
	}
	for i := range r.Columns {
		if !r.Columns[i].drawn {
			continue
		}
		p, err := r.panel(&r.Columns[i])
		if err != nil {
			return fmt.Errorf("admission: figures: %w", err)
		}
		panels = append(panels, p)
	}
	return r.save(dir, panels)
}

func (r *Result) save(dir string, panels []*plot.Plot) error {
	b, err := sheet(fmt.Sprintf("%s Bands: 95 %% intervals, %d seeds", r.Question, len(r.Seeds)), panels)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "admission-"+r.Experiment+".svg"), b, 0o644)
	}
	if err != nil {
		return fmt.Errorf("admission: figures: %w", err)
	}
	return nil
}

// panel draws a column.
func (r *Result) panel(c *Column) (*plot.Plot, error) {
	p := axes("", c.title)
	scale := 1.0
	if c.percent {
		scale, p.Y.Label.Text = 100, c.title+" (%)"
	}
	var cases []string
	for i := range r.Findings {
		if r.Findings[i].Rate == r.Findings[0].Rate {
			cases = append(cases, r.Findings[i].Case)
		}
	}
	for i, name := range cases {
		var x, y, low, high []float64
		for k := range r.Findings {
			f := &r.Findings[k]
			if v, ok := f.Values[c.Name]; ok && f.Case == name {
				x, y, low, high = append(x, f.Load), append(y, scale*v.Value), append(low, scale*v.Low), append(high, scale*v.High)
			}
		}
		if err := ribbon(p, name, style(i), x, y, low, high); err != nil {
			return nil, err
		}
	}
	p.X.Min = 0
	p.Y.Max += (p.Y.Max - p.Y.Min) * 0.07 * float64(len(cases)+1) // room for the legend
	return p, nil
}

// style is that of the i-th case.
func style(i int) draw.LineStyle {
	return draw.LineStyle{Color: colors[i%len(colors)], Width: 1.2, Dashes: dashes[i%len(dashes)]}
}

// across has the columns that are drawn, all of them parts, from left to right.
func (r *Result) across() (*plot.Plot, error) {
	p := axes("", "%")
	p.X.Label.Text = ""
	var names []string
	for k := range r.Columns {
		if r.Columns[k].drawn {
			names = append(names, r.Columns[k].title)
		}
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		var x, y, low, high []float64
		at := 0.0
		for k := range r.Columns {
			if !r.Columns[k].drawn {
				continue
			}
			if v, ok := f.Values[r.Columns[k].Name]; ok {
				x, y, low, high = append(x, at), append(y, 100*v.Value), append(low, 100*v.Low), append(high, 100*v.High)
			}
			at++
		}
		if err := ribbon(p, f.Case, style(i), x, y, low, high); err != nil {
			return nil, err
		}
	}
	p.NominalX(names...)
	p.Y.Max += (p.Y.Max - p.Y.Min) * 0.07 * float64(len(r.Findings)+1) // room for the legend
	return p, nil
}
