package predictor

import (
	"errors"

	"github.com/cadence-slo/cadence/predictor/length"
)

// ErrEngine is returned for an engine of which nothing can be predicted: it has no profile.
var ErrEngine = errors.New("predictor: engine has no profile")

// Lengths says how many tokens a sequence of a class still generates, of which done are there and which may have up to limit
// in all. A *length.Table is one. Quantiles are in [1, limit-done].
type Lengths interface {
	Quantile(class, done, limit int32, p float64) float64
	// Spread fills to with the quantiles (i+½)/len(to), ascending.
	Spread(class, done, limit int32, to []float64)
	Remaining(class, done, limit int32, d *length.Dist)
}

// Knot is a point of the curve of a new request's tokens. Between knots it is linear.
type Knot struct {
	Tokens float64 // of the answer, ≥ 1
	At     float64 // when the client has them, ns from now
	Cost   float64 // how much longer the engine has worked by then because of the request, ns
}

// Fate is what becomes of a sequence that was there before, in ns from now until its client has the token, for the length that
// the simulation gave it: without the new request, and with it running to its cap. First is 0 if its first token was there.
type Fate struct {
	First, FirstWith   float64
	Finish, FinishWith float64
}

// Forecast is an engine's future, and room to compute it in: the zero value is ready to be used, and again. It allocates
// only while it grows to the largest engine that it has seen. It has one owner.
type Forecast struct {
	// Curve of the new request, ascending, from its first token to its cap; at least one knot.
	Curve []Knot
	// Others are what becomes of Engine.Running, then of Engine.Waiting.
	Others []Fate
	// Busy is how long the engine will have worked until nothing is left, BusyWith the same with the new request running to its
	// cap, in ns.
	Busy, BusyWith float64

	plan   plan
	run    run // without the new request
	fork   run // with it
	exit   float64
	limit  int // cap of the new request
	others int

	// what Outlook computes with
	lengths length.Dist
	at      [length.Bins + 1]float64
	cost    [length.Bins + 1]float64
	under   [length.Bins + 2]float64 // mean of the costs before the i-th, those from there on being 0
	over    [length.Bins + 2]float64 // probability of the costs from the i-th on
	rest    [spread]float64
	odds    table
}

// First is when the client has the new request's first token, in ns from now.
func (f *Forecast) First() float64 { return f.Curve[0].At }

// At is when the client has so many tokens of the new request, in ns from now. Beyond its cap it is as at the cap.
func (f *Forecast) At(tokens float64) float64 {
	return f.knot(tokens).At
}

// Cost is how much longer the engine works because of a new request that ends after so many tokens, in ns. It counts, step by
// step, what the request adds to the steps that it is in, and all of a step that it is alone in; and if another is preempted that would not
// be without it, from then on all that the engine works more.
func (f *Forecast) Cost(tokens float64) float64 {
	return f.knot(tokens).Cost
}

// knot interpolates the curve.
func (f *Forecast) knot(tokens float64) Knot {
	c := f.Curve
	lo, hi := 0, len(c)-1
	if tokens >= c[hi].Tokens {
		return c[hi]
	}
	for lo < hi {
		if mid := (lo + hi) / 2; c[mid].Tokens < tokens {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return c[0]
	}
	a, b := &c[lo-1], &c[lo]
	x := (tokens - a.Tokens) / (b.Tokens - a.Tokens)
	return Knot{tokens, a.At + x*(b.At-a.At), a.Cost + x*(b.Cost-a.Cost)}
}

// Simulate lets the engine run forward from its present state until everything that it knows of has ended, without the new
// request and with it at the end of the queue, and puts what happens into f. Nothing else arrives meanwhile.
//
// It is a coarse model of batch.Planner: it jumps over runs of steps of equal composition. Each of the others gets one length,
// a quantile of what is left of it, the quantiles being spread evenly over the others; the new request runs to its cap. What
// it does not know: priorities, other than by who is preempted; what prefixes will be evicted or shared from now on; and gaps
// between pages of contiguous allocation. Figures that are out of range are brought into it. It returns ErrEngine.
func (f *Forecast) Simulate(e *Engine, n *Sequence, l Lengths) error {
	if e.Profile == nil {
		return ErrEngine
	}
	f.plan.set(e)
	f.exit = max(0, float64(e.Delay-e.Enter))
	f.others = len(e.Running) + len(e.Waiting)
	f.run.begin(&f.plan, e, n, l)
	f.limit = f.run.jobs[f.others].more
	f.run.forecast(&f.plan, &f.fork)
	f.fork.without = &f.run
	f.fork.forecast(&f.plan, nil)
	f.read()
	return nil
}

// read takes the results out of both runs.
func (f *Forecast) read() {
	if cap(f.Others) < f.others {
		f.Others = make([]Fate, f.others, 2*f.others)
	}
	f.Others = f.Others[:f.others]
	for i := range f.Others {
		a, b, o := &f.run.jobs[i], &f.fork.jobs[i], &f.Others[i]
		*o = Fate{Finish: a.finish + f.exit, FinishWith: b.finish + f.exit}
		if !a.begun {
			o.First, o.FirstWith = a.first+f.exit, b.first+f.exit
		}
	}
	f.Busy, f.BusyWith = f.run.busy, f.fork.busy
	f.Curve = append(f.Curve[:0], f.fork.curve...)
	if len(f.Curve) == 0 { // the state was too odd
		f.Curve = append(f.Curve, Knot{Tokens: 1, At: f.fork.now, Cost: f.fork.busy})
	}
	last := len(f.Curve) - 1
	// What others compute again, and without company, is in no step that the request is in.
	again := max(0, f.BusyWith-f.Busy-f.Curve[last].Cost)
	for i := range f.Curve {
		k := &f.Curve[i]
		k.At += f.exit
		if f.fork.forces && i >= min(f.fork.forced, last) {
			k.Cost += again
		}
		k.Cost = max(k.Cost, 1)
	}
}
