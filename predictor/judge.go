package predictor

import (
	"math"
	"time"
)

// spread is how many lengths each of the others is judged at.
const spread = 6

// Residual is the distribution of log(latency / simulated latency), given the length of the answer. CDF is monotone, in [0, 1];
// Quantile is its inverse.
type Residual interface {
	CDF(logRatio float64) float64
	Quantile(p float64) float64
}

// Residuals are the distributions that probabilities come from: of the new request on this engine, of the same on an idle one, and of those
// that were there before. Idle and Others may be nil: they are as New.
type Residuals struct{ New, Idle, Others Residual }

// Margin is the calibrated quantile of log(latency / latency simulated at the median length): of the new request on this engine, of the
// same on an idle one, and of those that were there before. NaN or infinite: no bound is claimed.
type Margin struct {
	Upper, UpperIdle, UpperOthers float64
	Level                         float64
}

// Median returns the median length of the answer to n, in tokens, and when the client has it, in ns from now: what a Margin is relative
// to. The arguments are those of Simulate.
func (f *Forecast) Median(n *Sequence, l Lengths) (tokens, at float64) {
	tokens = l.Quantile(n.Lengths, 0, int32(f.limit), 0.5)
	return tokens, f.At(tokens)
}

// Outlook judges the admission of n by what Simulate foresaw; the arguments are those of Simulate.
//
// Meet is Σ P(k)·F(log(budget / t(k))) over the lengths k of the answer, where both objectives are put to the same residual, r.New.
// Harm is the sum of the losses of such probabilities of the others: t is later there by what the new request will have
// cost the engine until then, on average over its lengths. Objectives that have passed already can lose nothing.
func (f *Forecast) Outlook(e *Engine, n *Sequence, l Lengths, r Residuals, m Margin) Outlook {
	if r.Idle == nil {
		r.Idle = r.New
	}
	if r.Others == nil {
		r.Others = r.New
	}
	limit := int32(f.limit)
	l.Remaining(n.Lengths, 0, limit, &f.lengths)
	age := nanos(n.Age)
	goal := target{ttft: objective(n.TTFT, n.Age), e2e: objective(n.E2E, n.Age)}
	first, alone := f.First(), f.plan.alone(n, 1)+nanos(e.Delay)
	o := Outlook{Idle: e.Idle()}
	cost, passed, tokens := 0.0, 0.0, 0.0
	for i := range f.lengths.N {
		k, p := f.lengths.Tokens[i], f.lengths.Prob[i]
		at := f.knot(k)
		f.at[i], f.cost[i] = at.At, at.Cost
		f.under[i], f.over[i] = cost, max(0, 1-passed)
		cost += p * at.Cost
		passed += p
		tokens += p * k
		if goal.none() {
			continue
		}
		o.Meet += p * goal.meets(r.New, first, at.At)
		o.MeetIdle += p * goal.meets(r.Idle, alone, f.plan.alone(n, k)+nanos(e.Delay))
	}
	if goal.none() {
		o.Meet, o.MeetIdle = 1, 1
	}
	f.under[f.lengths.N], f.over[f.lengths.N] = cost, 0
	o.Meet, o.MeetIdle = min(o.Meet, 1), min(o.MeetIdle, 1)
	o.Cost = max(1, duration(cost))
	o.Share = max(1, duration(f.plan.share(n, f.fork.jobs[f.others].pages, tokens)))

	median, typical := f.Median(n, l)
	idle := f.plan.alone(n, median) + nanos(e.Delay)
	shift := exp(r.New.Quantile(0.5))
	o.Predicted, o.First = duration(age+shift*typical), duration(age+shift*first)
	bounded := m.Level > 0 && m.Level < 1
	if up := exp(m.Upper); bounded && finite(up) {
		o.Bound, o.Level = duration(age+up*typical), m.Level
	}
	if up := exp(m.UpperIdle); bounded && finite(up) {
		o.BoundIdle, o.Level = duration(age+up*idle), m.Level
	}
	others := exp(m.UpperOthers)
	f.judge(e, l, r.Others, bounded && finite(others), others, &o)
	if !goal.none() {
		o.Drain = duration(f.drain(target{goal.ttft / shift, goal.e2e / shift}, n, median, nanos(e.Delay)))
	}
	return o
}

