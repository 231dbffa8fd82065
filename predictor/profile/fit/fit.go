package fit

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/sajari/regression"
)

// ErrFit is returned for steps that no profile can be made of.
var ErrFit = errors.New("fit: no profile can be made of the steps")

const (
	heldOutPart = 5    // one in so many steps is held out
	most        = 1500 // points that one regression takes, half of them steps, half their mirror images: its memory grows with their square
	trimmings   = 10   // how often what is disturbed is told anew, at most
	disturbed   = 6    // a step is disturbed if its error is so many times the median distance from the median error
)

// Step is one step of an engine: what was in it, and how long the engine took.
type Step struct {
	Prefill int           `json:"prefill_tokens"`
	Decodes int           `json:"decodes"`
	Context int           `json:"context_tokens"` // held by the step's sequences after it
	Took    time.Duration `json:"took_ns"`
}

// Kind is what a step is made of: prefill, decode or mixed.
func (s *Step) Kind() string {
	switch {
	case s.Decodes == 0:
		return "prefill"
	case s.Prefill == 0:
		return "decode"
	default:
		return "mixed"
	}
}

// Fitted is what steps came to.
type Fitted struct {
	Cost profile.Cost `json:"step"`
	Fit  profile.Fit  `json:"fit"`
	// Disturbed steps were left out of the regression, since they took far longer or shorter than all like them: the
	// machine did something else. They count in the errors if they are held out.
	Disturbed int        `json:"disturbed"`
	Kinds     []Residual `json:"kinds"`
}

// Residual is the error on held-out steps of one kind: predicted / measured - 1.
type Residual struct {
	Kind     string        `json:"kind"`
	Steps    int           `json:"steps"`
	Median   time.Duration `json:"median_step_ns"`
	ErrorP50 float64       `json:"error_p50"` // of its size
	ErrorP95 float64       `json:"error_p95"`
	Bias     float64       `json:"error_median"` // signed
}

// Cost finds the cost of a step by least squares: first of those that only decode, by batch (in batches, ascending from 1)
// and context, then of prefill in those that have any. A fifth of the steps, drawn with seed, is held out to tell the errors.
// It returns ErrFit for too few steps, or of too few kinds.
func Cost(steps []Step, batches []int, seed uint64) (*Fitted, error) {
	rng := rand.New(rand.NewPCG(seed, 0x686f6c64))
	var train, held []Step
	for n, i := range rng.Perm(len(steps)) {
		if n%heldOutPart == 0 {
			held = append(held, steps[i])
		} else {
			train = append(train, steps[i])
		}
	}
	return cost(train, held, batches)
}

// Few is Cost where every step is needed: none is held out, so that the errors are those on the steps that were fitted.
func Few(steps []Step, batches []int) (*Fitted, error) {
	f, err := cost(steps, steps, batches)
	if f != nil {
		f.Fit.HeldOut = 0
	}
	return f, err
}

// cost fits some steps and judges by others. Those that took no time are none.
func cost(train, held []Step, batches []int) (*Fitted, error) {
	timed := func(all []Step) (out []Step) {
		for _, s := range all {
			if s.Took > 0 {
				out = append(out, s)
			}
		}
		return out
	}
	train, held = timed(train), timed(held)
	out := &Fitted{}
	// Least squares believe whatever is far off. So first only the quickest of like steps, then all that are near what those say.
	var err error
	if out.Cost, err = solve(quickest(train), batches, nil); err != nil {
		if out.Cost, err = solve(train, batches, nil); err != nil {
			return nil, err
		}
	}
	var calm []Step
	for range trimmings {
		before := len(calm)
		calm = undisturbed(train, &out.Cost)
		if out.Cost, err = solve(calm, batches, &out.Cost); err != nil {
			return nil, err
		}
		if len(calm) == before {
			break
		}
	}
	out.Disturbed = len(train) - len(calm)
	out.Fit = profile.Fit{Steps: taken(calm), HeldOut: len(held), R2: determination(calm, &out.Cost)}
	errs := relative(held, &out.Cost)
	out.Fit.ErrorP50, out.Fit.ErrorP95 = Quantile(sizes(errs), 0.5), Quantile(sizes(errs), 0.95)
	for _, e := range errs {
		out.Fit.MeanBias += e / float64(len(errs))
	}
	for _, kind := range []string{"prefill", "decode", "mixed"} {
		var own []Step
		var took []float64
		for _, s := range held {
			if s.Kind() == kind {
				own, took = append(own, s), append(took, float64(s.Took))
			}
		}
		if e := relative(own, &out.Cost); len(e) > 0 {
			out.Kinds = append(out.Kinds, Residual{kind, len(own), time.Duration(Quantile(took, 0.5)), Quantile(sizes(e), 0.5), Quantile(sizes(e), 0.95), Quantile(e, 0.5)})
		}
	}
	return out, nil
}

