package online

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/length"
)

// ErrConfig is returned for constants that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("online: invalid configuration")

// Config are the constants of a Predictor.
type Config struct {
	// Classes of output lengths, ≥ 1: predictor.Sequence.Lengths is below it.
	Classes int
	// HalfLife is after how many answers of its class an answer weighs half; 0: never.
	HalfLife float64
	// Window is how many residuals make the distribution, ≥ 1.
	Window int
	// Level of the bounds, in (0, 1).
	Level float64
	// Start is the margin that calibration begins with: the logarithm of bound by prediction, ≥ 0.
	Start float64
	// Warm is how many must have ended before a bound is given, ≥ 0.
	Warm int
}

// DefaultConfig returns the constants for bounds at a level.
func DefaultConfig(level float64) Config {
	return Config{Classes: 1, HalfLife: 2000, Window: 512, Level: level, Start: 1, Warm: conformal.MinRows(1 - level)}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *Config) Validate() error {
	bad := func(key string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, key, value, allowed)
	}
	switch {
	case c.Classes < 1 || c.Classes > 1<<16:
		return bad("classes", c.Classes, "1 to 65536")
	case !(c.HalfLife >= 0) || math.IsInf(c.HalfLife, 0):
		return bad("half_life", c.HalfLife, "0 (never) and more")
	case c.Window < 1 || c.Window > 1<<20:
		return bad("window", c.Window, "1 to 1048576")
	case !(c.Level >= 1e-6 && c.Level <= 1-1e-6):
		return bad("level", c.Level, "between 0 and 1")
	case !(c.Start >= 0 && c.Start <= 10):
		return bad("start", c.Start, "0 to 10")
	case c.Warm < 0:
		return bad("warm", c.Warm, "0 and more")
	}
	return nil
}

// Foresight is what was said of a request, as far as its end is compared with it. It can be used again.
type Foresight struct {
	predictor.Outlook
	curve    []predictor.Knot
	age      time.Duration // when it was said
	typical  float64       // latency at the median length, ns
	class    int32
	residual float64 // the median of the residuals, at that time
}

// How says how a request ended.
type How uint8

const (
	// Completed: the client has all of the answer.
	Completed How = iota
	// Dropped: we ended it, for a limit or a failure, which no bound would have covered.
	Dropped
	// Left: the client went before the end.
	Left
)

// Ending is how a request ended.
type Ending struct {
	How    How
	E2E    time.Duration // from its arrival
	Tokens int32         // of the answer
	Cut    bool          // its cap ended the answer
}

// Predictor is what was learned so far.
type Predictor struct {
	cfg      Config
	lengths  *length.Table
	residual *Residual
	margin   conformal.Arm
	queue    *conformal.Queue
	forecast predictor.Forecast
	open     map[uint64]*tracked
	pool     []*tracked
	due      []conformal.Resolution // scratch
	coverage conformal.Coverage
	ended    int  // completed
	frozen   bool // nothing is learned any more
}

// tracked is a request that was admitted and has not ended.
type tracked struct {
	Foresight
	ticket conformal.Ticket
}