// target is what is left of objectives, in ns; +Inf: there is none.
type target struct{ ttft, e2e float64 }

func objective(d, age time.Duration) float64 {
	if d <= 0 {
		return math.Inf(1)
	}
	return float64(d - age)
}

func (t target) none() bool { return math.IsInf(t.ttft, 1) && math.IsInf(t.e2e, 1) }

// meets is the probability that neither objective is missed.
func (t target) meets(r Residual, first, last float64) float64 {
	x := min(t.ttft/first, t.e2e/last)
	if !(x > 0) {
		return 0
	}
	return r.CDF(math.Log(x))
}

// The table of a residual's CDF has 16 points in each octave of the ratio, from 2^-octaves to 2^octaves; below it falls to 0, above it
// stays as it is.
const (
	octaves = 2
	points  = 2*octaves*16 + 1
)

// ratios are the logarithms of the table's points.
var ratios = func() (x [points]float64) {
	for i := range x {
		x[i] = math.Log(math.Ldexp(1+float64(i%16)/16, i/16-octaves))
	}
	return x
}()

// table is a CDF by ratio, so that what is asked a thousand times takes no logarithm.
type table [points]float64

func (c *table) set(r Residual) {
	for i, x := range ratios {
		c[i] = r.CDF(x)
	}
}

// meets is target.meets to within what a CDF bends between two points.
func (c *table) meets(t *target, first, last float64) float64 {
	x := min(t.ttft/first, t.e2e/last)
	const low, high = 1.0 / (1 << octaves), 1 << octaves
	if !(x > 0) {
		return 0
	}
	if x <= low {
		return c[0] * x / low
	}
	if x >= high {
		return c[points-1]
	}
	// Exponent and upper mantissa bits are the index, the lower ones are where x lies up to the next point.
	const bits = 52 - 4
	u := math.Float64bits(x)
	i := int(u>>bits) - (1023-octaves)<<4
	part := float64(u&(1<<bits-1)) / (1 << bits)
	return c[i] + part*(c[i+1]-c[i])
}

// judge sums the losses of the others.
func (f *Forecast) judge(e *Engine, l Lengths, r Residual, bounded bool, up float64, o *Outlook) {
	if f.others == 0 {
		return
	}
	f.odds.set(r)
	f.run.mark()
	f.fork.mark()
	for i := range min(f.others, len(e.Running)+len(e.Waiting)) {
		s := at(e, i)
		t := target{math.Inf(1), objective(s.E2E, s.Age)}
		a, b := &f.run.jobs[i], &f.fork.jobs[i]
		if !a.begun {
			t.ttft = objective(s.TTFT, s.Age)
		}
		if t.none() || t.e2e <= 0 {
			continue
		}
		o.Harm += f.loss(s, l, &t, a, b)
		if !bounded || !s.Guaranteed || math.IsInf(t.e2e, 1) || o.Breaks {
			continue
		}
		k := l.Quantile(s.Lengths, max(0, s.OutputTokens), s.CapTokens, 0.5)
		without, with := f.run.time(a.join+k-1)+f.exit, f.fork.time(b.join+k-1)+f.exit
		// A promise that is in danger already, but not lost, must not be made worse.
		o.Breaks = up*with > t.e2e && (up*without <= t.e2e || with > without && without <= t.e2e)
	}
}

// at is the i-th of the others.
func at(e *Engine, i int) *Sequence {
	if i < len(e.Running) {
		return &e.Running[i]
	}
	return &e.Waiting[i-len(e.Running)]
}

// loss is how much less probable the new request makes it that another meets its objectives.
func (f *Forecast) loss(s *Sequence, l Lengths, t *target, a, b *job) float64 {
	k := &f.rest
	l.Spread(s.Lengths, max(0, s.OutputTokens), s.CapTokens, k[:])
	if b.join+k[spread-1]-1 <= f.fork.apart && a.first == b.first {
		return 0 // it will have ended
	}
	first := a.first + f.exit
	firstWith := first + f.delay(b.first-a.first)
	sum := 0.0
	for _, k := range k {
		if b.join+k-1 <= f.fork.apart {
			continue
		}
		without := f.run.time(a.join+k-1) + f.exit
		before := f.odds.meets(t, first, without)
		if before == 0 {
			break // nor any longer answer
		}
		with := without + f.delay(f.fork.time(b.join+k-1)+f.exit-without)
		sum += max(0, before-f.odds.meets(t, firstWith, with))
	}
	return sum / spread
}

