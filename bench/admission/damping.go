package admission

import (
	"context"
	"math"
	"time"

	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
)

// bin is the time over which admissions are counted.
const bin = 5 * time.Second

var damping = experiment{
	name: "damping", question: "Does a rule swing between admitting everything and nothing?",
	size: size{[]float64{1, 2, 3.5}, 10, 11 * time.Minute, time.Minute}, fitLoad: fitLoad,
	cases: []trial{
		swinging("none", control.Options{Arm: "none"}),
		swinging("in-flight", control.Options{Arm: "in-flight", Constant: 6}),
		swinging("frozen-u80", control.Options{Arm: "frozen-bound", Level: 0.8, Constant: 1}),
		swinging("frozen-u95", control.Options{Arm: "frozen-bound", Level: 0.95, Constant: 1}),
		swinging("frozen-u95 with hysteresis 0.9", control.Options{Arm: "frozen-bound", Level: 0.95, Constant: 0.9}),
		swinging("online-u80", control.Options{Arm: "online-bound", Level: 0.8}),
		swinging("marginal", control.Options{Arm: "marginal", Level: 0.8}),
	},
	columns: []Column{
		goodput,
		{Name: "admitted_per_second", About: "requests that were admitted, by second", title: "admitted/s"},
		{Name: "admitted_dispersion", About: "variance of the number admitted in 5 s by its mean; 1 if admissions are a Poisson process", title: "variance ÷ mean", drawn: true},
		{Name: "admitted_autocorrelation", About: "autocorrelation of these numbers from one bin to the next; 0 if admissions are a Poisson process", title: "lag-1", drawn: true},
		refused,
	},
}

// swinging counts admissions in time.
func swinging(name string, o control.Options) trial {
	return trial{name, func(ctx context.Context, b *bench, p place) (sample, error) {
		cfg, err := b.config(p.rate, p.seed, b.o.Length)
		if err != nil {
			return sample{}, err
		}
		o := o
		o.Seed, o.Seen = p.seed, b.seen
		run, rows, err := b.simulate(ctx, cfg, o)
		if err != nil {
			return sample{}, err
		}
		s := common(run, rows)
		bins := make([]float64, (b.o.Length-b.o.Warmup)/bin)
		for i := range rows {
			r := &rows[i]
			if k := (r.Intended - b.o.Warmup) / bin; r.Phase == record.Measure && r.Outcome != record.Shed && int(k) < len(bins) {
				bins[k]++
			}
		}
		mean, variance, lag := moments(bins)
		s.values["admitted_per_second"] = mean / bin.Seconds()
		s.values["admitted_dispersion"], s.values["admitted_autocorrelation"] = variance/mean, lag/variance
		return s, nil
	}}
}

// moments are mean and variance of x, and its covariance from one to the next; NaN of nothing.
func moments(x []float64) (mean, variance, lag float64) {
	if len(x) < 2 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	n := float64(len(x))
	for _, v := range x {
		mean += v / n
	}
	for i, v := range x {
		variance += (v - mean) * (v - mean) / n
		if i > 0 {
			lag += (v - mean) * (x[i-1] - mean) / n
		}
	}
	return mean, variance, lag
}
