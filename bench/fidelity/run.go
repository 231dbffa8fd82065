package fidelity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/bench/calibrate"
	"github.com/cadence-slo/cadence/bench/ladder"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

// Report is what a comparison found.
type Report struct {
	Time        time.Time         `json:"time"`
	Machine     pipeline.Machine  `json:"machine"`
	Workload    string            `json:"workload"`
	Arrivals    string            `json:"arrivals"`
	Seed        uint64            `json:"seed"`
	Profile     *profile.Profile  `json:"profile"`               // of the calibration, or the one that was given
	Calibration *calibrate.Report `json:"calibration,omitempty"` // nil: the profile was given
	Capacity    float64           `json:"capacity_per_second"`   // that the simulator says
	SLO         time.Duration     `json:"slo_e2e_ns"`
	Runs        []Outcome         `json:"runs"`
	Differences []Difference      `json:"differences"`
	Targets     Targets           `json:"targets"`
	// Passed is whether every run is valid and every difference within its target.
	Passed bool `json:"passed"`
}

// comparison is one Run.
type comparison struct {
	o       *Options
	dir     string
	profile *profile.Profile // that simulator and mock have
	file    string           // of the profile
	rep     *Report

	mu sync.Mutex // of seen

	seen  map[float64][]calibrate.Step // of the real engine, by the load that it served
	first map[float64][]record.Request // rows of the first run at a load
}

// Run compares.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Profile == nil && !slices.Contains(o.On, ladder.Llama) {
		return nil, fmt.Errorf("%w: profile is missing, allowed without llama: any", ErrConfig)
	}
	c := &comparison{o: &o, dir: o.Out, first: map[float64][]record.Request{}, seen: map[float64][]calibrate.Step{}, rep: &Report{Time: time.Now().UTC(), Machine: pipeline.ThisMachine(o.Version), Workload: o.Workload, Arrivals: o.Arrivals, Seed: o.Seed,
		Profile: o.Profile, SLO: o.SLO, Targets: o.Targets}}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "cadence-fidelity-"); err != nil {
			return nil, fmt.Errorf("fidelity: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	} else if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("fidelity: %w", err)
	}
	if err := c.calibrate(ctx); err != nil {
		return nil, err
	}
	if err := c.scale(ctx); err != nil {
		return nil, err
	}
	c.rep.Passed = true
	for _, load := range o.Loads {
		if err := c.at(ctx, load); err != nil {
			return nil, err
		}
	}
	c.rep.Differences = compare(c.rep.Runs, o.Targets)
	for _, d := range c.rep.Differences {
		c.rep.Passed = c.rep.Passed && d.Passed
	}
	return c.rep, nil
}

// at does the runs of a load, the real engine's first.
func (c *comparison) at(ctx context.Context, load float64) error {
	if slices.Contains(c.o.On, ladder.Llama) {
		if err := c.measure(ctx, ladder.Llama, load); err != nil {
			return err
		}
	}
	if err := c.adopt(load); err != nil {
		return err
	}
	for _, on := range c.o.On {
		if on == ladder.Llama {
			continue
		}
		if err := c.measure(ctx, on, load); err != nil {
			return err
		}
	}
	return nil
}

// measure does one run of the comparison.
func (c *comparison) measure(ctx context.Context, on string, load float64) error {
	c.tell("%s at %.2f requests/s (%.2f of the capacity)", on, load*c.rep.Capacity, load)
	run, rows, err := c.single(ctx, on, "poisson", load, load*c.rep.Capacity, c.o.Warmup, c.o.Requests)
	if err != nil {
		return fmt.Errorf("%s at load %v: %w", on, load, err)
	}
	if first, ok := c.first[load]; !ok {
		c.first[load] = rows
	} else if err := same(first, rows); err != nil {
		return err
	}
	c.rep.Passed = c.rep.Passed && run.Valid()
	out := outcome(run, rows)
	if on != ladder.Llama {
		out.Profile = c.profile
	}
	c.rep.Runs = append(c.rep.Runs, out)
	return nil
}

