package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
)

// unheard are workers that nobody listens to.
func unheard(time.Duration) float64 { return 1 }

var foreign = experiment{
	name: "foreign", question: "What does a controller do that believes in the profile of another engine?",
	size: size{[]float64{0.3, 0.6, 1, 2, 3.5}, 10, 10 * time.Minute, time.Minute}, fitLoad: fitLoad,
	cases: func() []trial {
		var out []trial
		for _, belief := range []float64{1, 2, 0.5} {
			out = append(out, believing(belief, "all corrections", control.Options{Arm: "marginal"}),
				believing(belief, "workers unheard", control.Options{Arm: "marginal", Slow: unheard}),
				believing(belief, "no corrections", control.Options{Arm: "frozen-bound", Constant: 1, Slow: unheard}))
		}
		return out
	}(),
	columns: []Column{goodput, {Name: "goodput_by_right", About: "goodput by that of the marginal rule with the right profile and all corrections, mean of the ratios",
		title: "by right", drawn: true, of: goodput.Name, against: always("right, all corrections")}, {Name: refused.Name, About: refused.About, Share: true, title: "refused", percent: true, drawn: true},
		{Name: "most_refused_ratio", About: "mean over seeds of the largest part that was refused in any minute", title: "in the worst minute", percent: true}, p99, held},
}

// believing is a controller that takes the engine for so many times as fast as it is.
func believing(belief float64, how string, o control.Options) trial {
	name := "right"
	switch {
	case belief > 1:
		name = fmt.Sprintf("%g× too fast", belief)
	case belief < 1:
		name = fmt.Sprintf("%g× too slow", 1/belief)
	}
	return trial{name + ", " + how, func(ctx context.Context, b *bench, p place) (sample, error) {
		o := o
		o.Belief, o.Seed, o.Level, o.Seen = belief, p.seed, 0.8, b.seen
		cfg, err := b.config(p.rate, p.seed, b.o.Length)
		if err != nil {
			return sample{}, err
		}
		run, rows, err := b.simulate(ctx, cfg, o)
		if err != nil {
			return sample{}, err
		}
		s := common(run, rows)
		s.values["most_refused_ratio"] = worst(rows, b.o.Length)
		return s, nil
	}}
}

// worst is the largest part of what arrived in a minute that was refused, of whole minutes.
func worst(rows []record.Request, length time.Duration) float64 {
	type count struct{ offered, refused int }
	minutes := make([]count, length/time.Minute)
	for i := range rows {
		k := int(rows[i].Intended / time.Minute)
		if k >= len(minutes) {
			continue
		}
		minutes[k].offered++
		if rows[i].Outcome == record.Shed {
			minutes[k].refused++
		}
	}
	most := 0.0
	for _, m := range minutes {
		most = max(most, part(m.refused, m.offered))
	}
	return most
}
