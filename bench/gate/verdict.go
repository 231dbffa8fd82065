package gate

import (
	"fmt"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
)

// Exit is the status that a verdict ends the process with.
type Exit int

// The verdicts.
const (
	Passed     Exit = 0
	Regression Exit = 1
	Invalid    Exit = 2
)

// What may differ from the budget, as a part of it where nothing else is said.
const (
	P99Worse     = 0.15 // a p99 may be longer by
	GoodputWorse = 0.10 // goodput may be less by
	CanarySlower = 0.10 // the canary may be slower by
	// FailedMore is by how much more of the offered requests may fail, as a part of them.
	FailedMore = 0.005
	// RequestsFewer is by how much fewer measured requests than the budget's may come; their times are seeded.
	RequestsFewer = 0.02
)

// Sample is what a run at one rate showed.
type Sample struct {
	Rate     float64       `json:"rate"`     // offered, requests/s
	Requests int           `json:"requests"` // measured
	Goodput  float64       `json:"goodput_per_second"`
	TTFT99   time.Duration `json:"ttft_p99_ns"`
	E2E99    time.Duration `json:"e2e_p99_ns"`
	Failed   float64       `json:"failed_ratio"`            // of the measured: neither answered nor refused
	Canary   float64       `json:"canary_steps_per_second"` // the slower of before and after the run
	LagMax   time.Duration `json:"lag_max_ns"`
	Invalid  []string      `json:"invalid,omitempty"` // the run's own complaints
	Broken   string        `json:"broken,omitempty"`  // the pipeline started and then failed: how; nothing else counts then

	took time.Duration // of the run, with all around it
}

// usable reports whether a budget can be made of it.
func (s *Sample) usable() bool {
	return len(s.Invalid) == 0 && s.Canary > 0 && s.Requests > 0 && s.Broken == ""
}

// dead reports whether the pipeline did nothing at all, which no delay of the generator explains.
func (s *Sample) dead() bool { return s.Broken != "" || s.Requests > 0 && s.Failed == 1 }

// sampleOf sums up a run.
func sampleOf(run *record.Run, rows []record.Request) Sample {
	sum := stat.Summarize(run, rows, run.SLOs)
	s := Sample{Rate: run.Rate, Requests: sum.Offered, Goodput: sum.Goodput, TTFT99: sum.TTFT.P99, E2E99: sum.E2E.P99, LagMax: run.LagMax, Invalid: run.Invalid}
	if sum.Offered > 0 {
		failed := sum.Outcomes[record.Error] - sum.Errors[load.Generator] + sum.Outcomes[record.Timeout] + sum.Outcomes[record.Censored]
		s.Failed = float64(failed) / float64(sum.Offered)
	}
	return s
}

// metric is one of the figures that a budget bounds.
type metric struct {
	name  string
	of    func(*Sample) float64
	worse float64 // by how much it may be worse
	more  bool    // more of it is better
	added bool    // worse is a difference; otherwise a part of the budget
	text  func(float64) string
}

// limit is the value from which on it is worse than a budget allows.
func (m *metric) limit(budget float64) float64 {
	switch {
	case m.added:
		return budget + m.worse
	case m.more:
		return budget * (1 - m.worse)
	default:
		return budget * (1 + m.worse)
	}
}

func seconds(v float64) string { return time.Duration(v).Round(100 * time.Microsecond).String() }

var metrics = []metric{
	{name: "goodput", of: func(s *Sample) float64 { return s.Goodput }, worse: GoodputWorse, more: true, text: func(v float64) string { return fmt.Sprintf("%.3f/s", v) }},
	{name: "TTFT p99", of: func(s *Sample) float64 { return float64(s.TTFT99) }, worse: P99Worse, text: seconds},
	{name: "E2E p99", of: func(s *Sample) float64 { return float64(s.E2E99) }, worse: P99Worse, text: seconds},
	{name: "failed", of: func(s *Sample) float64 { return s.Failed }, worse: FailedMore, added: true, text: func(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }},
}

// Line compares one figure.
type Line struct {
	Rate   float64 `json:"rate"`
	Metric string  `json:"metric"`
	Budget float64 `json:"budget"`
	Got    float64 `json:"got"`
	Change float64 `json:"change_ratio"` // got / budget - 1; 0 if the budget is 0
	Limit  float64 `json:"limit"`        // beyond it Got is worse
	Worse  bool    `json:"worse"`
}

// Verdict is what is to be thought of a change.
type Verdict struct {
	Exit    Exit     `json:"exit"`
	Lines   []Line   `json:"lines"`
	Broken  []string `json:"broken,omitempty"`  // at which rates the pipeline failed, and how
	Invalid []string `json:"invalid,omitempty"` // why there is no verdict
}

// Judge compares one sample for each of the budget's points, by rate.
func Judge(b *Budget, got []Sample) Verdict {
	v := Verdict{Lines: []Line{}}
	note := func(format string, args ...any) { v.Invalid = append(v.Invalid, fmt.Sprintf(format, args...)) }
	if len(b.Points) == 0 {
		note("the budget is empty")
	}
	for i := range b.Points {
		p := &b.Points[i].Sample
		at := slices.IndexFunc(got, func(s Sample) bool { return s.Rate == p.Rate })
		if at < 0 {
			note("nothing was measured at %g requests/s", p.Rate)
			continue
		}
		s := &got[at]
		v.Invalid = append(v.Invalid, complaints(p, s)...)
		if s.Broken != "" {
			v.Broken = append(v.Broken, fmt.Sprintf("at %g requests/s: %s", s.Rate, s.Broken))
			continue
		}
		for k := range metrics {
			v.Lines = append(v.Lines, compare(&metrics[k], p, s))
		}
	}
	switch {
	case len(v.Invalid) > 0:
		v.Exit = Invalid
	case len(v.Broken) > 0 || slices.ContainsFunc(v.Lines, func(l Line) bool { return l.Worse }):
		v.Exit = Regression
	}
	return v
}

// complaints are why a sample says nothing about what the budget expects at its rate.
func complaints(p, s *Sample) []string {
	var all []string
	note := func(format string, args ...any) {
		all = append(all, fmt.Sprintf("at %g requests/s: ", s.Rate)+fmt.Sprintf(format, args...))
	}
	if least := p.Canary * (1 - CanarySlower); s.Canary < least || s.Canary == 0 {
		note("the canary did %.1f steps/s, less than %.1f: the machine is too slow or too busy", s.Canary, least)
	}
	if s.dead() {
		return all
	}
	for _, why := range s.Invalid {
		note("%s", why)
	}
	if least := float64(p.Requests) * (1 - RequestsFewer); float64(s.Requests) < least || s.Requests == 0 {
		note("%d requests were measured, less than %.0f", s.Requests, least)
	}
	return all
}

func compare(m *metric, budget, got *Sample) Line {
	l := Line{Rate: budget.Rate, Metric: m.name, Budget: m.of(budget), Got: m.of(got)}
	l.Limit = m.limit(l.Budget)
	l.Worse = l.Got > l.Limit
	if m.more {
		l.Worse = l.Got < l.Limit
	}
	if l.Budget != 0 {
		l.Change = l.Got/l.Budget - 1
	}
	return l
}
