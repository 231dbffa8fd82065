package admission

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/sajari/regression"
)

var confounded = experiment{
	name: "confounded", question: "What does a bound do that has the arrival rate among its features?",
	size: size{[]float64{0.6, 1, 2, 3.5}, 10, 10 * time.Minute, time.Minute},
	cases: []trial{
		deciding("with the arrival rate", func(ctx context.Context, b *bench, p place, cfg *sim.Config) error {
			return b.regress(ctx, p, cfg, true)
		}),
		deciding("without it", func(ctx context.Context, b *bench, p place, cfg *sim.Config) error {
			return b.regress(ctx, p, cfg, false)
		}),
		deciding("marginal", func(_ context.Context, b *bench, p place, cfg *sim.Config) error {
			_, err := control.Attach(cfg, control.Options{Arm: "marginal", Profile: b.o.Profile, Seed: p.seed})
			return err
		}),
	},
	columns: []Column{
		{Name: "idle_refused_ratio", About: "part of those that found an idle engine that was refused", Share: true, title: "refused when idle", percent: true, drawn: true},
		{Name: refused.Name, About: refused.About, Share: true, title: "refused", percent: true, drawn: true},
		goodput, p99,
	},
}

// linear is a bound on the latency, in seconds: a least-squares fit and the conformal quantile of what it is off by.
type linear struct {
	rate bool // the arrival rate is a feature
	of   regression.Regression
	off  float64

	// The rate so far, of arrivals that count less with their age.
	arrivals float64
	at       time.Duration
}

// memory is the age at which an arrival counts 1/e.
const memory = 10 * time.Second

// features are known at the arrival: tokens to compute of its prompt, its cap, tokens that are still to be computed for others, and the rate.
func (l *linear) features(a *sim.Arrival) []float64 {
	l.arrivals = l.arrivals*math.Exp(-(a.Now-l.at).Seconds()/memory.Seconds()) + 1
	l.at = a.Now
	ahead := a.Pool.WaitingPromptTokens + a.Pool.WaitingCapTokens
	for i := range a.Pool.Workers {
		for _, r := range a.Pool.Workers[i].Requests {
			ahead += r.PrefillTokens + max(0, r.CapTokens-r.OutputTokens)
		}
	}
	x := []float64{float64(len(a.Prompt) - a.Cached(0)), float64(a.CapTokens), float64(ahead)}
	if l.rate {
		x = append(x, l.arrivals/memory.Seconds())
	}
	return x
}

// fitLinear fits a bound at a level to a run without admission whose load goes from a quarter to one and a half: the fit to every other
// answer, and its margin to the rest.
func (b *bench) fitLinear(ctx context.Context, peak float64, rate bool, level float64) (*linear, error) {
	length := 2 * b.o.Length
	cfg, err := b.config(peak, fitSeed, length)
	if err != nil {
		return nil, err
	}
	cfg.Arrivals = arrival.Ramp{From: 0.25, To: 1.5}.Times(fitSeed, 0.875*peak, length)
	l := &linear{rate: rate}
	asked := map[int][]float64{}
	cfg.Admit = func(a *sim.Arrival) sim.Decision {
		asked[a.Index] = l.features(a)
		return sim.Decision{}
	}
	var rest []record.Request
	cfg.Sink = func(r *record.Request) error {
		switch {
		case r.Outcome != record.OK:
		case r.Index%2 == 0:
			l.of.Train(regression.DataPoint(r.E2E.Seconds(), asked[r.Index]))
		default:
			rest = append(rest, *r)
		}
		return nil
	}
	if _, err := sim.Run(ctx, cfg); err != nil {
		return nil, err
	}
	if err := l.of.Run(); err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	var scores []float64
	for i := range rest {
		y, err := l.of.Predict(asked[rest[i].Index])
		if err != nil {
			return nil, err
		}
		scores = append(scores, rest[i].E2E.Seconds()-y)
	}
	split, err := conformal.NewSplit(scores)
	if err != nil {
		return nil, err
	}
	if l.off, err = split.Quantile(1 - level); err != nil {
		return nil, err
	}
	l.arrivals, l.at = 0, 0
	return l, nil
}

// regress makes a linear bound at 80 % decide: what it says is in time is let in.
func (b *bench) regress(ctx context.Context, p place, cfg *sim.Config, rate bool) error {
	l, err := b.fitLinear(ctx, p.peak, rate, 0.8)
	if err != nil {
		return err
	}
	cfg.Admit = func(a *sim.Arrival) sim.Decision {
		y, err := l.of.Predict(l.features(a))
		bound := y + l.off
		return sim.Decision{Refuse: err != nil || bound > a.SLO.E2E.Seconds(), Bound: time.Duration(max(0, bound) * float64(time.Second))}
	}
	return nil
}

// deciding tells what who decides refused of those that found an idle engine.
func deciding(name string, attach func(ctx context.Context, b *bench, p place, cfg *sim.Config) error) trial {
	return trial{name, func(ctx context.Context, b *bench, p place) (sample, error) {
		cfg, err := b.config(p.rate, p.seed, b.o.Length)
		if err != nil {
			return sample{}, err
		}
		var rows []record.Request
		cfg.Sink = func(r *record.Request) error {
			rows = append(rows, *r)
			return nil
		}
		if err := attach(ctx, b, p, &cfg); err != nil {
			return sample{}, err
		}
		var idle conformal.Coverage // a refusal is a hit
		decide := cfg.Admit
		cfg.Admit = func(a *sim.Arrival) sim.Decision {
			empty := a.Pool.Waiting == 0 && !slices.ContainsFunc(a.Pool.Workers, func(w sim.WorkerView) bool { return len(w.Requests) > 0 })
			d := decide(a)
			switch {
			case !empty || a.Now < b.o.Warmup:
			case d.Refuse:
				idle.Hits++
			default:
				idle.Misses++
			}
			return d
		}
		run, err := sim.Run(ctx, cfg)
		if err != nil {
			return sample{}, err
		}
		s := common(run, rows)
		s.shares["idle_refused_ratio"] = idle
		return s, ctx.Err()
	}}
}