// delay is by how much another is late on average over the lengths of the new request, if it is late by d when that runs to
// its cap: by no more than what a shorter answer costs.
func (f *Forecast) delay(d float64) float64 {
	if !(d > 0) {
		return 0
	}
	lo, hi := 0, f.lengths.N
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); f.cost[mid] < d {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return f.under[lo] + d*f.over[lo]
}

// drain is when the median of a request that comes then meets the target.
func (f *Forecast) drain(t target, n *Sequence, tokens, delay float64) float64 {
	first, last := f.First(), f.At(tokens)
	late := max(first-t.ttft, last-t.e2e)
	if late <= 0 {
		return 0
	}
	own := &f.fork.jobs[f.others]
	start := own.start + f.exit
	if late <= start {
		return late // it would have to wait for that much less
	}
	line := f.run.line
	end := &line[len(line)-1]
	prefill, pace := first-start, f.plan.alone(n, 2)-f.plan.alone(n, 1)
	fits := func(p *point) bool {
		k := min(tokens-1, end.round-p.round)
		decode := f.run.time(p.round+k) - p.at + (tokens-1-k)*pace
		return delay+prefill <= t.ttft && delay+prefill+decode <= t.e2e
	}
	lo, hi := 0, len(line)-1
	for lo < hi {
		if mid := (lo + hi) / 2; fits(&line[mid]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return max(start, line[lo].at)
}

// mark makes the line ready for time.
func (r *run) mark() {
	end := r.line[len(r.line)-1].round
	r.marked = marks / max(end, 1)
	i := 0
	for m := range r.marks {
		for i < len(r.line)-1 && r.line[i].round*r.marked < float64(m) {
			i++
		}
		r.marks[m] = int32(i)
	}
}

// time is when a round is done. Beyond the last, rounds go on as the last did.
func (r *run) time(round float64) float64 {
	i := r.marks[int(min(max(0, round*r.marked), marks-1))]
	last := int32(len(r.line) - 1)
	for i < last && r.line[i].round < round {
		i++
	}
	if i == 0 {
		return r.line[0].at
	}
	a, b := &r.line[i-1], &r.line[i]
	if b.round == a.round { // beyond a last step in which nobody decoded
		return b.at
	}
	return a.at + (round-a.round)*(b.at-a.at)/(b.round-a.round)
}

// alone is how long an idle engine takes until so many tokens of a sequence, in ns.
func (p *plan) alone(s *Sequence, tokens float64) float64 {
	prompt := min(max(1, int(s.PromptTokens)), longest)
	left := min(max(1, int(s.PrefillTokens)), prompt)
	held := float64(prompt - left)
	full := left / p.chunk
	took := 0.0
	if full > 0 {
		c := float64(p.chunk)
		took = p.step(p.chunk, 0, held+c, c, float64(full))
	}
	if rest := left % p.chunk; rest > 0 {
		took += p.step(rest, 0, float64(prompt), 0, 1)
	}
	if tokens > 1 {
		took += p.step(0, 1, float64(prompt+1), 1, tokens-1)
	}
	return took
}

// share is a sequence's part of a full engine's time, if it promises so many pages and generates so many tokens.
func (p *plan) share(s *Sequence, pages int, tokens float64) float64 {
	prompt := min(max(1, int(s.PromptTokens)), longest)
	left := min(max(1, int(s.PrefillTokens)), prompt)
	full := max(1, min(p.slots, p.promises/max(1, pages)))
	c := &p.profile.Cost
	prefill := c.Prefill*math.Ceil(float64(left)/float64(p.chunk)) + c.PrefillToken*float64(left)
	each := p.step(0, full, float64(full)*(float64(prompt)+tokens/2), 0, 1) / float64(full)
	return p.slow*max(0, prefill) + each*max(0, tokens-1)
}

// exp of NaN is NaN.
func exp(x float64) float64 { return math.Exp(min(x, 50)) }

func finite(x float64) bool { return x < math.Exp(50) && x > 0 }

// duration keeps odd figures within what a Duration holds.
func duration(ns float64) time.Duration {
	const most = 1 << 62
	if !(ns > 0) {
		return 0
	}
	return time.Duration(min(ns, most))
}
