// Package online predicts with what it learns from every request that ends: how long answers are ([length.Table]), how far
// the simulated engine is off ([Residual]), and margins that bound latencies at a stated level ([conformal.Arm]). It is
// what an ingress runs from a cold start, and what the simulator runs.
//
//	Foresee ──► Foresight ──(admitted)──► Admit ──► … ──► End ──► lengths, residuals, margins
//	   ▲            └─────(refused)─────► forgotten                        │ too many or too few bounds hold
//	   └── Swap: a model of the residual                                   └──► Alarm: what was before is forgotten
//
// With [Predictor.Swap] a trained model says where the residual of a request lies; without one, and where the model has no rows to
// speak of, it lies where it did on average. Either way what is around that location is learned here: a model decides how wide bounds
// are, never whether they hold, since they are calibrated on what it says of the latest rows.
//
// A margin is the quantile of log(latency / predicted latency) at the level, over all rows and for each group of class and load
// (Mondrian) that has rows enough; an idle engine has its own. It begins at the split conformal quantile of the first rows and goes on by
// scale-free gradient descent. What is calibrated for is what the rule admits (see Selection in the theory of conformal prediction under
// covariate shift, Tibshirani et al. 2019): requests that chance let in beside it count only where nothing else comes.
//
// A [Predictor.Frozen] one only does the first half of the picture: it is what a calibration once and for all comes to.
//
// It is pure: time comes in as a duration since any fixed moment. A [Predictor] has one owner.
//
// Invariants: what was admitted and has not ended is remembered, at most Config.Open of them, and the latest rows that have, at most
// Config.Window or what the level needs; each admitted request is scored once, at its end or when its bound has passed, whichever comes
// first; a bound is only given by a predictor that is not [Predictor.Cold], and only such bounds count in [Predictor.Coverage]; all scores
// in a margin are by the present model.
package online
