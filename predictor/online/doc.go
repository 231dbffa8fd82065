// Package online predicts with what it learns from every request that ends: how long answers are ([length.Table]), how far
// the simulated engine is off ([Residual]), and a margin that bounds latencies at a stated level ([conformal.Arm]). It is
// what an ingress runs from a cold start, and what the simulator runs.
//
//	Foresee ──► Foresight ──(admitted)──► Admit ──► … ──► End ──► lengths, residual, margin
//	                └─────(refused)─────► forgotten
//
// One that is [Predictor.Frozen] only does the first half: it is what a calibration once and for all comes to.
//
// It is pure: time comes in as a duration since any fixed moment. A [Predictor] has one owner.
//
// Invariants: what was admitted and has not ended is remembered, nothing else; each admitted request is scored once, at its end
// or when its bound has passed, whichever comes first; a bound is only given by a predictor that is not [Predictor.Cold].
package online
