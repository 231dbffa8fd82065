package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sajari/regression"
)

// Sample is one request that has ended, for FitThroughput: what was known when it arrived, and its latency.
type Sample struct {
	PrefillTokens float64 // of its prompt, less what was cached
	CapTokens     float64
	QueuedTokens  float64 // Load.Tokens
	E2E           time.Duration
}

// Throughput is what anyone would write without a model: latency is what is to be computed by the rates at which the engine does
// so, three of them, and a constant. The gate compares it, times a margin, with the budget.
type Throughput struct {
	Base time.Duration
	// Prefill, Cap and Queued are seconds for each token, of the request's own prompt and cap and of all that was admitted before.
	Prefill, Cap, Queued float64
	Margin               float64 // > 0
	Retry                Retry

	refuse bool
}

// Arithmetic returns the arm for an engine of which one overall rate is known, in tokens a second, > 0: nothing is fitted.
func Arithmetic(tokensPerSecond float64) Throughput {
	r := 1 / tokensPerSecond
	return Throughput{Prefill: r, Cap: r, Queued: r, Margin: 1, Retry: DefaultRetry()}
}

// least is the shortest latency that is predicted.
const least = time.Millisecond

// FitThroughput fits the rates by least squares, and the margin so that the bound holds at a level, in (0, 1). Samples are in the
// order of time: the first three quarters fit, the last one calibrates (the conformal quantile of latency / prediction). It returns
// ErrFit if they are too few or all alike.
func FitThroughput(samples []Sample, level float64) (Throughput, error) {
	const most = 1500 // the library's memory grows with the square
	n := len(samples) * 3 / 4
	r := new(regression.Regression)
	for stride, i := max(1, (n+most-1)/most), 0; i < n; i += stride {
		s := &samples[i]
		r.Train(regression.DataPoint(s.E2E.Seconds(), []float64{s.PrefillTokens, s.CapTokens, s.QueuedTokens}))
	}
	if err := r.Run(); err != nil {
		return Throughput{}, fmt.Errorf("%w: %w", ErrFit, err)
	}
	c := r.GetCoeffs()
	for _, v := range c {
		if math.IsNaN(v) || math.Abs(v) > 1e6 {
			return Throughput{}, fmt.Errorf("%w: the samples do not tell the rates apart", ErrFit)
		}
	}
	a := Throughput{Base: time.Duration(c[0] * float64(time.Second)), Prefill: c[1], Cap: c[2], Queued: c[3], Retry: DefaultRetry()}
	ratios := make([]float64, 0, len(samples)-n)
	for _, s := range samples[n:] {
		ratios = append(ratios, float64(s.E2E)/a.predict(s.PrefillTokens, s.CapTokens, s.QueuedTokens))
	}
	var err error
	if a.Margin, err = conformal(ratios, level); err != nil {
		return Throughput{}, err
	}
	if err := a.Validate(); err != nil {
		return Throughput{}, fmt.Errorf("%w: %w", ErrFit, err)
	}
	return a, nil
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (a *Throughput) Validate() error {
	const most = 1e6
	for _, k := range []struct {
		key string
		v   float64
	}{{"base", a.Base.Seconds()}, {"prefill", a.Prefill}, {"cap", a.Cap}, {"queued", a.Queued}} {
		if !within(k.v, -most, most) {
			return bad("throughput."+k.key, k.v, "finite")
		}
	}
	if !within(a.Margin, 1e-6, most) {
		return bad("throughput.margin", a.Margin, "1e-6 to 1e6")
	}
	return a.Retry.Validate()
}

// Name returns "throughput".
func (a *Throughput) Name() string { return "throughput" }

// Decide compares the predicted latency with the budget.
func (a *Throughput) Decide(in *Input, rng *rand.Rand) Decision {
	r := &in.Request
	if r.E2E <= 0 {
		return verdict(true, Open, in, nil, rng)
	}
	ns := a.predict(float64(r.PromptTokens-r.CachedTokens), float64(r.CapTokens), float64(in.Load.Tokens))
	return fits(true, float64(a.Margin*ns), 1, 1, &a.refuse, in, &a.Retry, rng)
}

// predict returns the latency in ns, of least and more. Fitted rates may be below 0, a latency may not.
func (a *Throughput) predict(prefill, limit, queued float64) float64 {
	s := float64(a.Prefill*prefill) + float64(a.Cap*limit) + float64(a.Queued*queued)
	return max(float64(least), float64(a.Base)+float64(s*float64(time.Second)))
}
