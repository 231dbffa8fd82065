package batch

import (
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
)

// terms of the step-time model: a constant, and one each for decodes, tokens of prefill and tokens of context.
const terms = 4

// scale brings the terms to like size, for the sake of the arithmetic.
var scale = [terms]float64{1, 1. / 16, 1. / 256, 1. / 4096}

// StepModel learns how long a step takes: a constant + a part for each sequence that decodes, each token of prefill and
// each token of context in it. It is fitted by recursive least squares that forgets (Åström and Wittenmark, Adaptive
// Control, 2nd ed., §2.2), so that it follows an engine whose speed changes. The zero value has seen nothing.
type StepModel struct {
	coefficients [terms]float64 // seconds for each scaled term
	covariance   [terms][terms]float64
	steps        uint64
	// The shortest step so far, and the least time that a token of prefill took; 0: none was seen.
	quickest, quickestToken time.Duration
}

const (
	forgetting = 0.995 // a step's weight halves in 138 steps
	ignorance  = 1e4   // variance of the first guess
	warmSteps  = 8     // before these the model says nothing
)

func features(decodes, prefill, context int) [terms]float64 {
	return [terms]float64{1, float64(decodes) * scale[1], float64(prefill) * scale[2], float64(context) * scale[3]}
}

// Observe adds a step that was executed.
func (m *StepModel) Observe(decodes, prefill, context int, took time.Duration) {
	if took <= 0 {
		return
	}
	if m.steps == 0 {
		for i := range m.covariance {
			m.covariance[i][i] = ignorance
		}
	}
	m.steps++
	if m.quickest == 0 || took < m.quickest {
		m.quickest = took
	}
	if prefill > 0 {
		if each := max(1, took/time.Duration(prefill)); m.quickestToken == 0 || each < m.quickestToken {
			m.quickestToken = each
		}
	}
	x := features(decodes, prefill, context)
	var px [terms]float64
	denominator := forgetting
	for i := range px {
		for j := range x {
			px[i] += m.covariance[i][j] * x[j]
		}
		denominator += x[i] * px[i]
	}
	residual := took.Seconds()
	for i := range x {
		residual -= m.coefficients[i] * x[i]
	}
	for i := range px {
		m.coefficients[i] += px[i] / denominator * residual
	}
	trace := 0.0
	for i := range px {
		for j := range px {
			m.covariance[i][j] -= px[i] * px[j] / denominator
		}
		trace += m.covariance[i][i]
	}
	// Directions that no step excites must not grow without bound.
	if trace < terms*ignorance {
		for i := range m.covariance {
			for j := range m.covariance {
				m.covariance[i][j] /= forgetting
			}
		}
	}
}

// Predict returns how long a step is expected to take, or 0 while too little was seen.
func (m *StepModel) Predict(decodes, prefill, context int) time.Duration {
	if m.steps < warmSteps {
		return 0
	}
	x := features(decodes, prefill, context)
	sum := 0.0
	for i := range x {
		sum += m.coefficients[i] * x[i]
	}
	return max(0, time.Duration(sum*float64(time.Second)))
}

// Chunk returns the most tokens of a sequence that holds so many that are expected to be prefilled within slack, or a large
// number while the model cannot tell.
func (m *StepModel) Chunk(slack time.Duration, held int) int {
	const unknown = 1 << 30
	perToken, perContext := m.slopes()
	if m.steps < warmSteps || perToken+perContext <= 0 {
		return unknown
	}
	left := slack.Seconds() - perContext*float64(held)
	return int(max(0, min(left/(perToken+perContext), unknown)))
}

// ChunkCost returns how much longer a step takes with n tokens of prefill of a sequence that holds so many.
func (m *StepModel) ChunkCost(n, held int) time.Duration {
	if m.steps < warmSteps {
		return 0
	}
	perToken, perContext := m.slopes()
	return time.Duration((perToken*float64(n) + perContext*float64(held+n)) * float64(time.Second))
}

// slopes are the seconds for each token of prefill and of context.
func (m *StepModel) slopes() (perToken, perContext float64) {
	return max(0, m.coefficients[2]*scale[2]), max(0, m.coefficients[3]*scale[3])
}

// Speed returns how fast the engine is at its fastest, as far as was seen: the least of what the model says of one sequence
// alone, which may lie outside of what it was fitted on, and of what a step took. It is not known while too little was seen.
func (m *StepModel) Speed() deadline.Speed {
	if m.steps < warmSteps {
		return deadline.Speed{}
	}
	perToken, _ := m.slopes()
	one := m.coefficients[0] + max(0, min(m.coefficients[1]*scale[1], perToken))
	return deadline.Speed{
		PrefillToken: min(m.quickestToken, time.Duration(perToken*float64(time.Second))),
		Step:         max(0, min(m.quickest, time.Duration(one*float64(time.Second)))),
	}
}
