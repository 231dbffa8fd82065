package admission

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/predictor/conformal"
)

// armsName is the experiment that Compare is.
const armsName = "arms"

// Experiments are the names of all, that of Compare first.
func Experiments() []string {
	names := []string{armsName}
	for i := range experiments {
		names = append(names, experiments[i].name)
	}
	return names
}

// experiments are those of Try.
var experiments = []experiment{guarantee, shift, foreign, ingresses, far, damping, confounded}

// experiment is one question: some cases, each run at every load with every seed on the same requests at the same times.
type experiment struct {
	name, question string
	size           size
	fitLoad        float64 // of the run that fitted arms see; 0: there is none
	cases          []trial
	columns        []Column
}

// trial is a case.
type trial struct {
	name string
	run  func(ctx context.Context, b *bench, p place) (sample, error)
}

// place is what a run of a case is given.
type place struct {
	rate float64 // offered, requests/s
	peak float64 // the best goodput without admission
	seed uint64
}

// sample is what a run came to: by column, values of which the mean over seeds is taken, and counts of which the share is. A value that
// the run has not got is NaN, or left out.
type sample struct {
	values map[string]float64
	shares map[string]conformal.Coverage
}

// Column is a quantity of an experiment.
type Column struct {
	Name  string `json:"name"`
	About string `json:"about"` // what it is
	// Share says that it is the pooled part of some rows, with an interval clustered by seed; otherwise it is a mean over seeds, with one
	// of a bootstrap.
	Share bool `json:"share,omitempty"`

	title   string // of the table's column
	percent bool
	drawn   bool // it has a panel in the figure
	// of and against make it a ratio, paired by seed, of a column to that of another case at the same load, whose name against gives.
	of      string
	against func(name string) string
}

// Result is what an experiment found.
type Result struct {
	Version    string        `json:"cadence"`
	Experiment string        `json:"experiment"`
	Question   string        `json:"question"`
	Workload   string        `json:"workload"`
	Profile    string        `json:"profile"`
	SLO        time.Duration `json:"slo_e2e_ns"`
	Length     time.Duration `json:"length_ns"`
	Warmup     time.Duration `json:"warmup_ns"`
	Timeout    time.Duration `json:"timeout_ns"`
	Seeds      []uint64      `json:"seeds"`
	Peak       Peak          `json:"peak"`
	FitRate    float64       `json:"fit_rate,omitempty"` // of the run that was fitted to; 0: none was
	Columns    []Column      `json:"columns"`
	Findings   []Finding     `json:"findings"` // by rate and case
}

// Finding is a case at a rate, over seeds.
type Finding struct {
	Case   string           `json:"case"`
	Load   float64          `json:"load"` // Rate by the peak's goodput
	Rate   float64          `json:"rate"`
	Values map[string]Value `json:"values"` // by column; those that there are
}

// Value is an estimate with a 95 % interval.
type Value struct {
	stat.Estimate
	Of int `json:"of"` // seeds; of a share, rows
	// Open is how many of the rows are not known to be of the share; the value takes them for not, the interval for either.
	Open int `json:"open,omitempty"`
}

// Try answers an experiment other than that of Compare. It returns ErrConfig, and the errors of the parts.
func Try(ctx context.Context, o Options) (*Result, error) {
	e, err := o.experiment()
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, fmt.Errorf("%w: experiment is %q, which Compare does", ErrConfig, o.Experiment)
	}
	size := e.size
	if o.Quick {
		size = size.quick()
		o.TuneSeeds, o.TuneLength = 1, 90*time.Second
	}
	o.settle(size)
	b, err := open(&o)
	if err != nil {
		return nil, err
	}
	r := &Result{Version: o.Version, Experiment: e.name, Question: e.question, Workload: o.Workload, Profile: o.Profile.Name, SLO: o.SLO,
		Length: o.Length, Warmup: o.Warmup, Timeout: o.Timeout, Seeds: seeds(1, o.Seeds), Columns: e.columns}
	if r.Peak, err = b.peak(ctx); err != nil {
		return nil, err
	}
	if e.fitLoad > 0 {
		r.FitRate = e.fitLoad * r.Peak.Goodput
		if err := b.fit(ctx, r.FitRate); err != nil {
			return nil, err
		}
	}
	rates := o.rates(r.Peak)
	n := len(r.Seeds)
	b.tell(0, len(rates)*len(e.cases)*n)
	samples, err := each(ctx, b, len(rates)*len(e.cases)*n, func(ctx context.Context, i int) (sample, error) {
		c := &e.cases[i/n%len(e.cases)]
		s, err := c.run(ctx, b, place{rates[i/n/len(e.cases)], r.Peak.Goodput, r.Seeds[i%n]})
		if err != nil {
			err = fmt.Errorf("%s: %w", c.name, err)
		}
		return s, err
	})
	if err != nil {
		return nil, err
	}
	resamples := stat.Resamples
	if o.Quick {
		resamples /= 40
	}
	return r, r.sum(e, rates, samples, resamples)
}

