package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cadence-slo/cadence/bench/stat"
)

func (r *Report) canary() *Table {
	all := r.CanaryArms()
	if len(all) == 0 {
		return nil
	}
	t := &Table{Title: "How fast the machine was", Header: []string{"Measured before", "probes", "mean (tokens/s)", "least", "largest", "spread", "failed"}}
	var means []float64
	for _, c := range all {
		name := c.Arm
		if name == "" {
			name = "all"
		}
		if c.Rate.Count == 0 {
			t.add(name, "0", none, none, none, none, count(c.Missing))
			continue
		}
		if c.Arm != "" {
			means = append(means, c.Rate.Mean)
		}
		t.add(name, count(c.Rate.Count), figure(c.Rate.Mean), figure(c.Rate.Min), figure(c.Rate.Max), fmt.Sprintf("%.1f %%", 100*c.Ratio()), count(c.Missing))
	}
	t.Note = "A fixed piece of work on the idle engine, past admission, just before each run. Spread is (largest − least) / mean."
	if s := stat.Over(means...); s.Count > 1 {
		t.Note += fmt.Sprintf(" What matters for comparisons is whether it fell evenly on the arms: their means differ by %.1f %%.", 100*(s.Max-s.Min)/s.Mean)
	}
	return t
}

func (r *Report) anchor() *Table {
	all := r.Anchors()
	if len(all) == 0 {
		return nil
	}
	var blocks []int
	for _, a := range all {
		blocks = append(blocks, a.Blocks...)
	}
	slices.Sort(blocks)
	blocks = slices.Compact(blocks)
	t := &Table{Title: "The same arm in different blocks", Left: 2, Header: []string{"Arm", "metric", "offered (req/s)"}}
	for _, b := range blocks {
		t.Header = append(t.Header, fmt.Sprintf("block %d", b))
	}
	t.Header = append(t.Header, "largest difference")
	worst := map[string]float64{}
	var names []string
	for _, a := range all {
		row := []string{a.Arm, a.Metric + " (" + a.Unit + ")", r.at(a.Rate)}
		means := make([]float64, 0, len(a.Values))
		for _, b := range blocks {
			v := Value{}
			if i := slices.Index(a.Blocks, b); i >= 0 {
				v = a.Values[i]
			}
			row = append(row, value(Metric{Name: a.Metric, Unit: a.Unit}, v))
			if v.Count > 0 {
				means = append(means, v.Mean)
			}
		}
		s := stat.Over(means...)
		switch {
		case s.Count < 2:
			row = append(row, none)
		case s.Max == 0:
			row = append(row, "both 0")
		case s.Min == 0:
			row = append(row, "from 0")
		default:
			d := s.Max/s.Min - 1
			row = append(row, signedPercent(d))
			if _, ok := worst[a.Metric]; !ok {
				names = append(names, a.Metric)
			}
			worst[a.Metric] = max(worst[a.Metric], d)
		}
		t.add(row...)
	}
	t.Note = "The same arm with the same seeds, run once in each block: what time alone changed. Read comparisons across blocks with this as their floor."
	for i, name := range names {
		if i == 0 {
			t.Note += " At most"
		} else {
			t.Note += " and"
		}
		t.Note += fmt.Sprintf(" %s in %s", percent(worst[name]), name)
	}
	if len(names) > 0 {
		t.Note += "."
	}
	return t
}

func (r *Report) excludedTable() *Table {
	if len(r.Excluded) == 0 {
		return nil
	}
	t := &Table{Title: "Runs that do not count", Left: 2, Header: []string{"Run", "Arm", "offered (req/s)", "seed", "why"},
		Note: "They are in no other table and in no figure."}
	for _, e := range r.Excluded {
		arm, rate, seed := e.Arm, number(e.Rate), fmt.Sprint(e.Seed)
		if arm == "" && e.Rate == 0 {
			arm, rate, seed = none, none, none
		}
		t.add(e.ID, arm, rate, seed, e.Why)
	}
	return t
}

// machine says a machine's description in words, without what changes from run to run.
func machine(b json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(b, &fields) != nil {
		return string(b)
	}
	delete(fields, "load_averages")
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, fmt.Sprintf("%s %v", name, fields[name]))
	}
	return strings.Join(parts, ", ")
}

// provenance says what the runs were of.
func (r *Report) provenance() *Table {
	if len(r.Runs) == 0 {
		return nil
	}
	t := &Table{Title: "What was run", Left: 2, Header: []string{"", "value", "runs"}}
	for _, f := range []struct {
		name string
		of   func(*Run) string
	}{
		{"experiment", func(r *Run) string { return r.Experiment }},
		{"on", func(r *Run) string { return r.On }},
		{"workload", func(r *Run) string { return r.Workload }},
		{"arrivals", func(r *Run) string { return r.Arrivals }},
		{"length", func(r *Run) string {
			return fmt.Sprintf("%s, of which %s warm-up and %s tail", duration(r.Length), duration(r.Warmup), duration(r.Tail))
		}},
		{"model", func(r *Run) string { return r.Model }},
		{"profile", func(r *Run) string { return r.Profile }},
		{"build", func(r *Run) string { return r.Build }},
		{"engine's sources", func(r *Run) string { return r.Sources[:min(12, len(r.Sources))] }},
		{"machine", func(r *Run) string { return machine(r.Machine) }},
	} {
		seen := map[string]int{}
		var values []string
		for _, run := range r.Runs {
			v := f.of(run)
			if v == "" {
				continue
			}
			if seen[v] == 0 {
				values = append(values, v)
			}
			seen[v]++
		}
		slices.Sort(values)
		for _, v := range values {
			t.add(f.name, v, count(seen[v]))
		}
		if len(values) > 1 && (f.name == "build" || f.name == "engine's sources" || f.name == "machine") {
			t.Note += " The runs differ in " + f.name + "."
		}
	}
	t.Note = strings.TrimSpace(t.Note)
	return t
}
