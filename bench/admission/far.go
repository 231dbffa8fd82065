package admission

import (
	"context"
	"iter"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/predictor/conformal"
)

// nearLoad is what was learned at.
const nearLoad = 0.4

var far = experiment{
	name: "far", question: "Do bounds hold at loads far above the one that they were learned at?",
	size: size{[]float64{0.8, 1.6, 2.4}, 10, 15 * time.Minute, 3 * time.Minute}, fitLoad: nearLoad,
	cases: []trial{
		leaping("all let in, frozen", control.Options{Arm: "frozen-bound", Open: true}),
		leaping("all let in, learning", control.Options{Arm: "online-bound", Open: true}),
		leaping("frozen-u80", control.Options{Arm: "frozen-bound", Constant: 1}),
		leaping("online-u80", control.Options{Arm: "online-bound"}),
		leaping("marginal", control.Options{Arm: "marginal"}),
	},
	columns: []Column{
		{Name: "bounds_held_near_ratio", About: "part of the bounds that held, of requests that arrived at load 0.4 after the warm-up", Share: true, title: "held at 0.4", percent: true},
		{Name: "bounds_held_first_ratio", About: "of the first 100 that arrived at the higher load and were let in", Share: true, title: "first 100 beyond", percent: true},
		{Name: "bounds_held_far_ratio", About: "of all that arrived at the higher load", Share: true, title: "held beyond", percent: true, drawn: true},
		{Name: "bound_by_latency", About: "mean bound by mean latency of those that were answered at the higher load", title: "bound ÷ latency", drawn: true},
		{Name: goodput.Name, About: "requests that arrived at the higher load and were answered within their objective, by second", title: "goodput/s"},
		{Name: refused.Name, About: "part of what arrived at the higher load that was refused", Share: true, title: "refused", percent: true},
	},
}

// leaping has two thirds of the run at the near load, and the rest at the place's.
func leaping(name string, o control.Options) trial {
	return trial{name, func(ctx context.Context, b *bench, p place) (sample, error) {
		cfg, err := b.config(p.rate, p.seed, b.o.Length)
		if err != nil {
			return sample{}, err
		}
		at := b.o.Length * 2 / 3
		cfg.Arrivals = leap(p.seed, nearLoad*p.peak, p.rate, at, b.o.Length)
		o := o
		o.Level, o.Seed, o.Seen = 0.8, p.seed, b.seen
		_, rows, err := b.simulate(ctx, cfg, o)
		if err != nil {
			return sample{}, err
		}
		var near, first, beyond conformal.Coverage
		var bounds, latencies time.Duration
		offered, shed, good := 0, 0, 0
		for i := range rows {
			r := &rows[i]
			v := judge(r)
			if r.Intended < at {
				if r.Intended >= b.o.Warmup {
					near.Add(v)
				}
				continue
			}
			offered++
			switch {
			case r.Outcome == record.Shed:
				shed++
			case cfg.SLOs[""].Keeps(r):
				good++
			}
			if beyond.Rows() < 100 {
				first.Add(v)
			}
			beyond.Add(v)
			if r.Outcome == record.OK && r.Bound > 0 {
				bounds, latencies = bounds+r.Bound, latencies+r.E2E
			}
		}
		s := sample{map[string]float64{goodput.Name: float64(good) / (b.o.Length - at).Seconds()},
			map[string]conformal.Coverage{"bounds_held_near_ratio": near, "bounds_held_first_ratio": first, "bounds_held_far_ratio": beyond,
				refused.Name: {Hits: shed, Misses: offered - shed}}}
		if latencies > 0 {
			s.values["bound_by_latency"] = float64(bounds) / float64(latencies)
		}
		return s, nil
	}}
}

// leap are Poisson arrivals at one rate before at, and at another from then on.
func leap(seed uint64, before, after float64, at, length time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for t := range (arrival.Poisson{}).Times(seed, before, at) {
			if t >= at {
				break
			}
			if !yield(t) {
				return
			}
		}
		for t := range (arrival.Poisson{}).Times(seed+1<<32, after, length-at) {
			if !yield(at + t) {
				return
			}
		}
	}
}
