package report

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
)

// ErrTable is returned for a table that does not exist; the message names those that do.
var ErrTable = errors.New("report: no such table")

// builders are the tables, in the order of reports. A builder returns nil where the records have nothing for it.
var builders = []struct {
	name  string
	build func(*Report) (*Table, error)
}{
	{"headline", plain((*Report).headline)},
	{"comparison", (*Report).comparison},
	{"worse", plain((*Report).worse)},
	{"sensitivity", plain((*Report).sensitivity)},
	{"tenants", plain((*Report).tenantTable)},
	{"classes", plain((*Report).classTable)},
	{"kinds", plain((*Report).kindTable)},
	{"bounds", plain((*Report).bounds)},
	{"full", plain((*Report).full)},
	{"anchor", plain((*Report).anchor)},
	{"canary", plain((*Report).canary)},
	{"requests", plain((*Report).requests)},
	{"excluded", plain((*Report).excludedTable)},
	{"provenance", plain((*Report).provenance)},
}

func plain(f func(*Report) *Table) func(*Report) (*Table, error) {
	return func(r *Report) (*Table, error) { return f(r), nil }
}

// TableNames lists the tables.
func TableNames() []string {
	names := make([]string, len(builders))
	for i, b := range builders {
		names[i] = b.name
	}
	return names
}

// Table returns one table, nil if the records have nothing for it, or ErrTable.
func (r *Report) Table(name string) (*Table, error) {
	for _, b := range builders {
		if b.name == name {
			t, err := b.build(r)
			if t == nil || err != nil {
				return nil, err
			}
			t.Name, t.Left = name, max(1, t.Left)
			if gaps := r.gaps(); gaps != "" && name != "excluded" {
				t.Note = strings.TrimSpace(t.Note + " " + gaps)
			}
			return t, nil
		}
	}
	return nil, fmt.Errorf("%w: %q; there are %s", ErrTable, name, strings.Join(TableNames(), ", "))
}

// Tables returns every table for which the records have something.
func (r *Report) Tables() ([]*Table, error) {
	var out []*Table
	for _, name := range TableNames() {
		t, err := r.Table(name)
		if err != nil {
			return nil, err
		}
		if t != nil {
			out = append(out, t)
		}
	}
	return out, nil
}

// at writes a rate with the load it is, where the runs were told it.
func (r *Report) at(rate float64) string {
	for _, run := range r.Runs {
		if run.Rate == rate && run.Load != 0 {
			return fmt.Sprintf("%s (×%s)", number(rate), number(run.Load))
		}
	}
	return number(rate)
}

func (r *Report) headline() *Table {
	if len(r.Runs) == 0 {
		return nil
	}
	over := r.Overload()
	if len(r.Rates) == 1 {
		return r.headlineOfOne()
	}
	t := &Table{Title: "Peak goodput, and what is left past the knee", Header: []string{
		"Arm", "Peak goodput (req/s)", "at offered (req/s)", "SLO attainment there", "p50 TTFT there (s)",
		"Goodput at " + number(over) + " (req/s)", "p99 TTFT at " + number(over) + " (s)", "p99 E2E at " + number(over) + " (s)", "Shed at " + number(over), "Prefix hits at " + number(over)}}
	for _, arm := range r.Arms {
		peak, past := r.Peak(arm), r.Cell(arm, over)
		offered := none
		goodput := none
		switch {
		case peak != nil:
			offered, goodput = r.at(peak.Rate), value(Goodput, peak.Over(Goodput))
		case r.has(arm):
			goodput = "0"
		}
		t.add(arm, goodput, offered, value(Attainment, peak.Over(Attainment)), value(TTFT50, peak.Over(TTFT50)),
			value(Goodput, past.Over(Goodput)), value(TTFT99, past.Over(TTFT99)), value(E2E99, past.Over(E2E99)), value(shed, past.Over(shed)), value(HitRatio, past.Over(HitRatio)))
	}
	t.Note = fmt.Sprintf("Objective: %s. %s Goodput counts requests answered within it over the measured time, all offered in the denominator of attainment. The last columns are read at %s req/s for every arm.",
		describeSLOs(r.SLOs), r.spread(), number(over))
	return t
}