// adopt makes the profile that simulator and mock take their time from at a load. Where the real engine served it, it is fitted to that
// run's own steps, since no other minutes tell what the machine's speed was in those. What it takes from the run is how long a step of
// a given composition takes, never when steps were made, or of what.
func (c *comparison) adopt(load float64) error {
	c.profile = c.rep.Profile
	if own := c.seen[load]; len(own) > 0 {
		b, err := json.Marshal(own)
		if err == nil {
			err = keep(filepath.Join(c.dir, fmt.Sprintf("steps-%g.json", load)), b)
		}
		if err != nil {
			return err
		}
		r := *c.rep.Calibration
		if err := r.Refit(own); err != nil {
			return err
		}
		c.profile = r.Profile
		slow(&c.profile.Cost, ratio(own, c.profile)) // the fit leaves out what was disturbed, and the run had to wait for it
	}
	return c.write()
}

// ratio is how long all steps took by how long the profile says.
func ratio(steps []calibrate.Step, p *profile.Profile) float64 {
	var took, said time.Duration
	for i := range steps {
		s := &steps[i]
		took, said = took+s.Took, said+p.Step(s.Prefill, s.Decodes, s.Context)
	}
	return float64(took) / float64(max(1, said))
}

// slow makes every step take so many times as long.
func slow(c *profile.Cost, by float64) {
	for _, ns := range []*float64{&c.Base, &c.Prefill, &c.PrefillToken, &c.ContextToken} {
		*ns *= by
	}
	for i := range c.Decode {
		c.Decode[i].Time *= by
	}
}

// write puts the profile where the mock reads it.
func (c *comparison) write() error {
	b, err := c.profile.Encode()
	if err != nil {
		return err
	}
	if c.file, err = filepath.Abs(filepath.Join(c.dir, "profile.json")); err != nil {
		return fmt.Errorf("fidelity: %w", err)
	}
	return keep(c.file, b)
}

func keep(file string, b []byte) error {
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return fmt.Errorf("fidelity: %w", err)
	}
	return nil
}

// heed keeps the steps of an engine that serves a load.
func (c *comparison) heed(load float64) func(*schema.Step) {
	return func(s *schema.Step) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen[load] = append(c.seen[load], calibrate.Step{Prefill: int(s.PrefillTokens), Decodes: int(s.DecodeBatch), Context: int(s.ContextTokens), Took: s.Duration})
	}
}

func (c *comparison) tell(format string, args ...any) {
	if c.o.Progress != nil {
		c.o.Progress(fmt.Sprintf(format, args...))
	}
}

// calibrate makes the profile that loads are scaled by, if a real engine is there to make it of.
func (c *comparison) calibrate(ctx context.Context) error {
	o := c.o
	if slices.Contains(o.On, ladder.Llama) {
		c.tell("calibrating on llama")
		co := calibrate.DefaultOptions()
		co.Rounds, co.Seed = o.Rounds, o.Seed
		r, err := calibrate.Run(ctx, o.engine(), co, "", o.Version, o.Log, nil)
		if err != nil {
			return err
		}
		r.Steps = nil
		c.rep.Calibration, c.rep.Profile = r, r.Profile
	}
	c.profile = c.rep.Profile
	return c.write()
}

// alonePart is how many times what a request takes that is alone the objective is: some are in time at the highest load, some late at
// the lowest.
const alonePart = 8

// scale asks the simulator what the engine can do, and what a request takes that is alone.
func (c *comparison) scale(ctx context.Context) error {
	const backlog, alone = 300, 100
	_, rows, err := c.single(ctx, ladder.Sim, "constant", 0, 1e6, 0, backlog)
	if err != nil {
		return err
	}
	if c.rep.Capacity = served(rows); c.rep.Capacity <= 0 {
		return fmt.Errorf("%w: the simulated engine answers none of %d requests", ErrConfig, backlog)
	}
	if c.rep.SLO > 0 {
		return nil
	}
	_, rows, err = c.single(ctx, ladder.Sim, "constant", 0, c.rep.Capacity/100, 0, alone)
	if err != nil {
		return err
	}
	e2e := make([]time.Duration, len(rows))
	for i := range rows {
		e2e[i] = rows[i].E2E
	}
	slices.Sort(e2e)
	c.rep.SLO = alonePart * e2e[len(e2e)/2]
	return nil
}

// served is the rate of the middle 60 % of the completions.
func served(rows []record.Request) float64 {
	var at []time.Duration
	for i := range rows {
		if rows[i].Outcome == record.OK {
			at = append(at, rows[i].Intended+rows[i].E2E)
		}
	}
	slices.Sort(at)
	from, to := len(at)/5, len(at)*4/5
	if to <= from || at[to] == at[from] {
		return 0
	}
	return float64(to-from) / (at[to] - at[from]).Seconds()
}