// New returns a predictor that has seen nothing, or ErrConfig.
func New(cfg Config) (*Predictor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	alpha := 1 - cfg.Level
	margin, err := conformal.NewSFOGD(alpha, cfg.Start, conformal.DefaultSFOGD(alpha), max(cfg.Window, conformal.MinRows(alpha)), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return &Predictor{cfg: cfg, lengths: length.New(cfg.Classes, cfg.HalfLife), residual: NewResidual(cfg.Window), margin: margin,
		queue: conformal.NewQueue(conformal.Ratio), open: map[uint64]*tracked{}}, nil
}

// Cold reports whether too little was seen for a bound.
func (p *Predictor) Cold() bool { return p.ended < p.cfg.Warm }

// Coverage is how many bounds held, of all that were given.
func (p *Predictor) Coverage() conformal.Coverage { return p.coverage }

// Lengths are the output lengths learned so far; lent.
func (p *Predictor) Lengths() *length.Table { return p.lengths }

// Foresee says what is expected of s if e admits it now, in f. The error is predictor.ErrEngine.
func (p *Predictor) Foresee(e *predictor.Engine, s *predictor.Sequence, f *Foresight) error {
	if err := p.forecast.Simulate(e, s, p.lengths); err != nil {
		return err
	}
	margin := predictor.Margin{Upper: math.NaN(), UpperIdle: math.NaN()}
	if q, ok := p.margin.Quantile(); ok && !p.Cold() {
		margin = predictor.Margin{Upper: q, UpperIdle: q, Level: p.cfg.Level}
	}
	f.Outlook = p.forecast.Outlook(e, s, p.lengths, p.residual, margin)
	f.curve = append(f.curve[:0], p.forecast.Curve...)
	f.age, f.class, f.residual = s.Age, s.Lengths, p.residual.Quantile(0.5)
	f.typical = float64(f.Predicted-s.Age) / math.Exp(f.residual)
	return nil
}

// Admit remembers a request that was admitted on f's word, until its End. weight is 1/propensity, ≥ 1. An id that is known
// changes nothing.
func (p *Predictor) Admit(id uint64, f *Foresight, weight float64, now time.Duration) {
	p.Advance(now)
	if p.open[id] != nil {
		return
	}
	t := &tracked{}
	if n := len(p.pool); n > 0 {
		t, p.pool = p.pool[n-1], p.pool[:n-1]
	}
	curve := t.curve[:0]
	curve = append(curve, f.curve...)
	t.Foresight = *f
	t.curve = curve
	bound := f.Bound - f.age
	if f.Bound <= 0 { // none was claimed; what calibration begins with is judged all the same
		q, _ := p.margin.Quantile()
		bound = time.Duration(math.Exp(q) * f.typical)
	}
	// The score is of what is still to come, so that a request which has waited already is no special case.
	t.ticket, _ = p.queue.Issue(conformal.Issue{ID: id, Weight: weight, Bound: max(1, bound), Pred: max(1e-9, f.typical/1e9)}, now)
	p.open[id] = t
}

// End learns from how a request ended. An id that is not known changes nothing.
func (p *Predictor) End(id uint64, e Ending, now time.Duration) {
	p.Advance(now)
	t := p.open[id]
	if t == nil {
		return
	}
	delete(p.open, id)
	p.pool = append(p.pool, t)
	var r conformal.Resolution
	var err error
	switch e.How {
	case Completed:
		p.ended++
		if !p.frozen {
			p.lengths.Observe(t.class, e.Tokens, e.Cut)
			p.residual.Observe(math.Log(float64(max(1, e.E2E-t.age)) / t.at(float64(e.Tokens))))
		}
		r, err = p.queue.Complete(t.ticket, now)
	case Dropped:
		r, err = p.queue.Cancel(t.ticket, now)
	default:
		r, err = p.queue.Leave(t.ticket, now)
	}
	if err == nil {
		p.learn(&r)
	}
}

// Advance learns from the bounds that have passed.
func (p *Predictor) Advance(now time.Duration) {
	p.due = p.queue.Advance(p.due[:0], now)
	for i := range p.due {
		p.learn(&p.due[i])
	}
}

// learn gives the margin a row. Scores are finite or +Inf, so that it takes all of them.
func (p *Predictor) learn(r *conformal.Resolution) {
	p.coverage.Add(r.Verdict)
	if !p.frozen {
		_ = p.margin.Observe(r.Row)
	}
}

// at is when the simulation had so many tokens, in ns from when it was asked.
func (f *Foresight) at(tokens float64) float64 {
	i, found := slices.BinarySearchFunc(f.curve, tokens, func(k predictor.Knot, tokens float64) int {
		return cmp.Compare(k.Tokens, tokens)
	})
	switch {
	case found || i == 0:
		return max(1, f.curve[i].At)
	case i == len(f.curve):
		return max(1, f.curve[i-1].At)
	}
	a, b := &f.curve[i-1], &f.curve[i]
	return max(1, a.At+(tokens-a.Tokens)/(b.Tokens-a.Tokens)*(b.At-a.At))
}