// headlineOfOne is the headline of an experiment at one rate, which has no peak.
func (r *Report) headlineOfOne() *Table {
	t := &Table{Title: "At " + r.at(r.Rates[0]) + " req/s", Header: []string{"Arm"}, Note: "Objective: " + describeSLOs(r.SLOs) + ". " + r.spread()}
	metrics := []Metric{Goodput, Attainment, Kept, shed, TTFT50, TTFT99, E2E99, HitRatio}
	for _, m := range metrics {
		t.Header = append(t.Header, heading(m))
	}
	for _, arm := range r.Arms {
		row := []string{arm}
		for _, m := range metrics {
			row = append(row, value(m, r.Cell(arm, r.Rates[0]).Over(m)))
		}
		t.add(row...)
	}
	return t
}

// heading is a metric with its unit.
func heading(m Metric) string {
	if m.Unit == "" {
		return m.Name
	}
	return m.Name + " (" + m.Unit + ")"
}

// shed is NotShed the other way round, for reading.
var shed = share("shed", offered, func(s *stat.Summary) float64 { return s.ShedRatio })

func (r *Report) full() *Table {
	if len(r.Runs) == 0 {
		return nil
	}
	metrics := []Metric{Goodput, Attainment, shed, Kept, TTFT50, TTFT99, E2E50, E2E99, ITL99, TokensRate, HitRatio}
	t := &Table{Title: "Every arm at every rate", Header: []string{"Arm", "offered (req/s)", "runs"}, Note: "Objective: " + describeSLOs(r.SLOs) + ". " + r.spread()}
	for _, m := range metrics {
		t.Header = append(t.Header, heading(m))
	}
	for _, arm := range r.Arms {
		for _, rate := range r.Rates {
			c := r.Cell(arm, rate)
			if c == nil {
				continue
			}
			row := []string{arm, r.at(rate), count(len(c.Runs))}
			for _, m := range metrics {
				row = append(row, value(m, c.Over(m)))
			}
			t.add(row...)
		}
	}
	if missing := r.Missing(); len(missing) > 0 {
		t.Note += " Not there: " + strings.Join(missing, "; ") + "."
	}
	return t
}

func (r *Report) comparison() (*Table, error) {
	all, err := r.Comparisons()
	if err != nil || len(r.compared()) == 0 || len(r.Runs) == 0 {
		return nil, err
	}
	title := "Each arm against the one before"
	if b := r.options.Baseline; b != "" {
		title = "Each arm against " + b
	}
	t := &Table{Title: title, Left: 1, Header: []string{
		"Change", "offered (req/s)", "pairs", "goodput, mean difference (req/s)", "goodput, median ratio", "p99 TTFT, median ratio", "p99 E2E, median ratio"}}
	across := false
	resamples, fewest := 0, math.MaxInt
	for _, arms := range r.compared() {
		if !slices.ContainsFunc(all, func(c Comparison) bool { return c.Before == arms[0] && c.After == arms[1] }) {
			t.add(arms[0]+" → "+arms[1], none, "0", none, none, none, none)
		}
	}
	for _, c := range all {
		pairs, at := count(c.Goodput.Pairs), "every rate"
		if c.Across {
			pairs += " †"
			across = true
		}
		if c.Rate != 0 {
			at = r.at(c.Rate)
		}
		resamples, fewest = c.Goodput.Resamples, min(fewest, c.Goodput.Pairs)
		ratio := func(p stat.Paired, lower [2]bool) string {
			if p.RatioPairs == 0 {
				return none
			}
			sign := ratioSign(lower[0], lower[1])
			text := sign + "×" + estimate(p.MedianRatio, figure)
			if p.RatioPairs < c.Goodput.Pairs {
				text += fmt.Sprintf(" (%d)", p.RatioPairs)
			}
			return mark(text, sign == "" && p.MedianRatio.Excludes(1))
		}
		t.add(c.Before+" → "+c.After, at, pairs, mark(estimate(c.Goodput.Mean, signed), c.Goodput.Mean.Excludes(0)), ratio(c.Goodput, [2]bool{}), ratio(c.TTFT99, c.TTFT99Lower), ratio(c.E2E99, c.E2E99Lower))
	}
	t.Note = "Pairs of runs with the same seed at the same rate. A pair is a seed: means over its runs, of latencies geometric; over every rate, over its rates, too."
	if resamples > 0 {
		t.Note += fmt.Sprintf(" %.0f %% percentile intervals from a paired bootstrap over seeds (%d resamples). *: the interval excludes no change. "+
			"≤, ≥, ?: one side or both are lower bounds, and so is the ratio at most a bound. "+
			"A number in parentheses says how many pairs have a ratio, where not all do.", 100*stat.Level, resamples)
	}
	if fewest < stat.FewPairs {
		t.Note += fmt.Sprintf(" With fewer than %d pairs an interval covers less than it says: of five the mean's about 84 %%; of three it is what was seen, which holds the true median in 75 %% of cases.", stat.FewPairs)
	}
	if across {
		t.Note += " †: the runs are of different blocks; see the anchor for what that alone does."
	}
	return t, nil
}