// single does one run.
func (c *comparison) single(ctx context.Context, on, arrivals string, load, rate float64, warmup, requests int) (*record.Run, []record.Request, error) {
	o := c.o
	if load > 0 {
		arrivals = o.Arrivals
	}
	l := &c.profile.Limits
	arm := ladder.Arm{Name: "fidelity"}
	for _, s := range []struct {
		flag  string
		value int
	}{
		{"kv-tokens", l.KVTokens}, {"sequences", l.Sequences}, {"engine-batch", l.BatchTokens}, {"context-tokens", l.ContextTokens},
		{"worker-page-tokens", l.PageTokens}, {"worker-max-batch", l.MaxBatch}, {"worker-chunk-tokens", l.ChunkTokens},
	} {
		arm.Args = append(arm.Args, "--"+s.flag+"="+strconv.Itoa(s.value))
	}
	if !o.Cache {
		arm.Args = append(arm.Args, "--no-worker-prefix-cache")
	}
	d := &ladder.Definition{Name: "fidelity", Arms: []ladder.Arm{arm}, Workload: o.Workload, Arrivals: arrivals, Requests: requests, WarmupRequests: warmup,
		Drain: o.Drain, Profile: c.file, Model: o.Model, Threads: o.Threads}
	if load == 0 { // virtual time costs nothing
		d.Drain = 1000 * time.Hour
		d.Timeout = 1000 * time.Hour
	}
	if c.rep.SLO > 0 {
		d.SLO = &record.SLO{E2E: c.rep.SLO}
	}
	var step func(*schema.Step)
	if on == ladder.Llama {
		step = c.heed(load)
	}
	return ladder.Single(ctx, ladder.Options{
		Step: step, Definition: d, On: on, Dir: c.dir, ModelDir: o.ModelDir, Executable: o.Executable, Version: o.Version, Log: o.Log,
		Profile: func(string) (*profile.Profile, error) { return c.profile, nil },
	}, ladder.Job{ID: fmt.Sprintf("%s-%s-%g-%.3g", on, arrivals, load, rate), Arm: arm.Name, Load: load, Rate: rate, Seed: o.Seed})
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	p.Line("%s", r.Machine.String())
	p.Line("workload %s, %s arrivals, seed %d; profile %s, of which the simulator makes %.2f requests/s; good is E2E ≤ %s", r.Workload, r.Arrivals, r.Seed, r.Profile.Name, r.Capacity, r.SLO.Round(time.Millisecond))
	if f := r.Profile.Fit; f != nil {
		p.Line("the profile's error on held-out steps: %.1f %% at p50, %.1f %% at p95", 100*f.ErrorP50, 100*f.ErrorP95)
	}
	t := p.Table("load", "on", "requests", "answered", "TTFT p50", "TPOT p50", "E2E p50", "E2E p99", "goodput/s", "prefix hits", "canary tokens/s")
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
	for i := range r.Runs {
		o := &r.Runs[i]
		canary := ""
		if o.Canary != nil {
			canary = fmt.Sprintf("%.1f", o.Canary.TokensRate)
		}
		t.AppendRow([]any{o.Load, o.On, o.Offered, o.Answered, seconds(o.TTFTP50), seconds(o.TPOTP50), seconds(o.E2EP50), seconds(o.E2EP99), fmt.Sprintf("%.3f", o.Goodput), fmt.Sprintf("%.1f %%", 100*o.HitRatio), canary})
	}
	p.Render(t)
	t = p.Table("load", "compared", "metric", "error", "target", "")
	for _, d := range r.Differences {
		verdict := "ok"
		if !d.Passed {
			verdict = "MISSED"
		}
		t.AppendRow([]any{d.Load, d.Left + " with " + d.Right, d.Metric, fmt.Sprintf("%+.1f %%", 100*d.Error), fmt.Sprintf("%.0f %%", 100*d.Target), verdict})
	}
	p.Render(t)
	for i := range r.Runs {
		for _, why := range r.Runs[i].Invalid {
			p.Line("%s at load %v is INVALID: %s", r.Runs[i].On, r.Runs[i].Load, why)
		}
	}
	return p.Err
}
