package validate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/jedib0t/go-pretty/v6/table"
)

// ErrConfig is returned for options that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("validate: invalid options")

// Options says what to check. The tags are the flags of `cadence bench arrivals`.
type Options struct {
	Seeds  int           `help:"seeds of the arrival processes, 1 to this" default:"200"`
	Rate   float64       `help:"requests/s of the arrival processes" default:"1.4"`
	Length time.Duration `help:"length of the arrival processes" default:"3m"`

	Service     time.Duration `help:"what the stub takes for a request" default:"100ms"`
	QueueLength time.Duration `help:"how long twice the stub's capacity is offered, and half of it" default:"1m"`

	LagRates  []float64     `help:"rates at which the dispatch lag is measured" default:"50,200,500"`
	LagLength time.Duration `help:"how long each is offered" default:"10s"`

	Version string `kong:"-"` // of this program
	// Note, if not nil, is told what begins.
	Note func(string) `kong:"-"`
}

// Validate returns ErrConfig for the first key that is outside its range.
func (o *Options) Validate() error {
	switch {
	case o.Seeds < 20 || o.Seeds > 100000:
		return fmt.Errorf("%w: seeds is %d, allowed: 20 to 100000", ErrConfig, o.Seeds)
	case !(o.Rate > 0) || o.Length <= 0 || o.Rate*o.Length.Seconds() < 20:
		return fmt.Errorf("%w: rate %v and length %v make fewer than 20 arrivals", ErrConfig, o.Rate, o.Length)
	case o.Service <= 0 || o.QueueLength < 40*o.Service:
		return fmt.Errorf("%w: service is %v and queue-length %v, want more than 0 and at least 40 times that", ErrConfig, o.Service, o.QueueLength)
	case len(o.LagRates) > 0 && (slices.Min(o.LagRates) <= 0 || o.LagLength <= 0):
		return fmt.Errorf("%w: lag-rates are %v and lag-length %v, want more than 0", ErrConfig, o.LagRates, o.LagLength)
	}
	return nil
}

// Report is what the checks found.
type Report struct {
	Machine  pipeline.Machine `json:"machine"`
	Time     time.Time        `json:"time"`
	Arrivals []Process        `json:"arrivals"`
	Over     *Overload        `json:"twice_capacity"`
	Under    *Overload        `json:"half_capacity"`
	Lag      []*Punctuality   `json:"lag"`
	Passed   bool             `json:"passed"`
}

// controls are processes that must not pass for Poisson, at the options' rate and length.
func controls(length time.Duration) []arrival.Process {
	return []arrival.Process{
		arrival.Gamma{CV: 2}, arrival.OnOff{On: length / 20, Off: length / 10, Low: 0.1}, arrival.Ramp{From: 0, To: 1}, arrival.Constant{},
	}
}

// Run makes all checks. A check that fails is no error: Report.Passed tells.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	note := func(format string, args ...any) {
		if o.Note != nil {
			o.Note(fmt.Sprintf(format, args...))
		}
	}
	r := &Report{Machine: pipeline.ThisMachine(o.Version), Time: time.Now().UTC().Truncate(time.Second), Passed: true}
	note("arrivals over %d seeds", o.Seeds)
	r.Arrivals = append(r.Arrivals, Arrivals(arrival.Poisson{}, true, o.Seeds, o.Rate, o.Length), Arrivals(arrival.Gamma{CV: 1}, true, o.Seeds, o.Rate, o.Length))
	for _, p := range controls(o.Length) {
		r.Arrivals = append(r.Arrivals, Arrivals(p, false, o.Seeds, o.Rate, o.Length))
	}
	for i := range r.Arrivals {
		r.Passed = r.Passed && r.Arrivals[i].Passed
		if !r.Arrivals[i].Poisson {
			r.Arrivals[i].PValues = nil // as good as 0
		}
	}
	var err error
	capacity := 1 / o.Service.Seconds()
	for _, q := range []struct {
		rate float64
		to   **Overload
	}{{2 * capacity, &r.Over}, {capacity / 2, &r.Under}} {
		note("%.4g requests/s to a server that can do %.4g", q.rate, capacity)
		if *q.to, err = Queue(ctx, q.rate, o.Service, o.QueueLength); err != nil {
			return nil, err
		}
		r.Passed = r.Passed && (*q.to).Passed
	}
	for _, rate := range o.LagRates {
		note("lag at %.4g requests/s", rate)
		lag, err := Lag(ctx, rate, o.LagLength)
		if err != nil {
			return nil, err
		}
		r.Lag = append(r.Lag, lag)
		r.Passed = r.Passed && lag.Passed
	}
	return r, nil
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	verdict := func(ok bool) string { return map[bool]string{true: "passed", false: "FAILED"}[ok] }
	p.Line("%v\n", &r.Machine)
	first := r.Arrivals[0]
	p.Line("Gaps of %d seeds (%d of each, %.4g requests/s) against the exponential distribution, by Kolmogorov and Smirnov; the lower part must be told apart from it.",
		first.Seeds, first.Gaps, first.Rate)
	t := p.Table("process", "rejected at 5 %", "median p", "p of the p-values", "arrivals", "sd", "expected", "dispersion", "")
	for i := range r.Arrivals {
		a := &r.Arrivals[i]
		if i > 0 && a.Poisson != r.Arrivals[i-1].Poisson {
			t.AppendSeparator()
		}
		t.AppendRow(table.Row{a.Process, fmt.Sprintf("%.1f %%", 100*a.Rejected), fmt.Sprintf("%.3f", a.MedianP), fmt.Sprintf("%.2g", a.UniformP),
			fmt.Sprintf("%.1f", a.Mean), fmt.Sprintf("%.1f", a.Deviation), fmt.Sprintf("%.1f", a.Expected), fmt.Sprintf("%.2f", a.Index), verdict(a.Passed)})
	}
	p.Render(t)
	p.Line("\nMedian E2E by quarter of the run, against a server that takes %v for each request.", r.Over.Service)
	t = p.Table("requests/s", "can do", "answered", "1st", "2nd", "3rd", "4th", "expected", "")
	for _, q := range []*Overload{r.Over, r.Under} {
		row := table.Row{fmt.Sprintf("%.4g", q.Rate), fmt.Sprintf("%.4g", q.Rate/q.Load), fmt.Sprintf("%d of %d", q.Answered, q.Requests)}
		for _, m := range q.Medians {
			row = append(row, m.Round(time.Millisecond))
		}
		expected := ""
		for i, e := range q.Expected {
			if i > 0 {
				expected += " → "
			}
			expected += e.Round(time.Millisecond).String()
		}
		t.AppendRow(append(row, expected, verdict(q.Passed)))
	}
	p.Render(t)
	p.Line("\nHow late requests were sent, and how much later than its most punctual one the server saw them.")
	t = p.Table("requests/s", "requests", "lag p50", "p99", "p99.9", "max", "seen p50", "p99", "max", "")
	for _, l := range r.Lag {
		row := table.Row{fmt.Sprintf("%.4g", l.Rate), l.Requests}
		for _, d := range []time.Duration{l.P50, l.P99, l.P999, l.Max, l.Seen.P50, l.Seen.P99, l.Seen.Max} {
			row = append(row, d.Round(time.Microsecond))
		}
		t.AppendRow(append(row, verdict(l.Passed)))
	}
	p.Render(t)
	return p.Err
}
