package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// axisLoad labels the axis of rates.
const axisLoad = "offered load (req/s)"

// Figures draws every figure. It reads the requests of the runs at the overload rate again.
func (r *Report) Figures() ([]*Figure, error) {
	if len(r.Runs) == 0 {
		return nil, nil
	}
	var out []*Figure
	if len(r.Rates) > 1 {
		out = append(out, r.goodputFigure(), r.latencyFigure())
		if slices.ContainsFunc(r.Runs, func(run *Run) bool { return run.Summary.ShedRatio > 0 }) {
			out = append(out, r.shedFigure())
		}
	}
	cdf, err := r.cdfFigure(r.Overload())
	if err != nil {
		return nil, err
	}
	timeline, err := r.timelineFigure(r.Overload())
	if err != nil {
		return nil, err
	}
	return append(out, cdf, timeline), nil
}

// curve adds a metric of an arm against the rates, scaled, with its band; on a logarithmic axis without what is not
// above 0.
func (r *Report) curve(p *axes, arm int, m Metric, scale float64, log bool) []plot.Thumbnailer {
	var mean, low, high plotter.XYs
	for _, rate := range r.Rates {
		v := r.Cell(r.Arms[arm], rate).Over(m)
		if v.Count == 0 || log && v.Min <= 0 {
			continue
		}
		mean = append(mean, plotter.XY{X: rate, Y: scale * v.Mean})
		low = append(low, plotter.XY{X: rate, Y: scale * v.Min})
		high = append(high, plotter.XY{X: rate, Y: scale * v.Max})
	}
	l := lookOf(arm)
	band(p, low, high, l.color)
	return lines(p, mean, l.line(), l.shape)
}

func (r *Report) subtitle() string {
	seeds := map[uint64]bool{}
	for _, run := range r.Runs {
		seeds[run.Seed] = true
	}
	text := "Objective: " + describeSLOs(r.SLOs)
	if len(seeds) > 1 {
		text += fmt.Sprintf(". Lines: means; bands: least to largest of %d seeds", len(seeds))
	}
	return text
}

// zeroX begins the axis of rates at 0 and leaves room for the last mark.
func (r *Report) zeroX(p *axes) { p.X.Min, p.X.Max = 0, 1.03*r.Rates[len(r.Rates)-1] }

func (r *Report) goodputFigure() *Figure {
	f := &Figure{Name: "goodput", Title: "Goodput against offered load", Note: r.subtitle(), w: 6.6 * vg.Inch, h: 3.7 * vg.Inch,
		Alt: "Goodput of each arm against the offered load, with the line on which every request is good."}
	p := panel(axisLoad, "goodput (req/s)")
	most := r.Rates[len(r.Rates)-1]
	ideal := lines(p, plotter.XYs{{X: 0, Y: 0}, {X: most, Y: most}}, reference(), nil)
	p.Y.Max = 0
	top := 0.0
	for i, arm := range r.Arms {
		f.legend = append(f.legend, legendEntry{arm, r.curve(p, i, Goodput, 1, false)})
		for _, rate := range r.Rates {
			top = max(top, r.Cell(arm, rate).Over(Goodput).Max)
		}
	}
	f.legend = append(f.legend, legendEntry{"ideal", ideal})
	r.zeroX(p)
	p.Y.Min, p.Y.Max = 0, min(most, 1.15*top)
	if top == 0 {
		p.Y.Max = most
	}
	f.panels = [][]*axes{{p}}
	return f
}

