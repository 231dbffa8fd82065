// Package predictor says how long a request would take if it were admitted now: by simulating the engine forward with its
// profile (physics), correcting that by what a model learned of the residual, and putting a bound on the sum that is
// calibrated to hold at a stated level (conformal prediction).
//
// It is pure: time comes in as durations, what is known of the engines as an [Engine], what is known of the request as a
// [Request]. Neither type can reach how the request ended, so that a feature cannot leak it.
package predictor
