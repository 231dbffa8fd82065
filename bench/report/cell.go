package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
)

// Metric is a number that a run shows.
type Metric struct {
	Name   string
	Unit   string // empty for ratios
	Higher bool   // better
	// Of returns NaN where the run has no such value.
	Of func(*stat.Summary) float64
	// Exact reports whether the value is what it says; otherwise it is a lower bound. Nil: always.
	Exact func(*stat.Summary) bool
	// Survivors reports whether requests that were given up have no value, so that it is of the others only. Nil: never.
	Survivors func(*stat.Summary) bool
}

// quantile is a metric of latency, in seconds.
func quantile(name string, q float64, of func(*stat.Summary) *stat.Durations) Metric {
	return Metric{Name: name, Unit: "s",
		Of: func(s *stat.Summary) float64 {
			d := of(s)
			switch {
			case d.Count == 0:
				return math.NaN()
			case q == 0.5:
				return d.P50.Seconds()
			default:
				return d.P99.Seconds()
			}
		},
		Exact: func(s *stat.Summary) bool { return of(s).Exact(q) },
	}
}

// survivors is a metric that requests which were given up half-way do not have.
func survivors(m Metric) Metric {
	m.Survivors = func(s *stat.Summary) bool { return s.Survivors }
	return m
}

func rate(name, unit string, of func(*stat.Summary) float64) Metric {
	return Metric{Name: name, Unit: unit, Higher: true, Of: of}
}

// share is a ratio of requests, NaN where whole is 0.
func share(name string, whole func(*stat.Summary) int, of func(*stat.Summary) float64) Metric {
	return Metric{Name: name, Higher: true, Of: func(s *stat.Summary) float64 {
		if whole(s) == 0 {
			return math.NaN()
		}
		return of(s)
	}}
}

func offered(s *stat.Summary) int  { return s.Offered }
func taken(s *stat.Summary) int    { return s.Offered - s.Outcomes[record.Shed] }
func answered(s *stat.Summary) int { return s.Outcomes[record.OK] }
func tenants(s *stat.Summary) int  { return len(s.Tenants) }

// The metrics.
var (
	Goodput    = rate("goodput", "req/s", func(s *stat.Summary) float64 { return s.Goodput })
	Throughput = rate("answered", "req/s", func(s *stat.Summary) float64 { return s.Throughput })
	TokensRate = rate("output tokens", "tokens/s", func(s *stat.Summary) float64 { return s.TokensRate })
	Attainment = share("SLO attainment", offered, func(s *stat.Summary) float64 { return s.Attainment })
	Kept       = share("attainment of those not shed", taken, func(s *stat.Summary) float64 { return s.Kept })
	NotShed    = share("not shed", offered, func(s *stat.Summary) float64 { return 1 - s.ShedRatio })
	Ended      = share("neither failed nor given up", offered, func(s *stat.Summary) float64 {
		o := s.Outcomes
		return 1 - float64(o[record.Error]+o[record.Timeout]+o[record.Censored])/float64(s.Offered)
	})
	HitRatio = share("prefix hits", answered, func(s *stat.Summary) float64 { return s.HitRatio })
	Fairness = share("Jain index of tenants", tenants, func(s *stat.Summary) float64 { return s.Jain })
	TTFT50   = quantile("p50 TTFT", 0.5, func(s *stat.Summary) *stat.Durations { return &s.TTFT })
	TTFT99   = quantile("p99 TTFT", 0.99, func(s *stat.Summary) *stat.Durations { return &s.TTFT })
	E2E50    = quantile("p50 E2E", 0.5, func(s *stat.Summary) *stat.Durations { return &s.E2E })
	E2E99    = quantile("p99 E2E", 0.99, func(s *stat.Summary) *stat.Durations { return &s.E2E })
	TPOT99   = survivors(quantile("p99 TPOT", 0.99, func(s *stat.Summary) *stat.Durations { return &s.TPOT }))
	ITL99    = quantile("p99 ITL", 0.99, func(s *stat.Summary) *stat.Durations { return &s.ITL })

	// Metrics are all of them, in the order of tables.
	Metrics = []Metric{Goodput, Attainment, Kept, Throughput, TokensRate, NotShed, Ended, TTFT50, TTFT99, E2E50, E2E99, TPOT99, ITL99, HitRatio, Fairness}
)