// limits are the distinct limits that the objectives set to a latency, in seconds.
func (r *Report) limits(of func(record.SLO) time.Duration) []float64 {
	var out []float64
	for _, s := range r.SLOs {
		if d := of(s).Seconds(); d > 0 && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out
}

func (r *Report) latencyFigure() *Figure {
	f := &Figure{Name: "latency", Title: "p99 latency against offered load", Note: r.subtitle(), w: 8.6 * vg.Inch, h: 3.7 * vg.Inch,
		Alt: "p99 end-to-end latency and p99 time to first token of each arm against the offered load, on logarithmic axes, with the objective."}
	e2e, ttft := panel(axisLoad, "p99 E2E (s)"), panel(axisLoad, "p99 TTFT (s)")
	var slo []plot.Thumbnailer
	for _, x := range []struct {
		p      *axes
		m      Metric
		limits []float64
	}{{e2e, E2E99, r.limits(func(s record.SLO) time.Duration { return s.E2E })}, {ttft, TTFT99, r.limits(func(s record.SLO) time.Duration { return s.TTFT })}} {
		for _, limit := range x.limits {
			slo = lines(x.p, plotter.XYs{{X: 0, Y: limit}, {X: 1.03 * r.Rates[len(r.Rates)-1], Y: limit}}, reference(), nil)
		}
		for i, arm := range r.Arms {
			thumbs := r.curve(x.p, i, x.m, 1, true)
			if x.p == e2e {
				f.legend = append(f.legend, legendEntry{arm, thumbs})
			}
		}
		logarithmic(&x.p.Y)
		r.zeroX(x.p)
	}
	if slo != nil {
		f.legend = append(f.legend, legendEntry{"SLO", slo})
	}
	f.panels = [][]*axes{{e2e, ttft}}
	return f
}

func (r *Report) shedFigure() *Figure {
	f := &Figure{Name: "shed", Title: "Requests shed against offered load", Note: r.subtitle(), w: 6.6 * vg.Inch, h: 3.3 * vg.Inch,
		Alt: "The part of the offered requests that each arm refuses, against the offered load."}
	p := panel(axisLoad, "shed (% of offered)")
	top := 0.0
	for i, arm := range r.Arms {
		f.legend = append(f.legend, legendEntry{arm, r.curve(p, i, shed, 100, false)})
		for _, rate := range r.Rates {
			top = max(top, r.Cell(arm, rate).Over(shed).Max)
		}
	}
	r.zeroX(p)
	p.Y.Min, p.Y.Max = 0, 100
	if top < 0.45 {
		p.Y.Max = 50
	}
	f.panels = [][]*axes{{p}}
	return f
}

// cdfPoints is how many points of a distribution are drawn.
const cdfPoints = 300

// cdf returns the share of n requests that have a latency of at most x, in seconds, as a line.
func cdf(latencies []time.Duration, n int) plotter.XYs {
	slices.Sort(latencies)
	var out plotter.XYs
	step := max(1, len(latencies)/cdfPoints)
	for i := 0; i < len(latencies); i += step {
		if i+step >= len(latencies) {
			i = len(latencies) - 1
		}
		if x := latencies[i].Seconds(); x > 0 {
			out = append(out, plotter.XY{X: x, Y: 100 * float64(i+1) / float64(n)})
		}
	}
	return out
}

func (r *Report) cdfFigure(rate float64) (*Figure, error) {
	f := &Figure{Name: "cdf", Title: "Latency of all that was offered at " + number(rate) + " req/s", w: 8.6 * vg.Inch, h: 3.7 * vg.Inch,
		Note: "All seeds together. A curve ends where the rest was shed, failed or given up. Objective: " + describeSLOs(r.SLOs),
		Alt:  "Cumulative distributions of the end-to-end latency and of the time to first token of each arm at one load, of all offered requests."}
	e2e, ttft := panel("E2E (s)", "answered within (% of offered)"), panel("TTFT (s)", "first token within (% of offered)")
	for i, arm := range r.Arms {
		var whole, first []time.Duration
		n := 0
		if c := r.Cell(arm, rate); c != nil {
			for _, run := range c.Runs {
				rows, err := record.Requests(run.Dir)
				if err != nil {
					return nil, err
				}
				for k := range rows {
					q := &rows[k]
					if q.Phase != record.Measure {
						continue
					}
					n++
					if q.Outcome == record.OK {
						whole = append(whole, q.E2E)
					}
					if q.TTFT >= 0 && q.Outcome != record.Shed {
						first = append(first, q.TTFT)
					}
				}
			}
		}
		l := lookOf(i)
		thumbs := lines(e2e, cdf(whole, n), l.line(), nil)
		lines(ttft, cdf(first, n), l.line(), nil)
		f.legend = append(f.legend, legendEntry{arm, thumbs})
	}
	var slo []plot.Thumbnailer
	for _, x := range []struct {
		p      *axes
		limits []float64
	}{{e2e, r.limits(func(s record.SLO) time.Duration { return s.E2E })}, {ttft, r.limits(func(s record.SLO) time.Duration { return s.TTFT })}} {
		for _, limit := range x.limits {
			slo = lines(x.p, plotter.XYs{{X: limit, Y: 0}, {X: limit, Y: 100}}, reference(), nil)
		}
		logarithmic(&x.p.X)
		x.p.Y.Min, x.p.Y.Max = 0, 100
	}
	if slo != nil {
		f.legend = append(f.legend, legendEntry{"SLO", slo})
	}
	f.panels = [][]*axes{{e2e, ttft}}
	return f, nil
}

// bins of the timeline, over the time of the arrivals.
const bins = 36

func (r *Report) timelineFigure(rate float64) (*Figure, error) {
	f := &Figure{Name: "timeline", w: 7.6 * vg.Inch, h: 6.4 * vg.Inch,
		Alt: "Goodput, requests in flight and p99 latency over the time of one run of each arm."}
	good, flight, slow := panel("", "goodput (req/s)"), panel("", "in flight (requests)"), panel("time of arrival (s)", "p99 E2E (s)")
	panels := []*axes{good, flight, slow}
	var first *Run
	end := 0.0
	type drawn struct {
		run  *Run
		arm  int
		rows []record.Request
	}
	var all []drawn
	for i, arm := range r.Arms {
		c := r.Cell(arm, rate)
		if c == nil {
			continue
		}
		run := slices.MinFunc(c.Runs, func(a, b *Run) int { return compareRuns(nil, a, b) })
		if first == nil {
			first = run
		}
		rows, err := record.Requests(run.Dir)
		if err != nil {
			return nil, err
		}
		all = append(all, drawn{run, i, rows})
		end = max(end, run.Length.Seconds())
	}
	if first != nil {
		f.Title = fmt.Sprintf("One run over time, at %s req/s (seed %d)", number(rate), first.Seed)
		f.Note = "Shaded: warm-up and tail, which are not measured. Objective: " + describeSLOs(r.SLOs)
		for _, p := range panels {
			p.Add(zones{{0, first.Warmup.Seconds()}, {(first.Length - first.Tail).Seconds(), first.Length.Seconds()}})
		}
	}
	for _, d := range all {
		l := lookOf(d.arm)
		rates, p99 := r.timeline(d.run, d.rows)
		thumbs := lines(good, rates, l.line(), nil)
		lines(flight, inFlight(d.rows, time.Duration(end*1e9)), l.line(), nil)
		lines(slow, p99, l.line(), nil)
		f.legend = append(f.legend, legendEntry{r.Arms[d.arm], thumbs})
	}
	var slo []plot.Thumbnailer
	for _, limit := range r.limits(func(s record.SLO) time.Duration { return s.E2E }) {
		slo = lines(slow, plotter.XYs{{X: 0, Y: limit}, {X: end, Y: limit}}, reference(), nil)
	}
	if slo != nil {
		f.legend = append(f.legend, legendEntry{"SLO", slo})
	}
	logarithmic(&slow.Y)
	good.Y.Min, flight.Y.Min = 0, 0
	good.Y.Max, flight.Y.Max = 1.1*max(good.Y.Max, 0.1), 1.1*max(flight.Y.Max, 1)
	for _, p := range panels {
		p.X.Min, p.X.Max = 0, end
		f.panels = append(f.panels, []*axes{p})
	}
	return f, nil
}

// timeline returns the goodput and the p99 of E2E of the arrivals of each bin, at the bin's middle. Requests that were
// given up count with what they waited.
func (r *Report) timeline(run *Run, rows []record.Request) (goodput, p99 plotter.XYs) {
	width := run.Length / bins
	if width <= 0 {
		return nil, nil
	}
	count, waited := make([]int, bins), make([][]time.Duration, bins)
	for i := range rows {
		q := &rows[i]
		b := int(q.Intended / width)
		if b < 0 || b >= bins {
			continue
		}
		if record.Objective(r.SLOs, q.Class).Keeps(q) {
			count[b]++
		}
		if q.Outcome != record.Shed && q.Outcome != record.Error {
			waited[b] = append(waited[b], q.E2E)
		}
	}
	for b := range bins {
		x := (time.Duration(b)*width + width/2).Seconds()
		goodput = append(goodput, plotter.XY{X: x, Y: float64(count[b]) / width.Seconds()})
		slices.Sort(waited[b])
		if y := stat.Quantile(waited[b], 0.99) / 1e9; y > 0 { // not NaN
			p99 = append(p99, plotter.XY{X: x, Y: y})
		}
	}
	return goodput, p99
}

// inFlight returns how many requests had come and not ended, at steps up to end.
func inFlight(rows []record.Request, end time.Duration) plotter.XYs {
	came, went := make([]time.Duration, 0, len(rows)), make([]time.Duration, 0, len(rows))
	for i := range rows {
		came, went = append(came, rows[i].Intended), append(went, rows[i].Intended+rows[i].E2E)
	}
	slices.Sort(came)
	slices.Sort(went)
	const steps = 240
	out := make(plotter.XYs, 0, steps+1)
	for i := range steps + 1 {
		at := end * time.Duration(i) / steps
		a, _ := slices.BinarySearch(came, at+1)
		b, _ := slices.BinarySearch(went, at+1)
		out = append(out, plotter.XY{X: at.Seconds(), Y: math.Max(0, float64(a-b))})
	}
	return out
}
