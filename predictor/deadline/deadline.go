package deadline

import (
	"math"
	"time"
)

// Speed is how fast an engine is at its fastest. A zero field is not known, and takes no time.
type Speed struct {
	// PrefillToken is what one more token of prefill adds to a step, ≥ 0; 0 also where a prompt may turn out to be cached.
	PrefillToken time.Duration
	// Step is the shortest step that makes a token, ≥ 0.
	Step time.Duration
}

// Left is what is left of a request's objectives: 0 is none, negative is late already.
type Left struct {
	E2E  time.Duration
	TTFT time.Duration // 0 also once the first token came in time
}

// Of reads the speed off a cost model: how long a step takes with so many tokens of prefill and sequences that decode, which
// hold context tokens.
func Of(step func(prefill, decodes, context int) time.Duration) Speed {
	const chunk = 256
	return Speed{PrefillToken: max(0, (step(1+chunk, 0, 0)-step(1, 0, 0))/chunk), Step: max(0, min(step(0, 1, 1), step(1, 0, 1)))}
}

// Least returns the time that a request takes at least: prefill tokens to compute first, ≥ 0, and then so many to be generated,
// ≥ 1, of which the first comes with the last of the prefill.
func (s Speed) Least(prefill, tokens int) time.Duration {
	first := max(float64(s.Step), float64(max(prefill, 0))*float64(s.PrefillToken))
	ns := first + float64(max(tokens, 1)-1)*float64(s.Step)
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// Doomed reports whether a request with so much left to do, as Least has it, cannot meet its objectives any more. Where
// there is one for the whole answer, that alone counts: a first token that came too late dooms only who asked for nothing else.
func (s Speed) Doomed(l Left, prefill, tokens int) bool {
	switch {
	case l.E2E < 0:
		return true
	case l.E2E > 0:
		return l.E2E < s.Least(prefill, tokens)
	case l.TTFT < 0:
		return true
	case l.TTFT > 0:
		return l.TTFT < s.Least(prefill, 1)
	}
	return false
}

// Min returns the faster of two in each respect: not known, where either is not.
func (s Speed) Min(o Speed) Speed {
	return Speed{PrefillToken: min(s.PrefillToken, o.PrefillToken), Step: min(s.Step, o.Step)}
}
