package online

import (
	"fmt"
	"math"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/length"
)

// Predictor is what was learned so far.
type Predictor struct {
	cfg      Config
	lengths  *length.Table
	forecast predictor.Forecast
	queue    *conformal.Queue // scores the logarithm of seconds
	now      time.Duration

	// What physics alone are off by: everywhere, and on an idle engine.
	residual, idleResidual *Residual
	physics                *margin
	idle                   *arm
	idleAsked              int     // since the last row
	model                  *model  // nil: physics alone
	frozen                 *frozen // nil: it learns

	deciles conformal.Deciles // of load
	due     int               // rows at which they are taken anew
	rows    int               // that have ended
	version int               // of deciles, model and what was borrowed
	skipped map[conformal.Group]int

	watch watch

	open           map[uint64]*tracked
	oldest, newest *tracked // of open
	coming         int      // of open: rows of the margins to be
	past           past
	pool           []*tracked
	resolved       []conformal.Resolution // scratch
	own            shifted                // scratch
	coverage       conformal.Coverage
}

const (
	// firstDeciles is after how many rows loads are cut into deciles; again each time that they have doubled.
	firstDeciles = 100
	// few is how many residuals make a distribution of their own.
	few = 20
	// idleRows is how many residuals of an idle engine are kept.
	idleRows = 128
	// skips is how many rows that the rule would have refused are left out of a group's margin, one after another, before they count: then
	// nothing else comes, and a margin that is too wide would stay.
	skips = 10
)