// experiment returns the one that is asked for, nil for that of Compare, or ErrConfig.
func (o *Options) experiment() (*experiment, error) {
	if o.Experiment == armsName {
		return nil, nil
	}
	for i := range experiments {
		if experiments[i].name == o.Experiment {
			return &experiments[i], nil
		}
	}
	return nil, fmt.Errorf("%w: experiment is %q, allowed: %s", ErrConfig, o.Experiment, strings.Join(Experiments(), ", "))
}

// quick makes little of it.
func (s size) quick() size {
	if n := len(s.loads); n > 2 {
		s.loads = []float64{s.loads[0], s.loads[n-1]}
	}
	s.seeds, s.length, s.warmup = 2, s.length/5, s.warmup/5
	return s
}

// sum makes the findings of samples, by rate, case and seed.
func (r *Result) sum(e *experiment, rates []float64, samples []sample, resamples int) error {
	n := len(r.Seeds)
	for i, rate := range rates {
		of := func(k int) []sample { return samples[(i*len(e.cases)+k)*n:][:n] }
		for k := range e.cases {
			f := Finding{Case: e.cases[k].name, Load: rate / r.Peak.Goodput, Rate: rate, Values: map[string]Value{}}
			for j := range e.columns {
				v, err := e.columns[j].value(e, of, k, resamples)
				if err != nil {
					return err
				}
				if v.Of > 0 {
					f.Values[e.columns[j].Name] = v
				}
			}
			r.Findings = append(r.Findings, f)
		}
	}
	return nil
}

// value is that of the k-th case.
func (c *Column) value(e *experiment, of func(int) []sample, k, resamples int) (Value, error) {
	if c.Share {
		return share(c.Name, of(k)), nil
	}
	if c.against == nil {
		own := column(c.Name, of(k))
		p, err := stat.PairedBootstrap(make([]float64, len(own)), own, resamples, resampling)
		return Value{Estimate: p.Mean, Of: p.Pairs}, err
	}
	other := c.against(e.cases[k].name)
	for i := range e.cases {
		if e.cases[i].name == other && i != k {
			p, err := stat.PairedBootstrap(column(c.of, of(i)), column(c.of, of(k)), resamples, resampling)
			return Value{Estimate: p.MeanRatio, Of: p.RatioPairs}, err
		}
	}
	return Value{}, nil
}

func column(name string, of []sample) []float64 {
	out := make([]float64, len(of))
	for i := range of {
		v, ok := of[i].values[name]
		if !ok {
			v = math.NaN()
		}
		out[i] = v
	}
	return out
}

func share(name string, of []sample) Value {
	var runs []conformal.Coverage
	for i := range of {
		runs = append(runs, of[i].shares[name])
	}
	all := conformal.Total(runs)
	low, _ := all.Range()
	v := Value{Estimate: stat.Estimate{Value: low, High: 1}, Of: all.Rows(), Open: all.Censored}
	if a, z, err := conformal.Clustered(runs, stat.Level); err == nil {
		v.Low, v.High = a, z
	}
	return v
}

// common is what most experiments tell of a run: goodput per second, the share that was refused, and the p99 of what was admitted.
func common(run *record.Run, rows []record.Request) sample {
	s := stat.Summarize(run, rows, nil)
	shed := s.Outcomes[record.Shed]
	out := sample{values: map[string]float64{goodput.Name: s.Goodput, p99.Name: math.NaN()},
		shares: map[string]conformal.Coverage{refused.Name: {Hits: shed, Misses: s.Offered - shed}, held.Name: coverage(rows)}}
	if s.Offered > shed {
		out.values[p99.Name] = s.E2E.P99.Seconds()
	}
	return out
}

// always is the same case for all.
func always(name string) func(string) string { return func(string) string { return name } }

// Columns that several experiments have.
var (
	goodput = Column{Name: "goodput_per_second", About: "requests answered within their objective, by second", title: "goodput/s", drawn: true}
	refused = Column{Name: "refused_ratio", About: "part of what was offered that was refused", Share: true, title: "refused", percent: true}
	p99     = Column{Name: "admitted_p99_s", About: "p99 of the E2E latency of admitted requests, of those given up a lower bound", title: "p99 (s)"}
	held    = Column{Name: "bounds_held_ratio", About: "part of the bounds said of admitted requests that held", Share: true, title: "bounds held", percent: true}
)
