package admission

import (
	"context"
	"time"

	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/predictor/conformal"
)

// Report is what a comparison found.
type Report struct {
	Version    string        `json:"cadence"`
	Workload   string        `json:"workload"`
	Profile    string        `json:"profile"`
	SLO        time.Duration `json:"slo_e2e_ns"`
	Length     time.Duration `json:"length_ns"`
	Warmup     time.Duration `json:"warmup_ns"`
	TuneLength time.Duration `json:"tune_length_ns"`
	Timeout    time.Duration `json:"timeout_ns"`
	Seeds      []uint64      `json:"seeds"`
	TuneSeeds  []uint64      `json:"tune_seeds"`
	FitSeed    uint64        `json:"fit_seed"`
	FitRate    float64       `json:"fit_rate"` // of the run that arms were fitted to, and its answers
	FitAnswers int           `json:"fit_answers"`
	Peak       Peak          `json:"peak"`
	// Knee is the highest offered rate up to which no admission keeps KneeAttainment of what is offered, at every rate; 0: there is none.
	Knee    float64  `json:"knee_rate"`
	Choices []Choice `json:"choices"`
	Arms    []Arm    `json:"arms"`
	Cells   []Cell   `json:"cells"` // by rate and arm
	Runs    []Run    `json:"runs"`
}

// KneeAttainment is the part of what is offered that no admission answers in time below the knee.
const KneeAttainment = 0.95

// Arm sums up an arm over loads.
type Arm struct {
	Arm string `json:"arm"`
	// Score is as those of Choice, on the seeds that are reported.
	Score float64 `json:"score"`
	// RefusedBelowKnee is the part that was refused of all that was offered up to the knee.
	RefusedBelowKnee float64 `json:"refused_below_knee_ratio"`
}

// Cell is an arm at a rate, over seeds.
type Cell struct {
	Arm     string        `json:"arm"`
	Load    float64       `json:"load"` // Rate by the peak's goodput
	Rate    float64       `json:"rate"`
	Goodput stat.Estimate `json:"goodput_per_second"` // mean over seeds, with its interval
	Least   float64       `json:"least_goodput_per_second"`
	Most    float64       `json:"most_goodput_per_second"`
	None    *Against      `json:"against_none,omitempty"` // nil for no admission itself
	Best    *Against      `json:"against_best,omitempty"` // of the others: the one with the highest mean; nil: there is no other
	// P99 is of the E2E of admitted requests, in seconds, over the runs in which any was; a lower bound where it is one in any of them.
	P99        stat.Spread `json:"admitted_p99_s"`
	LowerBound bool        `json:"admitted_p99_is_lower_bound,omitempty"`
	Refused    float64     `json:"refused_ratio"`
	Coverage   *Coverage   `json:"coverage,omitempty"` // nil: it says no bounds
}

// Against compares goodput with that of another arm on the same seeds.
type Against struct {
	Arm        string        `json:"arm"`
	Difference stat.Estimate `json:"mean_difference_per_second"`
	Ratio      stat.Estimate `json:"mean_ratio"`
	Ratios     int           `json:"ratios"` // seeds in which the other's is not 0
}

