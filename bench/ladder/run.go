package ladder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/provenance"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

// ErrConfig is returned for options that contradict each other or the definition.
var ErrConfig = errors.New("ladder: invalid options")

// Options says where and on what a ladder is run.
type Options struct {
	Definition *Definition
	On         string // Sim, Mock or Llama
	Dir        string // see the package's comment
	JSONL      bool   // also write each run's requests as lines of JSON
	// RetryInvalid runs again what is complete but invalid (the generator was late).
	RetryInvalid bool
	// TrustBuild goes on in a directory whose runs are of a build that does not know its sources, as this one does not.
	TrustBuild bool

	ModelDir   string // of models, on llama; empty: the user's cache
	Executable string // cadence's own; not needed in the simulator
	// Profile opens an engine's profile by name or file; nil: profile.Open, which knows no files.
	Profile func(nameOrPath string) (*profile.Profile, error)
	Version string
	Log     *slog.Logger
	// Progress, if not nil, is called before the first run and after each.
	Progress func(Progress)
	// Step, if not nil, hears of every engine step of a run on services, in order and from one goroutine at a time.
	Step func(*schema.Step)
}

// Progress is how far a ladder is.
type Progress struct {
	Done, Kept, All int // runs: done and kept from before, of all
	// Spent is the time of the runs that were done now, Left an estimate for the others; 0 before there is any.
	Spent, Left time.Duration
	Last        *Outcome // the run that was just done; nil before the first
}

// Outcome is what became of a job.
type Outcome struct {
	Job
	Dir     string   `json:"dir"`
	Kept    bool     `json:"kept"` // it was complete before
	Invalid []string `json:"invalid,omitempty"`
	Good    float64  `json:"goodput_per_second"`
}

// Result is a ladder that was run to its end.
type Result struct {
	State *State    `json:"ladder"`
	Runs  []Outcome `json:"runs"` // in order of execution
}

// setup is one run as an engine gets it.
type setup struct {
	arm      Arm
	source   workload.Source
	arrivals iter.Seq[time.Duration]
	drain    time.Duration
	timeout  time.Duration
	canary   bool
	// deadlines tells whether objectives are sent.
	deadlines bool
	sink      func(*record.Request) error
	// run is the record with what the ladder knows. The engine fills in the rest.
	run record.Run
}

// engine is what arms run on. It has one owner.
type engine interface {
	// source makes the requests of a seed.
	source(seed uint64) (workload.Source, error)
	// model is what is served; nil: it has no weights.
	model() *pipeline.Model
	// profile is the SHA-256 of how fast it is; empty: that is not said.
	profileSHA256() string
	// run offers requests to a fresh engine and returns its record.
	run(ctx context.Context, s *setup) (*record.Run, error)
	// alone sends n requests, each when the one before is answered, to a fresh engine.
	alone(ctx context.Context, s *setup, n int) ([]record.Request, error)
}

// Run executes a ladder, or what is left of it, and returns when all of its runs are complete. When ctx ends it returns
// ctx's error; the run that was under way is lost.
func Run(ctx context.Context, o Options) (*Result, error) {
	e, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	return execute(ctx, &o, e)
}

// Single does one run of a definition that need not be a whole ladder: its Rates, Loads and Seeds do not count. The job's Rate
// must be known. The record is written below o.Dir as a ladder's would be.
func Single(ctx context.Context, o Options, j Job) (*record.Run, []record.Request, error) {
	o.Definition.fill()
	e, err := open(ctx, &o)
	if err != nil {
		return nil, nil, err
	}
	source, err := e.source(j.Seed)
	if err == nil {
		err = untimed(source)
	}
	if err != nil {
		return nil, nil, err
	}
	s := &State{Definition: o.Definition, SLOs: source.SLOs()}
	if o.Definition.SLO != nil {
		s.SLOs = map[string]record.SLO{"": *o.Definition.SLO}
	}
	out, err := one(ctx, &o, e, s, j)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", j.ID, err)
	}
	run, err := record.Open(out.Dir)
	if err != nil {
		return nil, nil, err
	}
	rows, err := record.Requests(out.Dir)
	return run, rows, err
}

// Check returns ErrConfig unless the definition can be run on what the options name.
func (o *Options) Check() error {
	d := o.Definition
	if !slices.Contains(Kinds, o.On) || !slices.Contains(d.On, o.On) {
		return fmt.Errorf("%w: ladder %s is not for %q, allowed: %v", ErrConfig, d.Name, o.On, d.On)
	}
	for i := range d.Arms {
		switch a := &d.Arms[i]; {
		case o.On == Sim && a.Gateway != nil:
			return fmt.Errorf("%w: arm %s has a gateway, which the simulator has not", ErrConfig, a.Name)
		case o.On != Sim && a.SpanNS != 0:
			return fmt.Errorf("%w: arm %s has span_ns, which is for the simulator alone", ErrConfig, a.Name)
		}
	}
	if o.On == Sim {
		for i := range d.Arms {
			if _, err := parseFlags(d.Arm(d.Arms[i].Name).Args); err != nil {
				return err
			}
		}
	}
	return nil
}

