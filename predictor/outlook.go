package predictor

import "time"

// Outlook is what is expected of admitting a request now. Durations are from its arrival at the ingress.
type Outlook struct {
	// Predicted is the median of its E2E, First of its TTFT.
	Predicted, First time.Duration
	// Meet is the probability that it meets its objectives, in [0, 1]; MeetIdle the same if the engine were idle. Both are 1
	// for a request without objectives.
	Meet, MeetIdle float64
	// Harm is how much of such probability the requests that were admitted before lose together by its admission, ≥ 0.
	Harm float64
	// Cost is the engine's time that its admission adds, given what is there now, > 0. Share is its part of the time of an engine
	// that is full: what its prefill adds, and its part of every step that it decodes in, > 0; together, the Shares of what a
	// saturated engine does are its time.
	Cost, Share time.Duration
	// Bound holds for its E2E with probability Level, in (0, 1); BoundIdle is the bound on an idle engine. 0: there is no bound at
	// that level.
	Bound, BoundIdle time.Duration
	Level            float64
	// Breaks tells that its admission would move the bound of a guaranteed request beyond its objective.
	Breaks bool
	// Drain is when a request like it would find the engine free enough to meet its objectives, from now; 0: it does now.
	Drain time.Duration
	// Idle tells that nothing runs or waits.
	Idle bool
}
