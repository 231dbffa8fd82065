package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/schema"
)

// lengthsKnown is at the end of a case's name in which caps are the lengths of answers.
const lengthsKnown = ", lengths known"

var guarantee = experiment{
	name: "guarantee", question: "What is a promise worth, and what do those get that were promised nothing?",
	size: size{[]float64{0.3, 0.6, 1, 2, 3.5}, 10, 25 * time.Minute, 5 * time.Minute},
	cases: func() []trial {
		var out []trial
		for _, objective := range []time.Duration{4 * time.Second, 10 * time.Second} {
			for _, alpha := range []float64{0.2, 0.05, 0.01} {
				out = append(out, promising(objective, alpha, false))
			}
		}
		for _, alpha := range []float64{0.2, 0.05, 0.01} {
			out = append(out, promising(10*time.Second, alpha, true))
		}
		return out
	}(),
	columns: []Column{
		{Name: "promised_ratio", About: "part of those that asked for a guarantee that got one", Share: true, title: "promised", percent: true},
		{Name: "guaranteed_refused_ratio", About: "part of those that asked for a guarantee that was refused", Share: true, title: "refused", percent: true},
		{Name: "bounds_held_ratio", About: "part of the bounds of promised requests that held", Share: true, title: "bounds held", percent: true, drawn: true},
		{Name: "kept_ratio", About: "part of the promised requests that were answered within their objective", Share: true, title: "kept", percent: true, drawn: true},
		{Name: "promised_p99_by_objective", About: "p99 of the E2E latency of promised requests by their objective, mean over seeds", title: "p99 ÷ objective"},
		{Name: "bound_by_latency", About: "mean bound of promised requests by their mean latency", title: "bound ÷ latency"},
		{Name: "bound_by_known", About: "the same, by what it is where the lengths of answers are known, mean of the ratios", title: "by lengths known",
			of: "bound_by_latency", against: func(name string) string { return name + lengthsKnown }},
		{Name: "best_effort_goodput_per_second", About: "best-effort requests answered within their objective, by second", title: "best effort good/s", drawn: true},
		{Name: goodput.Name, About: "all requests answered within their objectives, by second", title: "all good/s"},
	},
}

// promising has half of the requests ask for a guarantee at a level 1-alpha; best effort, the other half, has the usual objective.
func promising(objective time.Duration, alpha float64, lengths bool) trial {
	name := fmt.Sprintf("%s, α = %g", objective, alpha)
	if lengths {
		name += lengthsKnown
	}
	return trial{name, func(ctx context.Context, b *bench, p place) (sample, error) {
		cfg, err := b.config(p.rate, p.seed, b.o.Length)
		if err != nil {
			return sample{}, err
		}
		cfg.SLOs = map[string]record.SLO{string(schema.Guaranteed): {E2E: objective}, string(schema.BestEffort): {E2E: b.o.SLO}}
		if cfg.Source, err = b.halves(p.seed, cfg.SLOs); err != nil {
			return sample{}, err
		}
		cfg.ShareAll, cfg.Deadlines, cfg.Capped = true, true, !lengths
		run, rows, err := b.simulate(ctx, cfg, control.Options{Arm: "marginal", Level: 1 - alpha, Seed: p.seed})
		if err != nil {
			return sample{}, err
		}
		s := kept(rows, cfg.SLOs[string(schema.Guaranteed)])
		sum := stat.Summarize(run, rows, nil)
		s.values[goodput.Name] = sum.Goodput
		good := 0
		for i := range rows {
			if r := &rows[i]; r.Phase == record.Measure && r.Class != string(schema.Guaranteed) && cfg.SLOs[r.Class].Keeps(r) {
				good++
			}
		}
		s.values["best_effort_goodput_per_second"] = float64(good) / (b.o.Length - b.o.Warmup).Seconds()
		return s, nil
	}}
}

// halves is the workload from two tenants, of which one asks for guarantees.
func (b *bench) halves(seed uint64, slos map[string]record.SLO) (workload.Source, error) {
	spec, err := workload.Open(b.o.Workload)
	if err != nil {
		return nil, err
	}
	spec.Tenants = []workload.Tenant{{Name: "asks", Share: 1, Class: string(schema.Guaranteed)}, {Name: "floods", Share: 1, Class: string(schema.BestEffort)}}
	spec.SLOs = slos
	return workload.New(spec, b.vocab, seed)
}

// kept tells of the requests that asked for a guarantee: of those that got one it was its bound that let them in.
func kept(rows []record.Request, slo record.SLO) sample {
	var promised, shed, held, kept conformal.Coverage
	var all []time.Duration // of promised ones, to their end
	var bounds, latencies time.Duration
	count := func(c *conformal.Coverage, hit bool) {
		if hit {
			c.Hits++
		} else {
			c.Misses++
		}
	}
	for i := range rows {
		r := &rows[i]
		if r.Phase != record.Measure || r.Class != string(schema.Guaranteed) {
			continue
		}
		was := r.Outcome != record.Shed && r.Decision == "bound"
		count(&shed, r.Outcome == record.Shed)
		count(&promised, was)
		if !was {
			continue
		}
		held.Add(judge(r))
		if open := r.Outcome == record.Timeout || r.Outcome == record.Censored; open && r.E2E <= slo.E2E {
			kept.Censored++
		} else {
			count(&kept, slo.Keeps(r))
		}
		all, bounds, latencies = append(all, r.E2E), bounds+r.Bound, latencies+r.E2E
	}
	s := sample{map[string]float64{}, map[string]conformal.Coverage{"promised_ratio": promised, "guaranteed_refused_ratio": shed, "bounds_held_ratio": held, "kept_ratio": kept}}
	if len(all) > 0 {
		slices.Sort(all)
		s.values["promised_p99_by_objective"] = stat.Quantile(all, 0.99) / float64(slo.E2E)
		s.values["bound_by_latency"] = float64(bounds) / float64(latencies)
	}
	return s
}
