package load

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/jedib0t/go-pretty/v6/table"
)

// Write prints what a run was for people.
func Write(w io.Writer, run *record.Run, s *stat.Summary) error {
	p := &printer.Printer{W: w}
	p.Line("%s at %s, %s of %.4g requests/s for %v, seed %d", run.Workload, run.On, run.Arrivals, run.Rate, run.Length, run.Seed)
	if run.Partial {
		p.Line("It was stopped after %v: what there is counts, requests that were open are censored.", run.Wall.Round(time.Millisecond))
	}
	phases := p.Table("phase", "requests")
	for _, name := range []record.Phase{record.Warmup, record.Measure, record.Tail} {
		phases.AppendRow(table.Row{name, s.Phases[name]})
	}
	p.Render(phases)

	p.Line("\nThe measured phase: %v", s.Measured.Round(time.Millisecond))
	groups := p.Table("requests", "offered", "in time", "late", "shed", "time-out", "censored", "error", "offered/s", "goodput/s", "answered/s", "tokens/s", "in time of all")
	row := func(name string, g *stat.Group) {
		o := g.Outcomes
		groups.AppendRow(table.Row{name, g.Offered, g.Good, g.Late, o[record.Shed], o[record.Timeout], o[record.Censored], o[record.Error],
			fmt.Sprintf("%.2f", g.OfferedRate), fmt.Sprintf("%.2f", g.Goodput), fmt.Sprintf("%.2f", g.Throughput), fmt.Sprintf("%.1f", g.TokensRate),
			fmt.Sprintf("%.1f %%", 100*g.Attainment)})
	}
	row("all", &s.Group)
	for _, part := range []struct {
		of     string
		groups []stat.Group
	}{{"class ", s.Classes}, {"tenant ", s.Tenants}, {"kind ", s.Kinds}} {
		for i := range part.groups {
			row(part.of+part.groups[i].Name, &part.groups[i])
		}
	}
	p.Render(groups)

	times := p.Table("", "p50", "p90", "p95", "p99", "p99.9", "max", "of")
	for _, t := range []struct {
		name string
		d    *stat.Durations
	}{{"TTFT", &s.TTFT}, {"ITL", &s.ITL}, {"TPOT", &s.TPOT}, {"E2E", &s.E2E}} {
		r := table.Row{t.name}
		for _, v := range []struct {
			q float64
			d time.Duration
		}{{0.5, t.d.P50}, {0.9, t.d.P90}, {0.95, t.d.P95}, {0.99, t.d.P99}, {0.999, t.d.P999}, {1, t.d.Max}} {
			text := "-"
			if t.d.Count > 0 {
				text = short(v.d)
				if !t.d.Exact(v.q) {
					text = "≥ " + text
				}
			}
			r = append(r, text)
		}
		times.AppendRow(append(r, t.d.Count))
	}
	p.Line("\nTTFT and E2E count from the intended arrival; ≥ stands where a time-out or a censored request is below.")
	p.Render(times)
	p.Line("The generator's lag behind its schedule: p99 %s, max %s (budget %v).", short(run.LagP99), short(run.LagMax), run.LagBudget)
	for _, list := range []struct {
		what    string
		reasons map[string]int
	}{{"Shed", s.Shed}, {"Errors", s.Errors}} {
		if len(list.reasons) > 0 {
			var parts []string
			for _, k := range slices.Sorted(maps.Keys(list.reasons)) {
				parts = append(parts, fmt.Sprintf("%s %d", k, list.reasons[k]))
			}
			p.Line("%s: %s.", list.what, strings.Join(parts, ", "))
		}
	}
	for _, note := range run.Notes {
		p.Line("Note: %s.", note)
	}
	if !run.Valid() {
		p.Line("\nINVALID: %s.", strings.Join(run.Invalid, "; "))
	}
	return p.Err
}

// Line says in one line how a run goes.
func (p Progress) Line(length time.Duration) string {
	line := fmt.Sprintf("%v of %v  %.1f/s offered, %d in flight, goodput %.1f/s, p99 TTFT %s E2E %s, lag %s", p.At.Truncate(time.Second), length.Truncate(time.Second),
		p.Rate, p.InFlight, p.Goodput, short(p.TTFT99), short(p.E2E99), short(p.LagMax))
	if p.Shed > 0 {
		line += fmt.Sprintf(", %d shed", p.Shed)
	}
	if p.Failed > 0 {
		line += fmt.Sprintf(", %d failed", p.Failed)
	}
	return line
}

// short writes a duration with three digits or four.
func short(d time.Duration) string {
	for _, u := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d < u {
			continue
		}
		step := u / 1000
		for most := 10 * u; d >= most && step < u; most *= 10 {
			step *= 10
		}
		return d.Round(max(1, step)).String()
	}
	return d.String()
}
