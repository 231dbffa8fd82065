package gate

import (
	"context"
	"errors"
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
	Dir        string        // of the records
	UpArgs     []string      // further arguments of cadence up: not part of the settings, what is to be judged
	Executable string        // cadence's own
	Limit      time.Duration // Run ends by then, and begins nothing again that would not; 0: none
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

// runner measures. Its parts are replaced in tests.
type runner struct {
	measure func(ctx context.Context, name string, i int) (Sample, error) // the run at the i-th rate
	spent   func() time.Duration
	limit   time.Duration // 0: none
	log     *slog.Logger
}

func newRunner(s *Settings, o *Options) *runner {
	begin := time.Now()
	return &runner{limit: o.Limit, log: o.Log, spent: func() time.Duration { return time.Since(begin) },
		measure: func(ctx context.Context, name string, i int) (Sample, error) { return measure(ctx, s, o, name, i) }}
}

// Run measures under the budget's settings and judges. A run that says nothing is done again, up to three times, and one that
// is worse than the budget once: what counts is the last.
func Run(ctx context.Context, b *Budget, o Options) (*Report, error) {
	r := &Report{Budget: b, Sources: provenance.Sources(), UpArgs: o.UpArgs}
	contents, err := b.Settings.contents()
	if err != nil {
		return nil, err
	}
	if contents != b.Settings.Contents {
		r.Verdict = Verdict{Exit: Invalid, Lines: []Line{}, Invalid: []string{fmt.Sprintf(
			"the budget is of another profile %s or workload %s than there are now: measure it anew with make refresh-gate", b.Settings.Profile, b.Settings.Workload)}}
		return r, nil
	}
	if o.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("gate: it took longer than %v", o.Limit))
		defer cancel()
	}
	if r.Samples, err = newRunner(&b.Settings, &o).all(ctx, b); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}
		return nil, err
	}
	r.Verdict = Judge(b, r.Samples)
	return r, nil
}

// all measures at each of the budget's rates.
func (r *runner) all(ctx context.Context, b *Budget) ([]Sample, error) {
	var got []Sample
	for i := range b.Points {
		p := &b.Points[i].Sample
		why := func(s *Sample) []string { return complaints(p, s) }
		s, err := r.try(ctx, "gate", i, len(b.Points)-i, why)
		if err != nil {
			return nil, err
		}
		one := &Budget{Points: b.Points[i : i+1]}
		if begin := r.spent(); Judge(one, []Sample{s}).Exit == Regression && r.fits(s.took, len(b.Points)-i) {
			r.log.Warn("the run is worse than the budget allows and is done once more", "rate_per_s", s.Rate, "spent", begin.Round(time.Second))
			if s, err = r.try(ctx, "again", i, len(b.Points)-i, why); err != nil {
				return nil, err
			}
		}
		got = append(got, s)
	}
	return got, nil
}

// fits reports whether there is time left for n runs.
func (r *runner) fits(took time.Duration, n int) bool {
	return r.limit == 0 || r.spent()+time.Duration(n)*took <= r.limit
}

// attempts is how often a run that says nothing is begun.
const attempts = 3

// Refresh measures several times and makes a budget of it. A run that says nothing is done again, up to three times.
func Refresh(ctx context.Context, s Settings, passes int, o Options) (*Budget, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if passes < MinRuns {
		return nil, fmt.Errorf("%w: %d passes, allowed: %d and more", ErrBudget, passes, MinRuns)
	}
	var err error
	if s.Contents, err = s.contents(); err != nil {
		return nil, err
	}
	r := newRunner(&s, &o)
	all := make([][]Sample, passes)
	for pass := range all {
		for i := range s.Rates {
			got, err := r.try(ctx, fmt.Sprintf("pass-%d", pass+1), i, 1, func(s *Sample) []string { return s.Invalid })
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

// try measures until there is nothing to complain of, or no attempt left, or no time for as many runs as are still needed.
func (r *runner) try(ctx context.Context, name string, i, needed int, complaints func(*Sample) []string) (Sample, error) {
	for attempt := 1; ; attempt++ {
		begin := r.spent()
		got, err := r.measure(ctx, fmt.Sprintf("%s.%d", name, attempt), i)
		if err != nil {
			return got, err
		}
		got.took = r.spent() - begin
		why := complaints(&got)
		if len(why) == 0 || attempt == attempts || !r.fits(got.took, needed) {
			return got, nil
		}
		r.log.Warn("the run says nothing and is done again", "rate_per_s", got.Rate, "attempt", attempt, "why", why)
	}
}

// measure does the run at the i-th rate, with a canary before its services start and one after they have stopped.
func measure(ctx context.Context, s *Settings, o *Options, name string, i int) (Sample, error) {
	rate := s.Rates[i]
	d := &ladder.Definition{Name: "gate", Arms: []ladder.Arm{{Name: name, Args: o.UpArgs}}, Workload: s.Workload, Profile: s.Profile, SLO: &s.SLO,
		Length: s.Length, Warmup: s.Warmup, Drain: s.Drain, Timeout: s.Drain, Args: s.Args}
	job := ladder.Job{ID: fmt.Sprintf("%s_r%g_s%d", name, rate, s.Seed), Order: i, Arm: name, Rate: rate, Seed: s.Seed}
	before, err := canary(ctx)
	if err != nil {
		return Sample{}, err
	}
	run, rows, err := ladder.Single(ctx, ladder.Options{Definition: d, On: ladder.Mock, Dir: o.Dir, Executable: o.Executable, Version: o.Version, Log: o.Log}, job)
	sample := Sample{Rate: rate}
	switch {
	case errors.Is(err, ladder.ErrEngine):
		sample.Broken = err.Error()
	case err != nil:
		return Sample{}, err
	default:
		sample = sampleOf(run, rows)
	}
	after, err := canary(ctx)
	if err != nil {
		return Sample{}, err
	}
	sample.Canary = min(before, after)
	o.Log.Info("measured", "rate_per_s", rate, "goodput_per_s", fmt.Sprintf("%.3f", sample.Goodput), "ttft_p99", sample.TTFT99.Round(time.Millisecond),
		"e2e_p99", sample.E2E99.Round(time.Millisecond), "requests", sample.Requests, "failed_ratio", fmt.Sprintf("%.4f", sample.Failed), "canary_steps_per_s", fmt.Sprintf("%.1f", sample.Canary),
		"lag_max", sample.LagMax.Round(time.Microsecond), "records", filepath.Join(o.Dir, "runs", job.ID))
	return sample, nil
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	t := p.Table("offered", "metric", "budget", "now", "change", "limit", "")
	for i := range r.Lines {
		l := &r.Lines[i]
		text := metrics[i%len(metrics)].text
		mark := "ok"
		if l.Worse {
			mark = "WORSE"
		}
		change := "–"
		if l.Budget != 0 {
			change = fmt.Sprintf("%+.1f %%", 100*l.Change)
		}
		t.AppendRow(table.Row{fmt.Sprintf("%g/s", l.Rate), l.Metric, text(l.Budget), text(l.Got), change, text(l.Limit), mark})
	}
	p.Render(t)
	for _, how := range r.Broken {
		p.Line("broken: %s", how)
	}
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