// New returns a predictor that has seen nothing, or ErrConfig.
func New(cfg Config) (*Predictor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Predictor{cfg: cfg, lengths: length.New(cfg.Classes, cfg.HalfLife), queue: conformal.NewQueue(conformal.Ratio),
		residual: NewResidual(cfg.Window), idleResidual: NewResidual(idleRows), open: map[uint64]*tracked{},
		past: past{ring: make([]*tracked, cfg.rows())}, due: firstDeciles, skipped: map[conformal.Group]int{}}
	var err error
	if p.physics, err = newMargin(&cfg, cfg.Start, cfg.Warm, enough(cfg.Level), nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if p.idle, err = newIdle(&cfg, cfg.Start, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := p.watch.begin(1 - cfg.Level); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return p, nil
}

// newIdle is the margin on an idle engine, of rows.
func newIdle(cfg *Config, start float64, rows []conformal.Row) (*arm, error) {
	alpha := 1 - cfg.Level
	return newArm(alpha, start, cfg.groupRows(), enough(cfg.Level), rows)
}

// Cold reports whether too little was seen for a bound.
func (p *Predictor) Cold() bool {
	switch {
	case p.frozen != nil:
		return false
	case p.model != nil && p.model.ready():
		return false
	}
	return !p.physics.ready()
}

// Coverage is how many bounds held, of all that were claimed for requests that were admitted, by chance or by the rule.
func (p *Predictor) Coverage() conformal.Coverage { return p.coverage }

// Lengths are the output lengths learned so far; lent.
func (p *Predictor) Lengths() *length.Table { return p.lengths }

// Foresee says what is expected of s if e admits it now, in f. The error is predictor.ErrEngine.
func (p *Predictor) Foresee(e *predictor.Engine, s *predictor.Sequence, f *Foresight) error {
	if err := p.forecast.Simulate(e, s, p.lengths); err != nil {
		return err
	}
	f.curve = append(f.curve[:0], p.forecast.Curve...)
	f.age, f.budget, f.class = s.Age, s.E2E, s.Lengths
	_, f.typical = p.forecast.Median(s, p.lengths)
	f.typical = max(1, f.typical)
	feature.Append(f.features[:0], e, s, p.lengths, &p.forecast)
	f.place = p.place(f)
	f.Outlook = p.forecast.Outlook(e, s, p.lengths, p.residuals(f), p.margin(f))
	p.ask(f, e.Idle())
	return nil
}

// ask tells the margins that a request was bounded, unless it is late by the physics too: no margin would let it in.
func (p *Predictor) ask(f *Foresight, idle bool) {
	if p.frozen != nil || f.budget > 0 && min(f.Predicted, f.age+nanoseconds(f.typical)) > f.budget {
		return
	}
	p.physics.ask(f.group, p.coming > 0)
	if p.model != nil {
		p.model.ask(&f.place, p.coming > 0)
	}
	if !idle || p.coming > 0 {
		return
	}
	if p.idleAsked++; p.idleAsked > patience {
		p.idle.relax()
	}
}

// residuals are the distributions for a request. They are lent until the next call.
func (p *Predictor) residuals(f *Foresight) predictor.Residuals {
	r := predictor.Residuals{New: p.residual, Idle: p.residual, Others: p.residual}
	if p.idleResidual.Len() >= few {
		r.Idle = p.idleResidual
	}
	if f.supported && p.model.residual.Len() >= few {
		p.own = shifted{p.model.residual, f.location}
		r.New = &p.own
	}
	return r
}

// margin is what is claimed of a request.
func (p *Predictor) margin(f *Foresight) predictor.Margin {
	m := predictor.Margin{Upper: math.NaN(), UpperIdle: math.NaN(), UpperOthers: math.NaN(), Level: p.cfg.Level}
	if z := p.frozen; z != nil {
		m.Upper, m.UpperIdle, m.UpperOthers = z.upper+f.location, z.idle, z.upper
		return m
	}
	if p.idle.ready {
		m.UpperIdle, _ = p.idle.Quantile()
	}
	others, ok := p.physics.start(), p.physics.ready()
	if ok {
		m.UpperOthers = others
	}
	if p.model != nil {
		if q, ok := p.model.quantile(&f.place); ok {
			m.Upper = f.location + q
			return m
		}
	}
	if q, ok := p.physics.quantile(f.group); ok {
		m.Upper = q
	}
	return m
}

// unclaimed is the logarithm of bound by simulated latency that is judged where none is claimed.
func (p *Predictor) unclaimed(f *Foresight) float64 {
	switch {
	case p.frozen != nil:
		return p.frozen.upper + f.location
	case f.supported:
		return p.model.margin.start() + f.location
	}
	return p.physics.start()
}

// Admit remembers a request that was admitted on f's word, until its End. weight is 1/propensity, ≥ 1: above 1 chance admitted what the
// rule would have refused. An id that is known changes nothing.
func (p *Predictor) Admit(id uint64, f *Foresight, weight float64, now time.Duration) {
	p.Advance(now)
	if p.open[id] != nil {
		return
	}
	var t *tracked
	if n := len(p.pool); n > 0 {
		t, p.pool = p.pool[n-1], p.pool[:n-1]
	} else {
		t = new(tracked)
	}
	curve := t.curve[:0]
	curve = append(curve, f.curve...)
	*t = tracked{Foresight: *f, id: id, since: p.now, explored: weight > 1, residual: math.NaN()}
	t.hopeless = t.budget > 0 && t.Predicted > t.budget
	t.curve = curve
	if t.version != p.version { // what it was foreseen with has changed
		t.typical = t.median(p.lengths)
		t.place = p.place(&t.Foresight)
	}
	bound := t.Bound - t.age
	if t.Bound <= 0 {
		bound = nanoseconds(math.Exp(p.unclaimed(&t.Foresight)) * t.typical)
	}
	// The score is of what is still to come, so that a request which has waited already is no special case.
	t.ticket, _ = p.queue.Issue(conformal.Issue{ID: id, Weight: 1, Bound: max(1, bound), Pred: 1}, p.now)
	p.link(t)
	for len(p.open) > p.cfg.Open || p.now-p.oldest.since > p.cfg.Forget {
		p.forget(p.oldest)
	}
}

// nanoseconds keeps what is too long for a Duration within it.
func nanoseconds(ns float64) time.Duration {
	const most = 1 << 62
	if !(ns < most) {
		return most
	}
	return time.Duration(ns)
}

// End learns from how a request ended. An id that is not known changes nothing.
func (p *Predictor) End(id uint64, e Ending, now time.Duration) {
	t := p.open[id]
	if t == nil {
		return
	}
	p.Advance(now)
	p.unlink(t)
	var r conformal.Resolution
	var err error
	switch e.How {
	case Completed:
		if p.frozen == nil {
			p.lengths.Observe(t.class, e.Tokens, e.Cut)
			p.takeResidual(t, math.Log(float64(max(1, e.E2E-t.age))/t.at(float64(e.Tokens))))
		}
		r, err = p.queue.Complete(t.ticket, p.now)
	case Dropped:
		r, err = p.queue.Cancel(t.ticket, p.now)
	default:
		r, err = p.queue.Leave(t.ticket, p.now)
	}
	if e.How != Completed && p.frozen == nil {
		p.lengths.Observe(t.class, e.Tokens, true) // it would have been longer
	}
	p.keep(t, &r, err)
}

// forget ends a request of which nothing more is expected.
func (p *Predictor) forget(t *tracked) {
	p.unlink(t)
	r, err := p.queue.Leave(t.ticket, p.now)
	p.keep(t, &r, err)
}

// Advance learns from the bounds that have passed.
func (p *Predictor) Advance(now time.Duration) {
	p.now = max(p.now, now)
	p.resolved = p.queue.Advance(p.resolved[:0], p.now)
	for i := range p.resolved {
		r := &p.resolved[i]
		t := p.open[r.Row.ID]
		p.come(t)
		t.overdue = true
		p.learn(t, r)
		p.heed(t, r)
	}
}

// keep learns from a request that has ended, and remembers it if there is something to learn from it again.
func (p *Predictor) keep(t *tracked, r *conformal.Resolution, err error) {
	if err == nil {
		p.learn(t, r)
	}
	switch {
	case p.frozen != nil || err != nil:
		p.pool = append(p.pool, t)
		return
	case r.Row.Stage == conformal.Dropped && !t.overdue:
		p.pool = append(p.pool, t) // of its latency nothing is known
		return
	case r.Row.Stage == conformal.Overdue: // it left before anyone saw that its bound had passed
		t.lower = true
		if t.in {
			p.give(t, conformal.Dropped)
		}
	case r.Row.Stage == conformal.Dropped:
		t.lower = true
	}
	t.overdue = false
	if old := p.past.push(t); old != nil {
		p.pool = append(p.pool, old)
	}
	if p.rows++; p.rows == p.due {
		p.due *= 2
		p.regroup()
	}
	p.heed(t, r)
}

// learn counts what became of a bound and gives the margins a row.
func (p *Predictor) learn(t *tracked, r *conformal.Resolution) {
	if t.Bound > 0 {
		p.coverage.Add(r.Verdict)
	}
	if p.frozen != nil {
		return
	}
	stage := r.Row.Stage
	if stage == conformal.Done || stage == conformal.Overdue {
		p.physics.seen++
		t.in = p.takes(t)
	}
	if stage != conformal.Dropped {
		t.latency = r.Row.Score
	}
	if t.in {
		p.give(t, stage)
	}
}

// give tells the margins what is known of a row.
func (p *Predictor) give(t *tracked, stage conformal.Stage) {
	physics, own := t.score()
	row := conformal.Row{ID: t.id, Score: physics, Stage: stage}
	p.physics.observe(t.group, row)
	if t.Idle {
		p.idleAsked = 0
		_ = p.idle.Observe(row)
	}
	if p.model != nil {
		row.Score = own
		p.model.observe(&t.place, row, physics)
	}
}

// takes says whether a row belongs to the margins: those of requests that a rule would admit, and of those that chance let in where nothing
// else comes. Of one that was expected to be late the residual is learned, so that it is expected to be in time once the engine is faster.
func (p *Predictor) takes(t *tracked) bool {
	if t.hopeless {
		return false
	}
	if !t.explored {
		delete(p.skipped, t.group)
		return true
	}
	p.skipped[t.group]++
	return p.skipped[t.group] > skips
}

func (p *Predictor) takeResidual(t *tracked, x float64) {
	t.residual = x
	p.residual.Observe(x)
	if t.Idle {
		p.idleResidual.Observe(x)
	}
	if t.supported {
		p.model.residual.Observe(x - t.location)
	}
}

// link makes a request the newest of the open ones.
func (p *Predictor) link(t *tracked) {
	p.open[t.id] = t
	t.prev, t.later = p.newest, nil
	if p.newest != nil {
		p.newest.later = t
	} else {
		p.oldest = t
	}
	p.newest = t
	if !t.explored && !t.hopeless {
		p.coming++
	}
}

// come says of an open request that its row has come, or never will.
func (p *Predictor) come(t *tracked) {
	if !t.explored && !t.hopeless && !t.overdue {
		p.coming--
	}
}

func (p *Predictor) unlink(t *tracked) {
	p.come(t)
	delete(p.open, t.id)
	if t.prev != nil {
		t.prev.later = t.later
	} else {
		p.oldest = t.later
	}
	if t.later != nil {
		t.later.prev = t.prev
	} else {
		p.newest = t.prev
	}
	t.prev, t.later = nil, nil
}