// solve is the regression itself: the errors that it makes least are those in proportion to what before says that a step
// takes; nil: to what it took.
func solve(steps []Step, batches []int, before *profile.Cost) (c profile.Cost, err error) {
	weight := func(s *Step) float64 {
		if before != nil {
			p := profile.Profile{Cost: *before}
			if said := p.Step(s.Prefill, s.Decodes, s.Context); said > s.Took/8 {
				return 1 / float64(said)
			}
		}
		return 1 / float64(s.Took)
	}
	var decode, prefill []Step
	for _, s := range steps {
		if s.Prefill == 0 {
			decode = append(decode, s)
		} else {
			prefill = append(prefill, s)
		}
	}
	var seen []int // batches at or beyond which something was measured
	largest := 0
	for _, s := range decode {
		largest = max(largest, s.Decodes)
	}
	for _, b := range batches {
		if b <= largest {
			seen = append(seen, b)
		}
	}
	if len(seen) == 0 {
		return c, fmt.Errorf("%w: no step only decodes", ErrFit)
	}
	// Steps that decode: a constant, a hat around each batch but the first, and the context.
	x := func(s *Step, context bool) []float64 {
		v := hats(seen, s.Decodes)[1:]
		if context {
			v = append(v, float64(s.Context))
		}
		return v
	}
	total := make([]float64, len(seen))
	for context := true; ; context = false {
		k, err := least(decode, weight, func(s *Step) ([]float64, float64) { return x(s, context), float64(s.Took) })
		if err != nil {
			return c, err
		}
		for i := range total {
			total[i] = k[0]
			if i > 0 {
				total[i] += k[i]
			}
		}
		if !context {
			break
		}
		if c.ContextToken = k[len(seen)]; c.ContextToken >= 0 {
			break
		}
		c.ContextToken = 0 // lost in the noise
	}
	for i := range total { // more never takes less
		total[i] = max(0, total[i])
		if i > 0 {
			total[i] = max(total[i], total[i-1])
		}
	}
	// Steps with prefill: what is left after those that decode beside it. Alone, it also pays what every step costs.
	k, err := least(prefill, weight, func(s *Step) ([]float64, float64) {
		alone := 0.0
		if s.Decodes == 0 {
			alone = 1
		}
		rest := float64(s.Took) - c.ContextToken*float64(s.Context)
		for i, h := range hats(seen, s.Decodes) {
			rest -= h * total[i]
		}
		return []float64{float64(s.Prefill), alone}, rest
	})
	if err != nil {
		return c, err
	}
	if c.PrefillToken = k[1]; c.PrefillToken <= 0 {
		return c, fmt.Errorf("%w: prefill takes %.0f ns for each token: it is lost in the noise", ErrFit, k[1])
	}
	c.Base = min(max(0, k[2]), total[0])
	c.Prefill = max(-c.Base, k[0])
	for i, b := range seen {
		c.Decode = append(c.Decode, profile.Point{Batch: b, Time: total[i] - c.Base})
	}
	return c, nil
}

// taken is how many of the steps solve takes.
func taken(steps []Step) int {
	prefill := 0
	for i := range steps {
		if steps[i].Prefill > 0 {
			prefill++
		}
	}
	return min(prefill, most/2) + min(len(steps)-prefill, most/2)
}

// hats are the weights, len = len(at), with which values at ascending places make the value at n by linear interpolation;
// beyond the last the two last go on. They are all 0 for n = 0.
func hats(at []int, n int) []float64 {
	w := make([]float64, len(at))
	switch {
	case n <= 0:
	case n <= at[0] || len(at) == 1:
		w[0] = 1
	default:
		i := 1
		for i < len(at)-1 && at[i] < n {
			i++
		}
		f := float64(n-at[i-1]) / float64(at[i]-at[i-1])
		w[i-1], w[i] = 1-f, f
	}
	return w
}

