package gate

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/cadence-slo/cadence/bench/ladder"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/provenance"
	"github.com/jedib0t/go-pretty/v6/table"
)

// Options says how to measure.
type Options struct {
	Dir        string   // of the records
	UpArgs     []string // further arguments of cadence up: not part of the settings, what is to be judged
	Executable string   // cadence's own
	Version    string
	Log        *slog.Logger
}

// Report is a verdict with what it is based on.
type Report struct {
	Verdict
	Budget  *Budget  `json:"budget"`
	Samples []Sample `json:"samples"`
	Sources string   `json:"source_hash"`
	UpArgs  []string `json:"up_args,omitempty"`
}

// Run measures under the budget's settings and judges. A run that says nothing is done again, up to three times.
func Run(ctx context.Context, b *Budget, o Options) (*Report, error) {
	var got []Sample
	for i := range b.Points {
		s, err := try(ctx, &b.Settings, &o, "gate", i, func(s *Sample) []string { return complaints(&b.Points[i].Sample, s) })
		if err != nil {
			return nil, err
		}
		got = append(got, s)
	}
	return &Report{Verdict: Judge(b, got), Budget: b, Samples: got, Sources: provenance.Sources(), UpArgs: o.UpArgs}, nil
}

// attempts is how often a run that says nothing is begun.
const attempts = 3

// Refresh measures several times and makes a budget of it. A run that says nothing is done again, up to three times.
func Refresh(ctx context.Context, s Settings, passes int, o Options) (*Budget, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if passes < 1 {
		return nil, fmt.Errorf("%w: %d passes, allowed: 1 and more", ErrBudget, passes)
	}
	all := make([][]Sample, passes)
	for pass := range all {
		for i := range s.Rates {
			got, err := try(ctx, &s, &o, fmt.Sprintf("pass-%d", pass+1), i, func(s *Sample) []string { return s.Invalid })
			if err != nil {
				return nil, err
			}
			all[pass] = append(all[pass], got)
		}
	}
	b, err := budgetOf(&s, all)
	if err != nil {
		return nil, err
	}
	b.Time, b.Sources = time.Now().UTC(), provenance.Sources()
	return b, nil
}

// try measures until there is nothing to complain of, or no attempt left.
func try(ctx context.Context, s *Settings, o *Options, name string, i int, complaints func(*Sample) []string) (Sample, error) {
	for attempt := 1; ; attempt++ {
		got, err := measure(ctx, s, o, fmt.Sprintf("%s.%d", name, attempt), i)
		if err != nil {
			return got, err
		}
		why := complaints(&got)
		if len(why) == 0 || attempt == attempts {
			return got, nil
		}
		o.Log.Warn("the run says nothing and is done again", "rate_per_s", got.Rate, "attempt", attempt, "why", why)
	}
}

// measure does the run at the i-th rate.
func measure(ctx context.Context, s *Settings, o *Options, name string, i int) (Sample, error) {
	rate := s.Rates[i]
	d := &ladder.Definition{Name: "gate", Arms: []ladder.Arm{{Name: name, Args: o.UpArgs}}, Workload: s.Workload, Profile: s.Profile, SLO: &s.SLO,
		Length: s.Length, Warmup: s.Warmup, Drain: s.Drain, Args: s.Args}
	job := ladder.Job{ID: fmt.Sprintf("%s_r%g_s%d", name, rate, s.Seed), Order: i, Arm: name, Rate: rate, Seed: s.Seed}
	run, rows, err := ladder.Single(ctx, ladder.Options{Definition: d, On: ladder.Mock, Dir: o.Dir, Executable: o.Executable, Version: o.Version, Log: o.Log}, job)
	if err != nil {
		return Sample{}, err
	}
	sample := sampleOf(run, rows)
	o.Log.Info("measured", "rate_per_s", rate, "goodput_per_s", fmt.Sprintf("%.3f", sample.Goodput), "ttft_p99", sample.TTFT99.Round(time.Millisecond),
		"e2e_p99", sample.E2E99.Round(time.Millisecond), "requests", sample.Requests, "canary_tokens_per_s", fmt.Sprintf("%.1f", sample.Canary), "lag_max", sample.LagMax.Round(time.Microsecond),
		"records", filepath.Join(o.Dir, "runs", job.ID))
	return sample, nil
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	t := p.Table("offered", "metric", "budget", "now", "change", "allowed", "")
	for i := range r.Lines {
		l := &r.Lines[i]
		text := metrics[i%len(metrics)].text
		mark := "ok"
		if l.Worse {
			mark = "WORSE"
		}
		t.AppendRow(table.Row{fmt.Sprintf("%g/s", l.Rate), l.Metric, text(l.Budget), text(l.Got), fmt.Sprintf("%+.1f %%", 100*l.Change), fmt.Sprintf("%+.0f %%", 100*l.Allowed), mark})
	}
	p.Render(t)
	for _, why := range r.Invalid {
		p.Line("no verdict: %s", why)
	}
	switch r.Exit {
	case Passed:
		p.Line("Nothing is worse than the budget allows.")
	case Regression:
		p.Line("A regression. If it is wanted: make refresh-gate")
	case Invalid:
		p.Line("This run says nothing about the change.")
	}
	return p.Err
}
