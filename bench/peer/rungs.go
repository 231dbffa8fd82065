package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/jedib0t/go-pretty/v6/table"
)

// RungsReport is what Rungs found.
type RungsReport struct {
	Time     time.Time        `json:"time"`
	Machine  pipeline.Machine `json:"machine"`
	Engine   string           `json:"engine"` // llama or mock
	Model    pipeline.Model   `json:"model"`
	Threads  int              `json:"threads"`
	Quick    bool             `json:"quick"` // too short to be a result
	Workload workload.Spec    `json:"workload"`
	Seed     uint64           `json:"seed"`

	Capacity float64       `json:"first_rung_requests_per_second"` // closed loop, two at a time
	Load     float64       `json:"load"`                           // multiple of it that was offered
	Rate     float64       `json:"offered_requests_per_second"`
	Length   time.Duration `json:"length_ns"` // of the arrivals of a run
	SLO      SLO           `json:"slo"`

	Rungs []RungResult `json:"rungs"` // in the order that is to hold
	// OrderHolds is whether each rung's goodput, the mean over its runs, is more than that of the one before. HeldIn counts
	// the repeats in which it was so.
	OrderHolds bool `json:"order_holds"`
	HeldIn     int  `json:"order_held_in_repeats"`
	Repeats    int  `json:"repeats"`
}

// SLO is what makes an answer good: both must be kept, from the intended arrival.
type SLO struct {
	TTFT time.Duration `json:"ttft_ns"`
	E2E  time.Duration `json:"e2e_ns"`
}

// RungResult is what one mode did.
type RungResult struct {
	Rung
	Goodput float64   `json:"goodput_per_second"` // mean over Runs
	Pooled  Block     `json:"pooled"`             // all runs together
	Runs    []RungRun `json:"runs"`               // in order of repeats
}

// RungRun is one run of a mode.
type RungRun struct {
	Block
	Good    int     `json:"good"`               // answers within the SLO
	Goodput float64 `json:"goodput_per_second"` // Good over the time of arrivals
}

// rungsRun is one Rungs.
type rungsRun struct {
	o      *RungsOptions
	g      *workload.Generator
	other  *workload.Generator // shares nothing with g
	engine []string            // arguments of cadence up
}