type cellKey struct {
	arm  string
	rate float64
}

// Cell is an arm at a rate.
type Cell struct {
	Arm  string
	Rate float64
	Runs []*Run // in order of block, seed, execution
}

// Value is a metric of a cell.
type Value struct {
	stat.Spread
	Lower     bool `json:"lower_bound"`         // of some run it is a lower bound
	Survivors bool `json:"survivors,omitempty"` // of some run it leaves out requests that were given up
}

// Over returns a metric over the cell's runs. A nil cell has none.
func (c *Cell) Over(m Metric) Value {
	if c == nil {
		return Value{}
	}
	v := Value{}
	values := make([]float64, 0, len(c.Runs))
	for _, run := range c.Runs {
		x := m.Of(&run.Summary)
		values = append(values, x)
		v.Lower = v.Lower || m.lower(&run.Summary)
		v.Survivors = v.Survivors || m.Survivors != nil && !math.IsNaN(x) && m.Survivors(&run.Summary)
	}
	v.Spread = stat.Over(values...)
	return v
}

// lower reports whether a run's value is a lower bound.
func (m Metric) lower(s *stat.Summary) bool {
	return m.Exact != nil && !math.IsNaN(m.Of(s)) && !m.Exact(s)
}

func compareRuns(arms []string, a, b *Run) int {
	return cmp.Or(slices.Index(arms, a.Arm)-slices.Index(arms, b.Arm), cmp.Compare(a.Rate, b.Rate), a.Block-b.Block, cmp.Compare(a.Seed, b.Seed), a.Order-b.Order)
}

// fill puts the runs into cells.
func (r *Report) fill() {
	for _, run := range r.Runs {
		k := cellKey{run.Arm, run.Rate}
		if r.cells[k] == nil {
			r.cells[k] = &Cell{Arm: run.Arm, Rate: run.Rate}
		}
		r.cells[k].Runs = append(r.cells[k].Runs, run)
	}
}

// Cell returns the runs of an arm at a rate, nil if none counts.
func (r *Report) Cell(arm string, rate float64) *Cell { return r.cells[cellKey{arm, rate}] }

// Peak returns the cell in which an arm's mean goodput is largest, the lowest rate of several; nil if it never is more
// than 0.
func (r *Report) Peak(arm string) *Cell {
	return r.peak(arm, func(c *Cell) float64 { return c.Over(Goodput).Mean })
}

func (r *Report) peak(arm string, of func(*Cell) float64) *Cell {
	var best *Cell
	most := 0.0
	for _, rate := range r.Rates {
		if c := r.Cell(arm, rate); c != nil && of(c) > most {
			best, most = c, of(c)
		}
	}
	return best
}

// Overload is the rate at which arms are compared past the knee: the lowest that is at least 1.5 times the rate at which
// the best of the arms that shed less than 1 % has its peak, else the highest of all. If every arm sheds, the earliest
// peak counts.
func (r *Report) Overload() float64 {
	if r.options.Overload != 0 {
		return r.options.Overload
	}
	knee, earliest := 0.0, math.Inf(1)
	for _, arm := range r.Arms {
		peak := r.Peak(arm)
		if peak == nil {
			continue
		}
		earliest = min(earliest, peak.Rate)
		sheds := slices.ContainsFunc(r.Rates, func(rate float64) bool {
			c := r.Cell(arm, rate)
			return c != nil && c.Over(NotShed).Mean < 0.99
		})
		if !sheds {
			knee = max(knee, peak.Rate)
		}
	}
	if knee == 0 {
		knee = earliest
	}
	for _, rate := range r.Rates {
		if rate >= 1.5*knee {
			return rate
		}
	}
	return r.Rates[len(r.Rates)-1]
}
