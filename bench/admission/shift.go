package admission

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/predictor/conformal"
)

// told is the name of those that know of a shift at once.
const told = "told"

var shift = experiment{
	name: "shift", question: "How long do bounds not hold when the engine's speed changes, and what does it cost?",
	size: size{[]float64{1}, 200, 12 * time.Minute, 3 * time.Minute},
	cases: []trial{
		shifting("2× slower", "marginal", "marginal", 0.5, nil), shifting("2× slower", "online-u80", "online-bound", 0.5, nil),
		shifting("2× slower", "workers unheard", "marginal", 0.5, nothing), shifting("2× slower", told, "marginal", 0.5, atOnce),
		shifting("1.5× faster", "marginal", "marginal", 1.5, nil), shifting("1.5× faster", "online-u80", "online-bound", 1.5, nil),
		shifting("1.5× faster", "workers unheard", "marginal", 1.5, nothing), shifting("1.5× faster", told, "marginal", 1.5, atOnce),
	},
	columns: []Column{
		{Name: "bounds_held_before_ratio", About: "part of the bounds that held, of requests that arrived after the warm-up and ended before the shift", Share: true, title: "held before", percent: true, drawn: true},
		{Name: "bounds_held_100_ratio", About: "of the first 100 that ended after the shift", Share: true, title: "1–100 after", percent: true, drawn: true},
		{Name: "bounds_held_200_ratio", About: "of the second 100", Share: true, title: "101–200 after", percent: true, drawn: true},
		{Name: "bounds_held_300_ratio", About: "of the third 100", Share: true, title: "201–300 after", percent: true, drawn: true},
		{Name: goodput.Name, About: "requests that arrived after the shift and were answered within their objective, by second", title: "goodput/s after"},
		{Name: "goodput_by_told", About: "goodput by that of the marginal rule that is told the speed at once, mean of the ratios", title: "by told",
			of: goodput.Name, against: func(name string) string {
				before, _, _ := strings.Cut(name, ",")
				return before + ", " + told
			}},
		{Name: refused.Name, About: "part of what arrived after the shift that was refused", Share: true, title: "refused after", percent: true},
	},
}

func atOnce(slow float64) float64 { return slow }

func nothing(float64) float64 { return 1 }

// shifting is an engine whose speed changes after two thirds of the run. hear, if not nil, is how much slower than usual controllers are told
// that it is, from how much slower it is.
func shifting(how, name, arm string, factor float64, hear func(slow float64) float64) trial {
	return trial{how + ", " + name, func(ctx context.Context, b *bench, p place) (sample, error) {
		cfg, err := b.config(p.rate, p.seed, b.o.Length)
		if err != nil {
			return sample{}, err
		}
		at := b.o.Length * 2 / 3
		cfg.Speeds = []sim.Speed{{At: at, Factor: factor}}
		o := control.Options{Arm: arm, Level: 0.8, Seed: p.seed}
		if hear != nil {
			o.Slow = func(now time.Duration) float64 {
				if now < at {
					return 1
				}
				return hear(1 / factor)
			}
		}
		_, rows, err := b.simulate(ctx, cfg, o)
		if err != nil {
			return sample{}, err
		}
		return shifted(rows, b.o.Warmup, at, b.o.Length, b.o.SLO), nil
	}}
}

// shifted tells before and after a shift.
func shifted(rows []record.Request, warmup, at, length, slo time.Duration) sample {
	slices.SortStableFunc(rows, func(x, y record.Request) int { return cmp.Compare(x.Intended+x.E2E, y.Intended+y.E2E) })
	var before conformal.Coverage
	var after [3]conformal.Coverage
	ended, offered, shed, good := 0, 0, 0, 0
	for i := range rows {
		r := &rows[i]
		if r.Intended >= at {
			offered++
			switch {
			case r.Outcome == record.Shed:
				shed++
			case (record.SLO{E2E: slo}).Keeps(r):
				good++
			}
		}
		v := judge(r)
		switch {
		case v == conformal.NoVerdict:
		case r.Intended+r.E2E >= at:
			if k := ended / 100; k < len(after) {
				after[k].Add(v)
			}
			ended++
		case r.Intended >= warmup:
			before.Add(v)
		}
	}
	return sample{map[string]float64{goodput.Name: float64(good) / (length - at).Seconds()},
		map[string]conformal.Coverage{"bounds_held_before_ratio": before, "bounds_held_100_ratio": after[0], "bounds_held_200_ratio": after[1],
			"bounds_held_300_ratio": after[2], refused.Name: {Hits: shed, Misses: offered - shed}}}
}