func execute(ctx context.Context, o *Options, e engine) (_ *Result, err error) {
	unlock, err := lock(o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	state, err := settle(ctx, o, e)
	if err != nil {
		return nil, err
	}
	jobs := state.Jobs()
	res := &Result{State: state, Runs: make([]Outcome, len(jobs))}
	p := Progress{All: len(jobs)}
	left := map[int]bool{} // that must be run
	for i := range jobs {
		dir := filepath.Join(o.Dir, "runs", jobs[i].ID)
		run, err := record.Open(dir)
		switch {
		case err == nil && !run.Partial && (run.Valid() || !o.RetryInvalid):
			out := Outcome{Job: jobs[i], Dir: dir, Kept: true, Invalid: run.Invalid}
			source, err := e.source(jobs[i].Seed)
			if err != nil {
				return nil, err
			}
			why := state.fits(&jobs[i], source.Describe(), run)
			if why == "" {
				if out.Good, err = goodput(dir, run); err != nil {
					why = err.Error()
				}
			}
			if why != "" {
				o.Log.Warn("run is done again", "id", jobs[i].ID, "differs", why)
				left[i] = true
				continue
			}
			res.Runs[i] = out
			p.Kept++
		case err == nil || errors.Is(err, record.ErrRun):
			left[i] = true
		default:
			return nil, err
		}
	}
	if o.Progress != nil {
		o.Progress(p)
	}
	for i := range jobs {
		if !left[i] {
			continue
		}
		begin := time.Now()
		out, err := one(ctx, o, e, state, jobs[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", jobs[i].ID, err)
		}
		res.Runs[i] = *out
		p.Done++
		p.Spent += time.Since(begin)
		p.Left = p.Spent / time.Duration(p.Done) * time.Duration(p.All-p.Kept-p.Done)
		p.Last = out
		if o.Progress != nil {
			o.Progress(p)
		}
	}
	return res, ctx.Err()
}

// backlogSeed and aloneSeed are of requests that no run has.
const backlogSeed, aloneSeed = 1 << 62, 1<<62 + 1

// aloneRequests are enough for a median of answers that differ much in length.
const aloneRequests = 15

// settle returns the directory's state; without one it measures what the definition leaves to measurement, and writes it.
func settle(ctx context.Context, o *Options, e engine) (*State, error) {
	d := o.Definition
	source, err := e.source(d.Seeds[0])
	if err == nil {
		err = untimed(source)
	}
	if err != nil {
		return nil, err
	}
	engine := e.profileSHA256()
	if m := e.model(); m != nil {
		engine = m.SHA256
	}
	hash, err := d.Hash(o.On, source.Describe(), engine)
	if err != nil {
		return nil, err
	}
	s := &State{Version: Version, Hash: hash, Time: time.Now().UTC(), On: o.On, Definition: d, Workload: source.Describe(),
		Build: o.Version, Sources: provenance.Sources(), Model: e.model(), Profile: e.profileSHA256(), Machine: thisMachine(o.Version), SLOs: source.SLOs()}
	if before, err := resume(o.Dir, s, o.TrustBuild); before != nil || err != nil {
		return before, err
	}
	arm := d.Arm(d.Capacity.Arm)
	if d.Alone != nil {
		if err := s.alone(ctx, e, arm); err != nil {
			return nil, fmt.Errorf("%s, alone: %w", arm.Name, err)
		}
	}
	if d.SLO != nil {
		s.SLOs = map[string]record.SLO{"": *d.SLO}
	}
	if len(s.SLOs) == 0 {
		return nil, fmt.Errorf("%w: workload %s has no objective, and the ladder neither", ErrConfig, d.Workload)
	}
	if len(d.Loads) > 0 {
		if err := s.capacity(ctx, e, arm); err != nil {
			return nil, fmt.Errorf("%s, backlog: %w", arm.Name, err)
		}
	}
	o.Log.Info("ladder", "name", d.Name, "on", o.On, "capacity_per_s", fmt.Sprintf("%.3f", s.Capacity), "alone_ttft", s.AloneTTFT.Round(time.Millisecond),
		"alone_e2e", s.AloneE2E.Round(time.Millisecond), "source_hash", s.Sources)
	return s, s.write(o.Dir)
}

// untimed returns ErrConfig for a trace: its own times know no rate, so that its runs would be of none that the ladder has.
func untimed(source workload.Source) error {
	if _, timed := source.(workload.Timed); timed {
		return fmt.Errorf("%w: workload %s has times of its own, and a ladder's runs have a rate; offer it with cadence load or cadence sim", ErrConfig, source.Name())
	}
	return nil
}

// alone measures a request that is alone, and makes the objective of it.
func (s *State) alone(ctx context.Context, e engine, arm Arm) error {
	source, err := e.source(aloneSeed)
	if err != nil {
		return err
	}
	rows, err := e.alone(ctx, &setup{arm: arm, source: source, timeout: s.Definition.Timeout}, aloneRequests)
	if err != nil {
		return err
	}
	var ttft, e2e []time.Duration
	for i := range rows {
		if rows[i].Outcome == record.OK {
			ttft, e2e = append(ttft, rows[i].TTFT), append(e2e, rows[i].E2E)
		}
	}
	if len(e2e) <= aloneRequests/2 {
		return fmt.Errorf("ladder: %d of %d requests were answered", len(e2e), aloneRequests)
	}
	s.AloneTTFT, s.AloneE2E = median(ttft), median(e2e)
	a := s.Definition.Alone
	of := func(factor float64, d time.Duration) time.Duration { return time.Duration(factor * float64(d)) }
	s.SLOs = map[string]record.SLO{"": {TTFT: of(a.TTFT, s.AloneTTFT), E2E: of(a.E2E, s.AloneE2E)}}
	return nil
}

// capacity measures what the arm serves of a backlog.
func (s *State) capacity(ctx context.Context, e engine, arm Arm) error {
	source, err := e.source(backlogSeed)
	if err != nil {
		return err
	}
	n := s.Definition.Capacity.Requests
	var completions []time.Duration
	run := &setup{arm: arm, source: source, drain: s.Definition.Timeout, timeout: s.Definition.Timeout,
		run: record.Run{Seed: backlogSeed, Length: time.Nanosecond, SLOs: s.SLOs},
		arrivals: func(yield func(time.Duration) bool) {
			for range n {
				if !yield(0) {
					return
				}
			}
		},
		sink: func(r *record.Request) error {
			if r.Outcome == record.OK {
				completions = append(completions, r.Intended+r.E2E)
			}
			return nil
		}}
	if _, err := e.run(ctx, run); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.Capacity = served(completions); s.Capacity <= 0 {
		return fmt.Errorf("ladder: %d of %d requests were answered", len(completions), n)
	}
	return nil
}

// one does a run and writes its record.
func one(ctx context.Context, o *Options, e engine, s *State, j Job) (*Outcome, error) {
	d := s.Definition
	source, err := e.source(j.Seed)
	if err != nil {
		return nil, err
	}
	process, err := arrival.Parse(d.Arrivals)
	if err != nil {
		return nil, err
	}
	length, warmup := d.Times(j.Rate)
	arrivals := process.Times(j.Seed, j.Rate, length)
	machine, err := json.Marshal(thisMachine(o.Version))
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, "runs", j.ID)
	w, err := record.Create(dir, o.JSONL)
	if err != nil {
		return nil, err
	}
	run, err := e.run(ctx, &setup{arm: d.Arm(j.Arm), source: source, arrivals: arrivals, drain: d.Drain, timeout: d.Timeout, canary: true, deadlines: d.SendSLO, sink: w.Add,
		run: record.Run{ID: j.ID, Experiment: d.Name, On: o.On, Arm: j.Arm, Load: j.Load, Rate: j.Rate, Seed: j.Seed, Block: j.Block, Order: j.Order,
			Workload: source.Name(), WorkloadSpec: source.Describe(), Arrivals: process.String(), SLOs: s.SLOs, Length: length, Warmup: warmup, Tail: d.Tail,
			Capacity: s.Capacity, Build: o.Version, Sources: provenance.Sources(), ProfileSHA256: e.profileSHA256(), Machine: machine}})
	if err == nil {
		err = ctx.Err() // what ended early is no run of a ladder
	}
	if err != nil {
		return nil, errors.Join(err, w.Close(nil))
	}
	if err := w.Close(run); err != nil {
		return nil, err
	}
	out := &Outcome{Job: j, Dir: dir, Invalid: run.Invalid}
	out.Good, err = goodput(dir, run)
	return out, err
}

// goodput reads back what a run was good for.
func goodput(dir string, run *record.Run) (float64, error) {
	rows, err := record.Requests(dir)
	if err != nil {
		return 0, err
	}
	return stat.Goodput(run, rows, run.SLOs), nil
}
