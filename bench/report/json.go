package report

import "github.com/cadence-slo/cadence/bench/record"

// Document is the report as data.
type Document struct {
	Title       string                `json:"title"`
	SLOs        map[string]record.SLO `json:"slos"`
	Arms        []string              `json:"arms"`
	Rates       []float64             `json:"rates"`
	Overload    float64               `json:"overload_rate"`
	Cells       []CellValues          `json:"cells"`
	Comparisons []Comparison          `json:"comparisons"`
	Worse       []Worsening           `json:"worse"`
	Canaries    []Canaries            `json:"canaries"`
	Anchors     []Anchor              `json:"anchors"`
	Excluded    []Excluded            `json:"excluded"`
	Missing     []string              `json:"missing"`
	Runs        []*Run                `json:"runs"`
}

// CellValues are the metrics of a cell, by name; those that it does not have are left out.
type CellValues struct {
	Arm     string           `json:"arm"`
	Rate    float64          `json:"rate"`
	Runs    int              `json:"runs"`
	Metrics map[string]Value `json:"metrics"`
}

// Document returns the report as data.
func (r *Report) Document() (*Document, error) {
	comparisons, err := r.Comparisons()
	if err != nil {
		return nil, err
	}
	d := &Document{Title: r.Title(), SLOs: r.SLOs, Arms: r.Arms, Rates: r.Rates, Comparisons: comparisons, Excluded: r.Excluded, Missing: r.Missing(), Runs: r.Runs,
		Worse: r.Worsenings(), Canaries: r.CanaryArms(), Anchors: r.Anchors()}
	if len(r.Runs) > 0 {
		d.Overload = r.Overload()
	}
	for _, arm := range r.Arms {
		for _, rate := range r.Rates {
			c := r.Cell(arm, rate)
			if c == nil {
				continue
			}
			v := CellValues{Arm: arm, Rate: rate, Runs: len(c.Runs), Metrics: map[string]Value{}}
			for _, m := range Metrics {
				if x := c.Over(m); x.Count > 0 {
					v.Metrics[m.Name] = x
				}
			}
			d.Cells = append(d.Cells, v)
		}
	}
	return d, nil
}