// Rungs offers the same overload to each mode of the worker and tells how much of it each served within the objective.
func Rungs(ctx context.Context, o RungsOptions) (rep RungsReport, err error) {
	if err := o.Validate(); err != nil {
		return rep, err
	}
	if len(o.Rungs) < 2 {
		return rep, fmt.Errorf("%w: %d rungs, at least 2 are needed", ErrConfig, len(o.Rungs))
	}
	if o.Quick {
		o.quick()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	rep = RungsReport{Time: time.Now().UTC(), Machine: pipeline.ThisMachine(o.Version), Engine: o.On, Threads: o.Threads, Quick: o.Quick, Seed: o.Seed, Load: o.Load, Length: o.Length, Repeats: o.Repeats}
	r := &rungsRun{o: &o}
	if err := r.open(ctx, &rep); err != nil {
		return rep, err
	}
	if err := r.capacity(ctx, &rep); err != nil {
		return rep, err
	}
	for i := range o.Rungs {
		rep.Rungs = append(rep.Rungs, RungResult{Rung: o.Rungs[i]})
	}
	samples := make([][]sample, len(o.Rungs))
	for repeat := range o.Repeats {
		for k := range o.Rungs {
			i := (k + repeat) % len(o.Rungs)
			s, err := r.run(ctx, &rep, o.Rungs[i], repeat)
			if err != nil {
				return rep, fmt.Errorf("%s: %w", o.Rungs[i].Name, err)
			}
			run := judge(s, rep.SLO, o.Length)
			o.Log.Info("run", "rung", o.Rungs[i].Name, "repeat", repeat, "good", run.Good, "complete", run.Complete, "requests", run.Requests,
				"goodput_per_s", fmt.Sprintf("%.2f", run.Goodput), "ttft_p50", run.TTFT.P50.Round(time.Millisecond), "hit_ratio", fmt.Sprintf("%.3f", run.CachedRatio))
			rep.Rungs[i].Runs = append(rep.Rungs[i].Runs, run)
			samples[i] = append(samples[i], s)
		}
	}
	for i := range rep.Rungs {
		rep.Rungs[i].Pooled = summarize(samples[i]...)
	}
	rep.conclude()
	return rep, nil
}

// open resolves model and workload.
func (r *rungsRun) open(ctx context.Context, rep *RungsReport) error {
	o := r.o
	spec, err := workload.Open(o.Workload)
	if err != nil {
		return err
	}
	rep.Workload = *spec
	var vocab workload.Vocabulary
	r.engine = []string{"--backend", "mock"}
	if o.On == "mock" {
		rep.Model, vocab, err = pipeline.MockModel()
	} else {
		var file string
		if file, err = pipeline.FindModel(ctx, o.ModelDir, o.Model); err != nil {
			return err
		}
		r.engine = append([]string{"--backend", "llama", "--model", file}, pipeline.Flag("threads", o.Threads)...)
		rep.Model, vocab, err = pipeline.OpenModel(file)
	}
	if err != nil {
		return err
	}
	r.engine = slices.Concat(r.engine, pipeline.Flag("kv-tokens", o.KVTokens), pipeline.Flag("sequences", o.Sequences))
	if r.g, err = workload.New(spec, vocab, o.Seed); err != nil {
		return err
	}
	r.other, err = workload.New(spec, vocab, ^o.Seed)
	return err
}

// start starts fresh services in one mode.
func (r *rungsRun) start(ctx context.Context, rung Rung) (*pipeline.Pipeline, *side, error) {
	o := r.o
	up, err := pipeline.Start(ctx, pipeline.Options{Executable: o.Executable, Args: slices.Concat(r.engine, rung.Args, o.UpArgs), Analytics: o.Analytics, Log: o.Log})
	if err != nil {
		return nil, nil, err
	}
	s, err := newSide(rung.Name, up.URL, "default", "", o.Length+o.Drain+time.Minute)
	if err != nil {
		return nil, nil, errors.Join(err, up.Stop())
	}
	s.ops = up.Ops
	// Connections open, memory is touched; nothing that a later request could use gets into a cache.
	if _, err := s.closed(ctx, r.other, "warmup", 2, 2); err != nil {
		return nil, nil, errors.Join(err, up.Stop())
	}
	return up, s, nil
}

// capacity measures what the first rung serves, and how long a request takes that is alone.
func (r *rungsRun) capacity(ctx context.Context, rep *RungsReport) (err error) {
	o := r.o
	up, s, err := r.start(ctx, o.Rungs[0])
	if err != nil {
		return fmt.Errorf("%s: %w", o.Rungs[0].Name, err)
	}
	defer func() { s.client.Close(); err = errors.Join(err, up.Stop()) }()
	g := r.g.Reseed(o.Seed + 1<<32)
	alone, err := s.closed(ctx, g, "alone", 1, max(2, o.Capacity/4))
	if err != nil {
		return err
	}
	busy, err := s.closed(ctx, g, "capacity", 2, o.Capacity) // one runs, one waits: the engine has no pause
	if err != nil {
		return err
	}
	a, b := summarize(alone), summarize(busy)
	rep.Capacity = float64(b.Complete) / b.Length.Seconds()
	rep.Rate = o.Load * rep.Capacity
	rep.SLO = SLO{TTFT: o.SLOTTFT, E2E: o.SLOE2E}
	if rep.SLO.TTFT == 0 {
		rep.SLO.TTFT = 10 * a.TTFT.P50
	}
	if rep.SLO.E2E == 0 {
		rep.SLO.E2E = 5 * a.E2E.P50
	}
	o.Log.Info("capacity", "rung", o.Rungs[0].Name, "requests_per_s", fmt.Sprintf("%.3f", rep.Capacity), "offered_per_s", fmt.Sprintf("%.3f", rep.Rate),
		"slo_ttft", rep.SLO.TTFT.Round(time.Millisecond), "slo_e2e", rep.SLO.E2E.Round(time.Millisecond))
	return nil
}

// run offers the overload to one mode. Equal repeats have equal arrivals and requests, whatever the mode.
func (r *rungsRun) run(ctx context.Context, rep *RungsReport, rung Rung, repeat int) (out sample, err error) {
	up, s, err := r.start(ctx, rung)
	if err != nil {
		return out, err
	}
	defer func() { s.client.Close(); err = errors.Join(err, up.Stop()) }()
	seed := r.o.Seed + uint64(repeat)
	return s.open(ctx, r.g.Reseed(seed), rung.Name, seed, rep.Rate, r.o.Length, r.o.Drain)
}

// judge counts the answers that kept the objective. A request that was refused or cut off is not good.
func judge(s sample, slo SLO, length time.Duration) RungRun {
	run := RungRun{Block: summarize(s)}
	for _, r := range s.records {
		if r.Outcome == load.OK && r.TTFT >= 0 && r.TTFT <= slo.TTFT && r.E2E <= slo.E2E {
			run.Good++
		}
	}
	run.Goodput = float64(run.Good) / length.Seconds()
	return run
}

// conclude tells whether the order holds.
func (r *RungsReport) conclude() {
	for i := range r.Rungs {
		sum := 0.0
		for _, run := range r.Rungs[i].Runs {
			sum += run.Goodput
		}
		r.Rungs[i].Goodput = sum / float64(max(1, len(r.Rungs[i].Runs)))
	}
	holds := func(goodput func(i int) float64) bool {
		for i := 1; i < len(r.Rungs); i++ {
			if goodput(i) <= goodput(i-1) {
				return false
			}
		}
		return true
	}
	r.OrderHolds = holds(func(i int) float64 { return r.Rungs[i].Goodput })
	for n := range r.Repeats {
		if holds(func(i int) float64 { return r.Rungs[i].Runs[n].Goodput }) {
			r.HeldIn++
		}
	}
}

// Write writes the report for people.
func (r *RungsReport) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	p.Line("%s", r.Machine.String())
	p.Line("%s on %s, %d threads; workload %s, seed %d", r.Engine, r.Model.File, r.Threads, r.Workload.Name, r.Seed)
	if r.Quick {
		p.Line("A quick run: it shows that the comparison works, its figures mean nothing.")
	}
	if len(r.Rungs) == 0 {
		return p.Err
	}
	p.Line("%s serves %.2f requests/s; offered are %.2f (%.2f times that) for %s, %d times each", r.Rungs[0].Name, r.Capacity, r.Rate, r.Load, r.Length, r.Repeats)
	p.Line("A good answer has TTFT ≤ %s and E2E ≤ %s", ms(r.SLO.TTFT), ms(r.SLO.E2E))
	t := p.Table("", "goodput/s", "runs", "good", "output tokens/s", "TTFT p50", "TTFT p99", "E2E p50", "E2E p99", "prefix hits", "answered")
	for i := range r.Rungs {
		g := &r.Rungs[i]
		b, good := &g.Pooled, 0
		var runs []string
		for _, run := range g.Runs {
			good += run.Good
			runs = append(runs, strconv.FormatFloat(run.Goodput, 'f', 2, 64))
		}
		t.AppendRow(table.Row{g.Name, strconv.FormatFloat(g.Goodput, 'f', 2, 64), strings.Join(runs, " "), share(good, b.Requests), strconv.FormatFloat(b.OutputRate, 'f', 1, 64),
			ms(b.TTFT.P50), ms(b.TTFT.P99), ms(b.E2E.P50), ms(b.E2E.P99), percent(b.CachedRatio), share(b.Complete, b.Requests)})
	}
	p.Render(t)
	names := make([]string, len(r.Rungs))
	for i := range r.Rungs {
		names[i] = r.Rungs[i].Name
	}
	verdict := "does NOT hold"
	if r.OrderHolds {
		verdict = "holds"
	}
	p.Line("The order %s %s on the mean of goodput; it held in %d of %d repeats.", strings.Join(names, " < "), verdict, r.HeldIn, r.Repeats)
	return p.Err
}