// least returns the coefficients of a weighted linear regression, the constant first. A variable that never changes gets 0.
func least(steps []Step, weight func(*Step) float64, point func(*Step) (x []float64, y float64)) ([]float64, error) {
	if len(steps) == 0 {
		return nil, fmt.Errorf("%w: no step has prefill, or none has not", ErrFit)
	}
	var xs [][]float64
	var ys, ws []float64
	for i := range steps[:min(len(steps), most/2)] { // they come in a random order
		x, y := point(&steps[i])
		xs, ys, ws = append(xs, append([]float64{1}, x...)), append(ys, y), append(ws, weight(&steps[i]))
	}
	vary := []int{0} // the constant is a variable: its weights are not equal
	for v := 1; v < len(xs[0]); v++ {
		if slices.ContainsFunc(xs, func(x []float64) bool { return x[v] != xs[0][v] }) {
			vary = append(vary, v)
		}
	}
	// Each step comes with its mirror image, so that the regression's own constant is 0.
	r := new(regression.Regression)
	for i, x := range xs {
		own, mirror := make([]float64, len(vary)), make([]float64, len(vary))
		for k, v := range vary {
			own[k], mirror[k] = ws[i]*x[v], -ws[i]*x[v]
		}
		r.Train(regression.DataPoint(ws[i]*ys[i], own), regression.DataPoint(-ws[i]*ys[i], mirror))
	}
	if err := r.Run(); err != nil {
		return nil, fmt.Errorf("%w: %d steps: %w", ErrFit, len(steps), err)
	}
	out := make([]float64, len(xs[0]))
	for k, v := range vary {
		out[v] = r.Coeff(k + 1)
	}
	for _, c := range out {
		if math.IsNaN(c) || math.IsInf(c, 0) {
			return nil, fmt.Errorf("%w: %d steps do not tell batch, prefill and context apart", ErrFit, len(steps))
		}
	}
	return out, nil
}

// quickest returns the steps that are not much slower than the first quarter of their like: equal but for the context, which
// differs by less than a factor of two. Steps with fewer than three others like them are left out: most of the mixed ones.
func quickest(steps []Step) []Step {
	type kind struct{ prefill, decodes, context int }
	like := map[kind][]float64{}
	key := func(s *Step) kind { return kind{s.Prefill, s.Decodes, bits.Len(uint(s.Context))} }
	for i := range steps {
		k := key(&steps[i])
		like[k] = append(like[k], float64(steps[i].Took))
	}
	limit := map[kind]float64{}
	for k, took := range like {
		if len(took) >= 4 {
			limit[k] = 1.3 * Quantile(took, 0.25)
		}
	}
	var out []Step
	for i := range steps {
		if float64(steps[i].Took) <= limit[key(&steps[i])] {
			out = append(out, steps[i])
		}
	}
	return out
}

// undisturbed leaves out what is far off, as a ratio, from what is usual among steps of its kind.
func undisturbed(steps []Step, c *profile.Cost) []Step {
	errs := relative(steps, c)
	off := map[string][]float64{}
	for i := range errs {
		errs[i] = math.Log1p(max(errs[i], -0.999)) // as far off where it is too much as where it is too little
		off[steps[i].Kind()] = append(off[steps[i].Kind()], errs[i])
	}
	middle, limit := map[string]float64{}, map[string]float64{}
	for kind, e := range off {
		middle[kind] = Quantile(e, 0.5)
		spread := make([]float64, len(e))
		for i := range e {
			spread[i] = math.Abs(e[i] - middle[kind])
		}
		limit[kind] = disturbed * max(Quantile(spread, 0.5), 0.005)
	}
	var out []Step
	for i := range steps {
		if kind := steps[i].Kind(); math.Abs(errs[i]-middle[kind]) <= limit[kind] {
			out = append(out, steps[i])
		}
	}
	return out
}

// relative are the errors: predicted / measured - 1.
func relative(steps []Step, c *profile.Cost) []float64 {
	p := profile.Profile{Cost: *c}
	out := make([]float64, len(steps))
	for i, s := range steps {
		out[i] = float64(p.Step(s.Prefill, s.Decodes, s.Context))/float64(s.Took) - 1
	}
	return out
}

// determination is R²: the part of the variance that the cost explains.
func determination(steps []Step, c *profile.Cost) float64 {
	p := profile.Profile{Cost: *c}
	mean, left, all := 0.0, 0.0, 0.0
	for _, s := range steps {
		mean += float64(s.Took) / float64(len(steps))
	}
	for _, s := range steps {
		d := float64(s.Took - p.Step(s.Prefill, s.Decodes, s.Context))
		left += d * d
		all += (float64(s.Took) - mean) * (float64(s.Took) - mean)
	}
	if all == 0 {
		return 0
	}
	return 1 - left/all
}

func sizes(v []float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = math.Abs(v[i])
	}
	return out
}

// Quantile returns the q-quantile by nearest rank, 0 of nothing.
func Quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return s[min(len(s)-1, max(0, int(math.Ceil(q*float64(len(s))))-1))]
}