func mark(text string, yes bool) string {
	if yes {
		return text + " *"
	}
	return text
}

func (r *Report) worse() *Table {
	if len(r.Arms) < 2 || len(r.Runs) == 0 {
		return nil
	}
	t := &Table{Title: "What got worse", Left: 2, Header: []string{"Change", "Metric", "worst at (req/s)", "before", "after", "change", "pairs worse there", "rates affected"}}
	some := false
	for _, w := range r.Worsenings() {
		m := Metric{Name: w.Metric, Unit: w.Unit}
		one := func(x float64, side int) string {
			text := value(m, Value{Spread: stat.Over(x), Lower: w.lower[side]})
			if w.Unit != "" {
				text += " " + w.Unit
			}
			if w.survivors[side] {
				text += " ‡"
				some = true
			}
			return text
		}
		t.add(w.Before+" → "+w.After, w.Metric, r.at(w.Rate), one(w.From, 0), one(w.To, 1), ratioSign(w.lower[0], w.lower[1])+signedPercent(w.Change), fmt.Sprintf("%d/%d", w.PairsWorse, w.Pairs), fmt.Sprintf("%d/%d", w.Affected, w.Rates))
	}
	t.Note = fmt.Sprintf("Every metric that an arm makes more than %s worse than the arm it is compared with, at some rate; of %s. Shown where it is worst: means over pairs of runs, and in how many of them it is worse at all. ≤, ≥, ?: before, after or both are lower bounds.", percent(r.options.Worse), metricNames())
	if some {
		t.Note += " ‡: of answered requests only, others were given up half-way."
	}
	if len(t.Rows) == 0 {
		t.add("none", none, none, none, none, none, none, none)
	}
	return t
}

func metricNames() string {
	names := make([]string, len(Metrics))
	for i, m := range Metrics {
		names[i] = m.Name
	}
	return strings.Join(names, ", ")
}

func (r *Report) sensitivity() *Table {
	if len(r.Runs) == 0 {
		return nil
	}
	t := &Table{Title: "Peak goodput under other objectives", Header: []string{"Arm"}}
	for _, f := range Factors {
		head := "×" + number(f)
		if len(r.SLOs) == 1 {
			for _, s := range stat.Scale(r.SLOs, f) {
				head += " (" + describe(s) + ")"
			}
		}
		t.Header = append(t.Header, head)
	}
	for _, arm := range r.Arms {
		row := []string{arm}
		for i := range Factors {
			of := func(c *Cell) stat.Spread {
				values := make([]float64, len(c.Runs))
				for k, run := range c.Runs {
					values[k] = run.Sensitivity[i]
				}
				return stat.Over(values...)
			}
			peak := r.peak(arm, func(c *Cell) float64 { return of(c).Mean })
			if peak == nil {
				row = append(row, map[bool]string{true: "0", false: none}[r.has(arm)])
				continue
			}
			row = append(row, value(Goodput, Value{Spread: of(peak)})+" at "+number(peak.Rate))
		}
		t.add(row...)
	}
	t.Note = fmt.Sprintf("Peak goodput (req/s) and the offered rate at which it is, with every limit of the objective (%s) multiplied. The runs are the same: admission aimed at the objective as declared. %s", describeSLOs(r.SLOs), r.spread())
	return t
}

