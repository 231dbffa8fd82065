// Package profile says how fast an engine is: how long one step takes for what is in it, and what bounds a step. The
// simulator and the mock take their time from a profile, the predictor simulates an engine forward with one, and
// `cadence calibrate` measures one. It is pure; a Profile does not change once it is used, and is then safe for concurrent
// use.
//
// A step takes
//
//	base + (any prefill: prefill) + prefill_token × tokens of prefill + decode(sequences that decode) + context_token × tokens held
//
// where decode is linear between measured batch sizes and goes on beyond the last along the last two. What an engine does
// besides (attention of a prefill over what lies before it, cells that were freed but are still spanned) is not told apart:
// the error that is left stands in Fit.
package profile
