// Package predictor says how long a request would take if it were admitted now: by simulating the engine forward with its
// profile (physics), correcting that by what a model learned of the residual, and putting a bound on the sum that is
// calibrated to hold at a stated level (conformal prediction).
//
// It is pure: time comes in as durations, what is known of the engines as an [Engine], what is known of a request as a
// [Sequence]. Neither type can reach how the request ended, so that a feature cannot leak it.
//
// The physics is a [Forecast], which one goroutine owns and uses again for each decision:
//
//	Engine, Sequence, Lengths ──Simulate──► Curve t(k), Others with and without ──Outlook──► Outlook
//	                                                        Residual, Margin ──┘
//
// It knows of no later arrivals: what they add is in the residual. Of several workers and of an order of the queue other than
// first come, first served, it knows what the caller makes of them: the share of one worker, and the queue in the order in
// which it will be served.
package predictor
