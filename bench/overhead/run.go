package overhead

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/process"
	"github.com/klauspost/cpuid/v2"
)

// run is one Run.
type run struct {
	o       *Options
	child   *child
	client  *load.Client
	prompts []prompt
	report  *Report
	seed    uint64
}

// Run measures. The report is complete if the error is nil; whether the targets were met is in the report.
func Run(ctx context.Context, o Options) (rep Report, err error) {
	if err := o.Validate(); err != nil {
		return rep, err
	}
	// The generator shares the machine with what it measures: its small heap is collected less often, and one thread
	// wakes others less.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r := &run{o: &o, report: &rep, seed: o.Seed}
	rep.Machine = Machine{CPU: cpuid.CPU.BrandName, Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	rep.Time = time.Now().UTC()
	if r.prompts, err = makePrompts(&o); err != nil {
		return rep, err
	}
	base, err := direct(&o, r.prompts)
	if err != nil {
		return rep, err
	}
	dir := o.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "cadence-overhead-"); err != nil {
			return rep, fmt.Errorf("overhead: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	o.Log.Info("starting the services", "dir", dir)
	if r.child, err = startChild(ctx, &o, dir); err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, r.child.stop(o.Log)) }()
	cfg := load.DefaultClientConfig()
	cfg.URL, cfg.Timeout = r.child.url, 30*time.Second
	if r.client, err = load.NewClient(cfg); err != nil {
		return rep, err
	}
	defer r.client.Close()
	if err := r.latency(ctx, base); err != nil {
		return rep, err
	}
	if o.SearchFrom > 0 {
		if err := r.search(ctx); err != nil {
			return rep, err
		}
	}
	rep.Passed = rep.Latency.Passed && (rep.Throughput == nil || rep.Throughput.Passed)
	return rep, nil
}

// latency measures the time added to the first token.
func (r *run) latency(ctx context.Context, base []time.Duration) error {
	o := r.o
	if o.Warmup > 0 {
		o.Log.Info("warming up", "rate", o.Rate, "length", o.Warmup)
		if _, err := r.stretch(ctx, "warmup", o.Rate, o.Warmup, nil); err != nil {
			return err
		}
	}
	before, err := lastEvent(ctx, r.child.nats)
	if err != nil {
		return err
	}
	o.Log.Info("measuring latency", "rate", o.Rate, "length", o.Length)
	var mu sync.Mutex
	var added, ttft, lag []time.Duration
	s, err := r.stretch(ctx, "latency", o.Rate, o.Length, func(rec *load.Record) {
		if rec.Outcome != load.OK || rec.TTFT < 0 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		added = append(added, rec.TTFT-base[rec.Index%len(base)])
		ttft = append(ttft, rec.TTFT)
		lag = append(lag, rec.Lag)
	})
	if err != nil {
		return err
	}
	l := &r.report.Latency
	*l = Latency{Stretch: *s, TargetP50: o.AddedP50, TargetP99: o.AddedP99}
	if len(added) == 0 {
		return fmt.Errorf("overhead: no request was answered: %v, reasons %v", s.Load.Outcomes, s.Load.Reasons)
	}
	l.Direct, l.TTFT, l.Lag, l.Added = exact(base), exact(ttft), exact(lag), exact(added)
	l.Passed = s.complete() && l.Added.P50 <= o.AddedP50 && l.Added.P99 <= o.AddedP99
	l.Stages, err = stages(ctx, r.child.nats, "latency-", before)
	return err
}