// groupTable shows the groups of requests at the overload rate.
func (r *Report) groupTable(what string, of func(*stat.Summary) []stat.Group) *Table {
	if len(r.Runs) == 0 {
		return nil
	}
	over := r.Overload()
	t := &Table{Title: "By " + what + " at " + number(over) + " req/s", Left: 2, Note: r.spread(),
		Header: []string{"Arm", what, "offered (req/s)", "goodput (req/s)", "SLO attainment", "shed", "p99 TTFT (s)", "p99 E2E (s)"}}
	for _, arm := range r.Arms {
		c := r.Cell(arm, over)
		if c == nil {
			continue
		}
		var names []string
		for _, run := range c.Runs {
			for _, g := range of(&run.Summary) {
				if !slices.Contains(names, g.Name) {
					names = append(names, g.Name)
				}
			}
		}
		slices.Sort(names)
		for _, name := range names {
			part := &Cell{}
			for _, run := range c.Runs {
				for _, g := range of(&run.Summary) {
					if g.Name == name {
						part.Runs = append(part.Runs, &Run{Summary: stat.Summary{Group: g}})
					}
				}
			}
			row := []string{arm, name}
			for _, m := range []Metric{offeredRate, Goodput, Attainment, shed, TTFT99, E2E99} {
				row = append(row, value(m, part.Over(m)))
			}
			t.add(row...)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

var offeredRate = rate("offered", "req/s", func(s *stat.Summary) float64 { return s.OfferedRate })

func (r *Report) tenantTable() *Table {
	t := r.groupTable("tenant", func(s *stat.Summary) []stat.Group { return s.Tenants })
	if t == nil {
		return nil
	}
	t.Note += " Jain's index over the tenants' attainment (1: all alike):"
	for i, arm := range r.Arms {
		if i > 0 {
			t.Note += ";"
		}
		t.Note += " " + arm + " " + value(Fairness, r.Cell(arm, r.Overload()).Over(Fairness))
	}
	t.Note += "."
	return t
}

func (r *Report) classTable() *Table {
	return r.groupTable("class", func(s *stat.Summary) []stat.Group { return s.Classes })
}

func (r *Report) kindTable() *Table {
	return r.groupTable("kind", func(s *stat.Summary) []stat.Group { return s.Kinds })
}

func (r *Report) bounds() *Table {
	t := &Table{Title: "Promised and kept", Header: []string{"Arm", "answers with a bound", "over it", "covered", "mean bound (s)", "mean actual (s)"},
		Note: "Requests of the measured phase that admission let in with an upper bound of their latency, over all rates and seeds. One that was given up counts as over its bound."}
	for _, arm := range r.Arms {
		var b Bounds
		for _, run := range r.Runs {
			if run.Arm == arm {
				b.Count, b.Kept, b.Bound, b.Actual = b.Count+run.Bounds.Count, b.Kept+run.Bounds.Kept, b.Bound+run.Bounds.Bound, b.Actual+run.Bounds.Actual
			}
		}
		if b.Count > 0 {
			n := float64(b.Count)
			t.add(arm, count(b.Count), count(b.Count-b.Kept), fmt.Sprintf("%.1f %%", 100*float64(b.Kept)/n), figure(b.Bound.Seconds()/n), figure(b.Actual.Seconds()/n))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// requests accounts for everything that was offered.
func (r *Report) requests() *Table {
	if len(r.Runs) == 0 {
		return nil
	}
	t := &Table{Title: "What became of every request", Header: []string{"Arm", "runs", "offered", "warm-up", "measured", "tail", "good", "late", "shed", "time-out", "censored", "error", "reasons"}}
	total := make([]int, len(t.Header)-2)
	for _, arm := range append(slices.Clone(r.Arms), "") {
		sum := make([]int, len(total))
		reasons := map[string]int{}
		for _, run := range r.Runs {
			if run.Arm != arm {
				continue
			}
			s := &run.Summary
			all := 0
			for _, n := range s.Phases {
				all += n
			}
			for i, n := range []int{1, all, s.Phases[record.Warmup], s.Offered, s.Phases[record.Tail], s.Good, s.Late,
				s.Outcomes[record.Shed], s.Outcomes[record.Timeout], s.Outcomes[record.Censored], s.Outcomes[record.Error]} {
				sum[i] += n
				total[i] += n
			}
			for _, m := range []map[string]int{s.Shed, s.Errors} {
				for reason, n := range m {
					reasons[reason] += n
				}
			}
		}
		name, why := arm, most(reasons)
		if arm == "" {
			name, why, sum = "all", "", total
		}
		row := []string{name}
		for _, n := range sum {
			row = append(row, count(n))
		}
		t.add(append(row, why)...)
	}
	t.Note = "Good to error are those of the measured phase. Reasons are of refusals and errors there."
	return t
}

// most lists reasons, the most frequent first.
func most(reasons map[string]int) string {
	var names []string
	for name := range reasons {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := reasons[b] - reasons[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		shown := name
		if shown == "" {
			shown = "not said"
		}
		names[i] = fmt.Sprintf("%s %d", shown, reasons[name])
	}
	return strings.Join(names, ", ")
}
