package feature

import (
	"math"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/worker/batch"
)

// Places of the features in a vector.
const (
	PromptTokens = iota
	CachedTokens
	PrefillTokens
	CapTokens
	MedianTokens
	Running
	Waiting
	BacklogDecode
	BacklogPrefill
	Held
	Free
	StepLeft
	Slow
	Busy
	First
	Typical
	Pace
	// Count is how many there are.
	Count
)

// Info describes a feature.
type Info struct {
	Name string `json:"name"`
	Unit string `json:"unit"` // "1" has no dimension
	// Sign is +1 if more of it alone can only take longer, −1 if it can only take shorter, 0 if neither is sure.
	Sign int8 `json:"sign"`
}

var table = [Count]Info{
	PromptTokens:   {"prompt_tokens", "tokens", +1},
	CachedTokens:   {"cached_tokens", "tokens", 0},        // of the prompt, in the prefix cache
	PrefillTokens:  {"prefill_tokens", "tokens", +1},      // of the prompt, to be computed
	CapTokens:      {"cap_tokens", "tokens", +1},          // the most that it may generate
	MedianTokens:   {"median_tokens", "tokens", 0},        // expected of the answer
	Running:        {"running_ratio", "1", +1},            // by slots
	Waiting:        {"waiting_ratio", "1", +1},            // by slots
	BacklogDecode:  {"backlog_decode_steps", "steps", +1}, // tokens that all others may still generate, by slots
	BacklogPrefill: {"backlog_prefill_steps", "steps", +1},
	Held:           {"held_ratio", "1", +1}, // tokens in the context of those that run, by the KV cache
	Free:           {"free_ratio", "1", -1}, // KV pages that can be had, by all
	StepLeft:       {"step_left_steps", "steps", +1},
	Slow:           {"slow_ratio", "1", 0},           // steps lately, by the profile
	Busy:           {"busy_steps", "steps", 0},       // simulated work of all others
	First:          {"log_first_steps", "1", 0},      // logarithm of the simulated TTFT in steps
	Typical:        {"log_typical_steps", "1", 0},    // logarithm of the simulated E2E at the median length in steps
	Pace:           {"pace_steps", "steps/token", 0}, // simulated, of the new request's decoding
}

// Table returns all features, in order; a copy.
func Table() []Info {
	t := table
	return t[:]
}

// Signs returns the signs in the order of Table, as gbm.Params.Monotone takes them; a copy.
func Signs() []int8 {
	s := make([]int8, Count)
	for i := range table {
		s[i] = table[i].Sign
	}
	return s
}

// Append appends the Count features of s to dst: e, s and l are what f.Simulate was called with. All are finite; where a state is odd,
// such as a plan without slots, a feature is at an end of its range. It changes none of its arguments but dst, and allocates only if
// dst has no room.
func Append(dst []float32, e *predictor.Engine, s *predictor.Sequence, l predictor.Lengths, f *predictor.Forecast) []float32 {
	plan := &e.Plan
	slots := plan.MaxBatch
	if plan.Mode == batch.FIFO {
		slots = 1
	}
	decode, prefill, held := 0.0, 0.0, 0.0
	for i := range e.Running {
		r := &e.Running[i]
		decode += float64(max(0, r.CapTokens-r.OutputTokens))
		prefill += float64(r.PrefillTokens)
		held += float64(r.PromptTokens) + float64(r.OutputTokens) - float64(r.PrefillTokens)
	}
	for i := range e.Waiting {
		r := &e.Waiting[i]
		decode += float64(max(0, r.CapTokens-r.OutputTokens))
		prefill += float64(r.PrefillTokens)
	}
	step := 1.0 // ns
	if e.Profile != nil {
		step = max(1, float64(e.Profile.Step(0, 1, 1)))
	}
	slow := e.Slow
	if slow == 0 {
		slow = 1
	}
	limit, first, typical, median, pace := s.CapTokens, 0.0, 0.0, 0.0, 0.0
	if n := len(f.Curve); n > 0 {
		last := &f.Curve[n-1]
		limit = int32(last.Tokens)
		median = l.Quantile(s.Lengths, 0, limit, 0.5)
		first, typical = f.First(), f.At(median)
		pace = by(last.At-first, (last.Tokens-1)*step)
	}
	var x [Count]float64
	x[PromptTokens] = float64(s.PromptTokens)
	x[CachedTokens] = float64(s.PromptTokens) - float64(s.PrefillTokens)
	x[PrefillTokens] = float64(s.PrefillTokens)
	x[CapTokens] = float64(limit)
	x[MedianTokens] = median
	x[Running] = by(float64(len(e.Running)), float64(slots))
	x[Waiting] = by(float64(len(e.Waiting)), float64(slots))
	x[BacklogDecode] = by(decode, float64(slots))
	x[BacklogPrefill] = by(prefill, float64(plan.BatchTokens))
	x[Held] = by(held, float64(plan.KVPages)*float64(plan.PageTokens))
	x[Free] = by(float64(e.FreePages), float64(plan.KVPages))
	x[StepLeft] = float64(e.StepLeft) / step
	x[Slow] = slow
	x[Busy] = f.Busy / step
	x[First] = math.Log(max(first/step, 1e-9))
	x[Typical] = math.Log(max(typical/step, 1e-9))
	x[Pace] = pace
	for _, v := range x {
		dst = append(dst, narrow(v))
	}
	return dst
}

// Load is how much was on the engine at the arrival that x is of: how many run or wait for each slot. Groups of load are cut by it.
func Load(x []float32) float64 { return float64(x[Running]) + float64(x[Waiting]) }

// by is a/b of figures that are not below 0.
func by(a, b float64) float64 {
	if !(b > 0) || !(a > 0) {
		return 0
	}
	return a / b
}

// narrow keeps what is odd finite.
func narrow(v float64) float32 {
	if math.IsNaN(v) {
		return 0
	}
	return float32(min(max(v, -math.MaxFloat32), math.MaxFloat32))
}
