package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/predictor/profile/fit"
)

// Report is what a calibration found.
type Report struct {
	Time    time.Time        `json:"time"`
	Took    time.Duration    `json:"took_ns"`
	Machine pipeline.Machine `json:"machine"`
	Engine  EngineOptions    `json:"engine"`
	Model   pipeline.Model   `json:"model"`
	Options Options          `json:"options"`

	Profile   *profile.Profile `json:"profile"`
	Disturbed int              `json:"disturbed_steps"`
	Kinds     []Residual       `json:"residuals"`
	Cells     []Cell           `json:"cells"`
	Steps     []Step           `json:"steps,omitempty"` // all that were measured
}

// Cell sums up the steps of one make: so many tokens of prefill or so many sequences that decode, and nothing else.
type Cell struct {
	Prefill   int           `json:"prefill_tokens"`
	Decodes   int           `json:"decodes"`
	Steps     int           `json:"steps"`
	Context   int           `json:"context_tokens"` // the median
	Measured  time.Duration `json:"median_ns"`
	P95       time.Duration `json:"p95_ns"`
	Predicted time.Duration `json:"predicted_ns"` // for Context
}

// Run opens an engine, measures it and fits a profile of the given name (empty: of engine, model and threads). report, if
// not nil, hears how far it is.
func Run(ctx context.Context, e EngineOptions, o Options, name, version string, log *slog.Logger, report func(done, total int64)) (r *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	begin := time.Now()
	engine, err := Open(ctx, e, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	steps, err := Measure(ctx, engine, engine.IDs, o, report)
	if err != nil {
		return nil, err
	}
	r = &Report{Time: begin.UTC(), Machine: pipeline.ThisMachine(version), Engine: e, Model: engine.Model, Options: o}
	if name == "" {
		name = fmt.Sprintf("%s-%s-%dt", e.On, engine.Model.File, e.Threads)
	}
	info := engine.Info()
	r.Profile = &profile.Profile{Version: profile.Version, Name: name, Fingerprint: info.Fingerprint, Limits: limits(&e, info, o.ChunkTokens),
		Source: fmt.Sprintf("cadence calibrate, %s, %s, %d threads, %s", r.Machine.String(), engine.Model.File, e.Threads, begin.UTC().Format(time.DateOnly))}
	if err := r.Refit(steps); err != nil {
		return nil, err
	}
	r.Took = time.Since(begin)
	return r, nil
}

// Refit fits the profile to steps, which it keeps: those of several calibrations of the same engine, for instance. The report is
// unchanged after an error.
func (r *Report) Refit(steps []Step) error {
	cost, err := fit.Cost(steps, r.Options.Batches, r.Options.Seed)
	if err != nil {
		return err
	}
	p := *r.Profile
	p.Cost, p.Fit = cost.Cost, &cost.Fit
	if err := p.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrFit, err)
	}
	r.Profile, r.Disturbed, r.Kinds, r.Steps, r.Cells = &p, cost.Disturbed, cost.Kinds, steps, cells(steps, r.Options.Chunks, &p)
	return nil
}

// cells groups the steps that only decode by their number, and those of a single chunk of prefill by its size.
func cells(steps []Step, chunks []int, p *profile.Profile) []Cell {
	groups := map[[2]int][]Step{}
	for _, s := range steps {
		if s.Prefill == 0 || s.Decodes == 0 && slices.Contains(chunks, s.Prefill) {
			key := [2]int{s.Prefill, s.Decodes}
			groups[key] = append(groups[key], s)
		}
	}
	var out []Cell
	for _, key := range slices.SortedFunc(maps.Keys(groups), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		var took, context []float64
		for _, s := range groups[key] {
			took, context = append(took, float64(s.Took)), append(context, float64(s.Context))
		}
		c := Cell{Prefill: key[0], Decodes: key[1], Steps: len(took), Context: int(fit.Quantile(context, 0.5)),
			Measured: time.Duration(fit.Quantile(took, 0.5)), P95: time.Duration(fit.Quantile(took, 0.95))}
		c.Predicted = p.Step(c.Prefill, c.Decodes, c.Context)
		out = append(out, c)
	}
	return out
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	p.Line("%s", r.Machine.String())
	p.Line("%s on %s, %d threads; %d steps in %s, %d of them disturbed by something else", r.Engine.On, r.Model.File, r.Engine.Threads, len(r.Steps), r.Took.Round(time.Second), r.Disturbed)
	t := p.Table("step", "measured (median)", "p95", "by the profile", "error", "tokens/s", "steps")
	for _, c := range r.Cells {
		name, tokens := fmt.Sprintf("%d decode, %d held", c.Decodes, c.Context), c.Decodes
		if c.Decodes == 0 {
			name, tokens = fmt.Sprintf("%d of prefill, %d held", c.Prefill, c.Context), c.Prefill
		}
		t.AppendRow([]any{name, ms(c.Measured), ms(c.P95), ms(c.Predicted), percent(float64(c.Predicted)/float64(c.Measured) - 1),
			fmt.Sprintf("%.0f", float64(tokens)/c.Measured.Seconds()), c.Steps})
	}
	p.Render(t)
	c := &r.Profile.Cost
	p.Line("step = %.3f ms + (prefill: %.3f ms) + %.2f µs × prefill tokens + decode(batch) + %.1f ns × tokens held", c.Base/1e6, c.Prefill/1e6, c.PrefillToken/1e3, c.ContextToken)
	t = p.Table("held-out steps", "steps", "median step", "|error| p50", "|error| p95", "median error")
	for _, k := range r.Kinds {
		t.AppendRow([]any{k.Kind, k.Steps, ms(k.Median), size(k.ErrorP50), size(k.ErrorP95), percent(k.Bias)})
	}
	f := r.Profile.Fit
	t.AppendRow([]any{"all", f.HeldOut, "", size(f.ErrorP50), size(f.ErrorP95), ""})
	p.Render(t)
	p.Line("R² = %.4f on %d fitted steps", f.R2, f.Steps)
	return p.Err
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1e3) }

func percent(v float64) string { return fmt.Sprintf("%+.1f %%", 100*v) }

func size(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
