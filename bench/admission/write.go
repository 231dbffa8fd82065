package admission

import (
	"fmt"
	"io"
	"strings"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/jedib0t/go-pretty/v6/table"
)

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	p.Line("workload %s on profile %s, one worker, prefill first, with the prefix cache; good is E2E ≤ %s", r.Workload, r.Profile, r.SLO)
	p.Line("no admission has its best goodput, %.3f/s, at %.2f/s offered (seeds %s); load 1 is that goodput. Up to %s it answers %.0f %% in time: the knee",
		r.Peak.Goodput, r.Peak.Rate, span(r.TuneSeeds), r.knee(), 100*KneeAttainment)
	p.Line("fitted to %d answers of a run of %s at %.2f/s without admission (seed %d); constants chosen on seeds %s, %s each", r.FitAnswers, fitLength*r.Length,
		r.FitRate, r.FitSeed, span(r.TuneSeeds), r.TuneLength)
	t := p.Table("arm", "constant", "chosen", "of (score)", "score", "refused below the knee")
	for i := range r.Arms {
		a, c := &r.Arms[i], &r.Choices[i]
		var grid []string
		for k, v := range c.Grid {
			grid = append(grid, fmt.Sprintf("%g (%.3f)", v, c.Scores[k]))
		}
		row := table.Row{a.Arm, c.Means, c.Constant, strings.Join(grid, ", "), fmt.Sprintf("%.3f", a.Score), percent(a.RefusedBelowKnee)}
		if c.Means == "" {
			row[2], row[3] = "–", fmt.Sprintf("(%.3f)", c.Scores[0])
		}
		t.AppendRow(row)
	}
	p.Render(t)
	p.Line("score: mean over loads of goodput by the best that any arm has there; of the grid on the tuning seeds, then on those reported")
	t = p.Table("offered", "arm", "goodput/s", "less none's", "by the best other's", "which is", "admitted p99 (s)", "refused", "bounds held")
	for i := range r.Cells {
		c := &r.Cells[i]
		if i > 0 && c.Rate != r.Cells[i-1].Rate {
			t.AppendSeparator()
		}
		t.AppendRow(c.row())
	}
	p.Render(t)
	p.Line("means over seeds %s, %s each after %s of warm-up, with 95 %% intervals of a paired bootstrap over seeds; bounds held: 95 %% interval clustered by seed",
		span(r.Seeds), r.Length-r.Warmup, r.Warmup)
	p.Line("≥: lower bound, requests were given up after %s", r.Timeout)
	if len(r.Seeds) < stat.FewPairs {
		p.Line("%d seeds are few: intervals cover less than they say", len(r.Seeds))
	}
	return p.Err
}

func (r *Report) knee() string {
	if r.Knee == 0 {
		return "no rate"
	}
	return fmt.Sprintf("%.2f/s (load %.2f)", r.Knee, r.Knee/r.Peak.Goodput)
}

// row is the cell in the table.
func (c *Cell) row() table.Row {
	row := table.Row{fmt.Sprintf("%.2f (%.2f/s)", c.Load, c.Rate), c.Arm, interval("%.3f", c.Goodput), absent, absent, absent, absent, percent(c.Refused), absent}
	if c.None != nil {
		row[3] = interval("%+.3f", c.None.Difference)
	}
	if c.Best != nil {
		row[5] = c.Best.Arm
		if c.Best.Ratios > 0 {
			row[4] = interval("%.3f", c.Best.Ratio)
		}
	}
	if c.P99.Count > 0 {
		bound := ""
		if c.LowerBound {
			bound = "≥ "
		}
		row[6] = fmt.Sprintf("%s%.1f", bound, c.P99.Mean)
	}
	if k := c.Coverage; k != nil && k.Rows() > 0 {
		low, _ := k.Range()
		row[8] = fmt.Sprintf("%s [%s, %s]", percent(low), percent(k.Low), percent(k.High))
	}
	return row
}

// absent stands where there is no value.
const absent = "–"

func interval(format string, e stat.Estimate) string {
	return fmt.Sprintf(format+" ["+format+", "+format+"]", e.Value, e.Low, e.High)
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// span is the first and the last of consecutive seeds.
func span(seeds []uint64) string {
	if len(seeds) == 1 {
		return fmt.Sprint(seeds[0])
	}
	return fmt.Sprintf("%d–%d", seeds[0], seeds[len(seeds)-1])
}