// Coverage is of the bounds of admitted requests, with an interval that is clustered by seed; of one seed there is none, 0 to 1.
type Coverage struct {
	Level float64 `json:"level"`
	conformal.Coverage
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Compare measures the peak, fits and tunes the arms, and runs them. It returns ErrConfig, and the errors of the parts.
func Compare(ctx context.Context, o Options) (*Report, error) {
	if o.Quick {
		o.quick()
	}
	o.settle(usual)
	b, err := open(&o)
	if err != nil {
		return nil, err
	}
	arms, err := o.arms()
	if err != nil {
		return nil, err
	}
	r := &Report{Version: o.Version, Workload: o.Workload, Profile: o.Profile.Name, SLO: o.SLO, Length: o.Length, Warmup: o.Warmup, TuneLength: o.TuneLength,
		Timeout: o.Timeout, Seeds: seeds(1, o.Seeds), TuneSeeds: seeds(tuneSeed+1, o.TuneSeeds), FitSeed: fitSeed}
	if r.Peak, err = b.peak(ctx); err != nil {
		return nil, err
	}
	rates := o.rates(r.Peak)
	b.tell(0, len(b.tuning(arms, rates))+len(arms)*len(rates)*o.Seeds)
	r.FitRate = fitLoad * r.Peak.Goodput
	if err := b.fit(ctx, r.FitRate); err != nil {
		return nil, err
	}
	r.FitAnswers = len(b.seen.Latencies)
	if r.Choices, err = b.tune(ctx, arms, rates); err != nil {
		return nil, err
	}
	var jobs []job
	for _, rate := range rates {
		for i, a := range arms {
			for _, seed := range r.Seeds {
				jobs = append(jobs, job{arm: a, constant: r.Choices[i].Constant, rate: rate, seed: seed, length: o.Length})
			}
		}
	}
	if r.Runs, err = b.all(ctx, jobs); err != nil {
		return nil, err
	}
	return r, r.sum(arms, rates)
}

// sum makes the cells and what is said of arms.
func (r *Report) sum(arms []*arm, rates []float64) error {
	n := len(r.Seeds)
	score, refused := make([]float64, len(arms)), make([]int, len(arms))
	offered, below := 0, true
	for i, rate := range rates {
		of := func(k int) []Run { return r.Runs[(i*len(arms)+k)*n:][:n] }
		best := 0.0
		for k := range arms {
			best = max(best, mean(of(k)))
		}
		if below = below && attainment(of(0)) >= KneeAttainment; below {
			r.Knee = rate
			offered += total(of(0), func(x *Run) int { return x.Offered })
		}
		for k, a := range arms {
			if best > 0 {
				score[k] += mean(of(k)) / best / float64(len(rates))
			}
			if below {
				refused[k] += total(of(k), func(x *Run) int { return x.Refused })
			}
			c, err := r.cell(a, rate, of, k, len(arms))
			if err != nil {
				return err
			}
			r.Cells = append(r.Cells, *c)
		}
	}
	for k, a := range arms {
		r.Arms = append(r.Arms, Arm{Arm: a.name, Score: score[k], RefusedBelowKnee: part(refused[k], offered)})
	}
	return nil
}

// cell sums up an arm, the k-th of n, at a rate.
func (r *Report) cell(a *arm, rate float64, of func(int) []Run, k, n int) (*Cell, error) {
	own := goodputs(of(k))
	alone, err := stat.PairedBootstrap(make([]float64, len(own)), own, 0, resampling)
	if err != nil {
		return nil, err
	}
	spread := stat.Over(own...)
	c := &Cell{Arm: a.name, Load: rate / r.Peak.Goodput, Rate: rate, Goodput: alone.Mean, Least: spread.Min, Most: spread.Max}
	best := -1
	for other := range n {
		if other != k && (best < 0 || mean(of(other)) > mean(of(best))) {
			best = other
		}
	}
	if best >= 0 {
		if c.Best, err = against(of(best), own); err != nil {
			return nil, err
		}
	}
	if k > 0 {
		if c.None, err = against(of(0), own); err != nil {
			return nil, err
		}
	}
	var p99 []float64
	var held []conformal.Coverage
	for _, x := range of(k) {
		if x.P99 > 0 {
			p99 = append(p99, x.P99.Seconds())
			c.LowerBound = c.LowerBound || x.LowerBound
		}
		held = append(held, x.Coverage)
	}
	c.P99 = stat.Over(p99...)
	c.Refused = part(total(of(k), func(x *Run) int { return x.Refused }), total(of(k), func(x *Run) int { return x.Offered }))
	if a.level > 0 {
		c.Coverage = &Coverage{Level: a.level, Coverage: conformal.Total(held), High: 1}
		if low, high, err := conformal.Clustered(held, stat.Level); err == nil {
			c.Coverage.Low, c.Coverage.High = low, high
		}
	}
	return c, nil
}

// resampling is the seed of every bootstrap.
const resampling = 1

func against(other []Run, own []float64) (*Against, error) {
	p, err := stat.PairedBootstrap(goodputs(other), own, 0, resampling)
	if err != nil {
		return nil, err
	}
	return &Against{Arm: other[0].Arm, Difference: p.Mean, Ratio: p.MeanRatio, Ratios: p.RatioPairs}, nil
}

func goodputs(runs []Run) []float64 {
	out := make([]float64, len(runs))
	for i := range runs {
		out[i] = runs[i].Goodput
	}
	return out
}

func total(runs []Run, of func(*Run) int) int {
	sum := 0
	for i := range runs {
		sum += of(&runs[i])
	}
	return sum
}

// attainment is the part of what was offered that was answered in time.
func attainment(runs []Run) float64 {
	return part(total(runs, func(r *Run) int { return r.Good }), total(runs, func(r *Run) int { return r.Offered }))
}

// part is 0 of nothing.
func part(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