// search finds the highest sustained rate.
func (r *run) search(ctx context.Context) error {
	o := r.o
	t := &Throughput{Limit: o.E2ELimit, Target: o.Sustained}
	r.report.Throughput = t
	sustained := func(rate float64) (bool, error) {
		for range 2 {
			s, err := r.stretch(ctx, fmt.Sprintf("rate%.0f", rate), rate, o.SearchLength, nil)
			if err != nil {
				return false, err
			}
			s.Passed = s.complete() && s.Load.E2E.P99 <= o.E2ELimit
			t.Stretches = append(t.Stretches, *s)
			o.Log.Info("tried", "rate", rate, "sustained", s.Passed, "p99", s.Load.E2E.P99, "outcomes", s.Load.Outcomes)
			if s.Passed {
				return true, nil
			}
		}
		return false, nil
	}
	var err error
	t.Sustained, err = highest(o.SearchFrom, o.SearchStep, o.SearchTo, o.SearchFine, sustained)
	t.Passed = t.Sustained >= o.Sustained
	return err
}

// highest returns the highest rate for which ok is true: it goes from `from` up in steps until one is not or `to` is
// reached, and then halves the distance until it is at most fine. 0: none was found.
func highest(from, step, to, fine float64, ok func(rate float64) (bool, error)) (float64, error) {
	good, bad := 0.0, 0.0
	for rate := from; rate <= to; rate += step {
		yes, err := ok(rate)
		if err != nil {
			return good, err
		}
		if !yes {
			bad = rate
			break
		}
		good = rate
	}
	for bad-good > fine { // never, if no rate failed
		mid := math.Round((good+bad)/2/fine) * fine
		if mid <= good || mid >= bad {
			break
		}
		yes, err := ok(mid)
		if err != nil {
			return good, err
		}
		if yes {
			good = mid
		} else {
			bad = mid
		}
	}
	return good, nil
}

// stretch offers one rate for a while and says what it took.
func (r *run) stretch(ctx context.Context, name string, rate float64, length time.Duration, sink func(*load.Record)) (*Stretch, error) {
	r.seed++
	rowsBefore, err := r.child.projected(ctx)
	if err != nil {
		return nil, err
	}
	before, err := r.usage()
	if err != nil {
		return nil, err
	}
	type profiled struct {
		p   *Profile
		err error
	}
	profile := make(chan profiled, 1)
	if r.child.pprof != "" {
		go func() {
			p, err := fetchProfile(ctx, r.child.pprof, filepath.Join(r.o.Profile, name+".pprof"), length)
			profile <- profiled{p, err}
		}()
	} else {
		profile <- profiled{}
	}
	begin := time.Now()
	sum, err := load.Run(ctx, load.Plan{
		Client: r.client, Arrivals: arrival.Poisson{}.Times(r.seed, rate, length), Drain: 30 * time.Second, Interval: time.Second, Sink: sink,
		Next: func(i int) *load.Request { return request(r.prompts, name, i) },
	})
	took := time.Since(begin)
	if err != nil {
		return nil, err
	}
	after, err := r.usage()
	if err != nil {
		return nil, err
	}
	p := <-profile
	if p.err != nil {
		return nil, p.err
	}
	rows, err := r.child.projected(ctx)
	if err != nil {
		return nil, err
	}
	return &Stretch{
		Offered: rate, Load: sum, Cost: after.sub(before), Length: took, Profile: p.p,
		Projected: float64(rows-rowsBefore) / time.Since(begin).Seconds(),
	}, nil
}

// usage is the CPU time used so far.
func (r *run) usage() (Cost, error) {
	services, err := r.child.p.CPU()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return Cost{}, err
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return Cost{}, fmt.Errorf("overhead: getrusage: %w", err)
	}
	machine, err := process.MachineCPU()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return Cost{}, err
	}
	c := Cost{
		Services: services.Self, ClickHouse: services.Children, Generator: time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		GeneratorGC: gcTime(),
	}
	if machine > 0 {
		c.Others = machine - c.Services - c.ClickHouse - c.Generator
	}
	return c, nil
}

// exact sums durations up without a histogram's rounding.
func exact(times []time.Duration) Quantiles {
	sorted := slices.Clone(times)
	slices.Sort(sorted)
	return Quantiles{P50: quantile(sorted, 0.5), P90: quantile(sorted, 0.9), P99: quantile(sorted, 0.99), P999: quantile(sorted, 0.999), Max: sorted[len(sorted)-1]}
}
