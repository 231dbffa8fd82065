package online

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/gbm"
)

const (
	// furthest is how far a model may move a prediction, as a logarithm: beyond a factor of a hundred it errs.
	furthest = 4.6
	// known is how many rows of its own a margin needs, and twice what its level does, to do without those of the artifact.
	known = 50
	// borrow is what answers of a class must weigh for the artifact's lengths not to be added, and lend what those weigh at most.
	borrow, lend = 50, 200
)

// model is a learned location of the residual, and what is calibrated on it.
type model struct {
	trees    *gbm.Model
	support  float64
	residual *Residual // of rows that it supports, less what it says of them
	margin   *margin   // of rows that it supports
	outside  *arm      // of the others, by the residual of the physics
	// What the artifact was calibrated to, and our rows on top, until there are enough of them; nil: nothing was lent.
	lent        *conformal.Groups
	lentOutside conformal.Arm
	byLoad      bool // lent's groups are of load alone
}

// newModel returns an artifact's, without a margin of its own, or ErrModel.
func newModel(c *Config, a *artifact.Artifact) (*model, error) {
	if a.Model == nil || a.Model.Features() != feature.Count {
		return nil, fmt.Errorf("%w: want %d", ErrModel, feature.Count)
	}
	m := &model{trees: a.Model, support: a.Calibration.MinSupport}
	if math.Abs(a.Calibration.Supported.All.Alpha-(1-c.Level)) > 1e-9 {
		return m, nil
	}
	var err error
	if m.lent, err = conformal.ImportGroups(a.Calibration.Supported, groupArm(c)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	m.lent.Need(c.speak())
	m.byLoad = !slices.ContainsFunc(a.Calibration.Supported.Groups, func(g conformal.GroupState) bool { return g.Group.Class != 0 })
	if m.lentOutside, err = conformal.Import(a.Calibration.Physics); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	return m, nil
}

// group is a place's in what was lent. Whoever trains may not know how an ingress numbers its classes.
func (m *model) group(g conformal.Group) conformal.Group {
	if m.byLoad {
		g.Class = 0
	}
	return g
}

// calibrate makes the margins of rows, oldest first, that the model supports, and of those that it does not. first is as in newMargin.
func (m *model) calibrate(c *Config, first int, own []conformal.GroupedRow, outside []conformal.Row) error {
	need, start := enough(c.Level), c.Start
	before := m.margin
	if before != nil {
		start = before.start()
	} else if m.lent != nil {
		need = max(known, 2*conformal.MinRows(1-c.Level))
		for _, r := range own {
			_ = m.lent.Observe(m.group(r.Group), r.Row)
		}
		for _, r := range outside {
			_ = m.lentOutside.Observe(r)
		}
	}
	var err error
	if m.margin, err = newMargin(c, start, need, first, own); err != nil {
		return err
	}
	m.margin.strict = true
	if m.margin.follow(before); m.margin.ready() {
		m.lent = nil
	}
	m.outside, err = newArm(1-c.Level, c.Start, c.groupRows(), enough(c.Level), outside)
	return err
}

// observe gives the margins a row of a place, whose score is by the model; physics is the one by the physics.
func (m *model) observe(at *place, r conformal.Row, physics float64) {
	if !at.supported {
		r.Score = physics
		_ = m.outside.Observe(r)
		if m.lentOutside != nil {
			_ = m.lentOutside.Observe(r)
		}
		return
	}
	if r.Stage == conformal.Done || r.Stage == conformal.Overdue {
		m.margin.seen++
	}
	m.margin.observe(at.group, r)
	if m.lent != nil {
		if _ = m.lent.Observe(m.group(at.group), r); m.margin.ready() {
			m.lent = nil
		}
	}
}

// ask tells that a request of a place was bounded; see margin.ask. What was lent is given back if nobody comes for long.
func (m *model) ask(at *place, coming bool) {
	if !at.supported {
		return
	}
	if m.margin.ask(at.group, coming); m.margin.askedAll > patience {
		m.lent = nil
	}
}

// quantile is what bounds a row of a place, relative to the model's latency or, unless it is supported, to the physics'. ok is false if none
// is claimed.
func (m *model) quantile(at *place) (q float64, ok bool) {
	switch {
	case at.supported && m.lent != nil:
		q, _, ok = m.lent.Quantile(m.group(at.group))
		return q, ok
	case at.supported:
		return m.margin.quantile(at.group)
	case m.outside.ready:
		return m.outside.Quantile()
	case m.lentOutside != nil:
		return m.lentOutside.Quantile()
	}
	return 0, false
}

// ready reports whether bounds are claimed of what it supports.
func (m *model) ready() bool {
	if m.lent == nil {
		return m.margin.ready()
	}
	_, ok := m.lent.Marginal().Quantile()
	return ok
}

// Swap makes the predictor ask a model, or with nil the physics alone, from now on. Whether it belongs to this engine is for the caller
// to say first; see artifact.Header.Compatible. The artifact is kept and not changed.
//
// All that was calibrated is calibrated anew on the model: the latest rows are scored by what it says of them, those that are
// open too. Where rows are few the calibration begins with the artifact's, if that is at this level; else bounds are those of the physics
// until there are enough of them. The artifact's answers are added to classes of lengths of which few were seen. ErrModel; nothing has changed
// then.
func (p *Predictor) Swap(a *artifact.Artifact, now time.Duration) error {
	if p.frozen != nil {
		return fmt.Errorf("%w: the predictor is frozen", ErrModel)
	}
	p.Advance(now)
	if a == nil {
		p.model = nil
		p.replace()
		p.regroup()
		return nil
	}
	m, err := newModel(&p.cfg, a)
	if err != nil {
		return err
	}
	if _, err := p.lengths.Borrow(a.Lengths, borrow, lend); err != nil {
		return fmt.Errorf("%w: %w", ErrModel, err)
	}
	p.model, p.deciles = m, a.Calibration.Deciles
	return p.recall(enough(p.cfg.Level))
}

// place says where a request stands in the calibration, and asks the model.
func (p *Predictor) place(f *Foresight) (at place) {
	x := f.features[:]
	at.version = p.version
	if p.cfg.Groups {
		at.group = conformal.Group{Class: uint16(min(max(0, f.class), math.MaxUint16)), Decile: p.deciles.Of(feature.Load(x))}
	}
	if p.model == nil {
		return at
	}
	m := p.model
	location, ok := m.trees.PredictSupported(x, m.support)
	if !ok || !(math.Abs(location) <= furthest) {
		return at
	}
	at.location = location
	at.supported = true
	return at
}

// each calls f with all rows that have ended, oldest first, and then with all that are open.
func (p *Predictor) each(f func(t *tracked)) {
	for i := range p.past.n {
		f(p.past.at(i))
	}
	for t := p.oldest; t != nil; t = t.later {
		f(t)
	}
}

// scores are the rows of the margins, oldest first, among them those that are overdue: by the physics, on an idle engine, by the model,
// and outside of it.
func (p *Predictor) scores() (physics []conformal.GroupedRow, idle []conformal.Row, own []conformal.GroupedRow, outside []conformal.Row) {
	p.each(func(t *tracked) {
		open := p.open[t.id] == t
		if !t.in || open && !t.overdue {
			return
		}
		by, of := t.score()
		row := conformal.Row{ID: t.id, Score: by}
		if open {
			row.Stage = conformal.Overdue
		}
		physics = append(physics, conformal.GroupedRow{Group: t.group, Row: row})
		if t.Idle {
			idle = append(idle, row)
		}
		if t.supported {
			row.Score = of
			own = append(own, conformal.GroupedRow{Group: t.group, Row: row})
		} else {
			outside = append(outside, row)
		}
	})
	return physics, idle, own, outside
}

// recall makes all that is calibrated anew from the rows that are remembered, with margins that begin where they were while rows are fewer
// than first.
func (p *Predictor) recall(first int) error {
	p.replace()
	p.each(func(t *tracked) { t.typical = t.median(p.lengths) })
	p.residual, p.idleResidual = NewResidual(p.cfg.Window), NewResidual(idleRows)
	m := p.model
	if m != nil {
		m.residual = NewResidual(p.cfg.Window)
	}
	p.each(func(t *tracked) {
		if x := t.residual; !math.IsNaN(x) {
			p.takeResidual(t, x)
		}
	})
	physics, idle, own, outside := p.scores()
	before := p.physics
	var err error
	if p.physics, err = newMargin(&p.cfg, before.start(), p.cfg.Warm, first, physics); err != nil {
		return err
	}
	p.physics.follow(before)
	start, _ := p.idle.Quantile()
	if p.idle, err = newIdle(&p.cfg, start, idle); err != nil {
		return err
	}
	if m == nil {
		return nil
	}
	return m.calibrate(&p.cfg, first, own, outside)
}

// regroup cuts the loads of what is remembered into deciles, unless they are a model's, and makes the groups' margins anew; that of all
// rows stays.
func (p *Predictor) regroup() {
	if p.model != nil {
		return
	}
	var loads []float64
	p.each(func(t *tracked) { loads = append(loads, feature.Load(t.features[:])) })
	deciles, err := conformal.NewDeciles(loads)
	if err != nil {
		return // nothing is remembered
	}
	p.deciles = deciles
	p.replace()
	physics, _, _, _ := p.scores()
	_ = p.physics.groups.Regroup(physics)
}

// replace puts everything that is remembered in its present place.
func (p *Predictor) replace() {
	p.version++
	clear(p.skipped)
	p.each(func(t *tracked) { t.place = p.place(&t.Foresight) })
}
