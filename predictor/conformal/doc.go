// Package conformal turns predictions of latency into one-sided bounds that hold at a stated level: P(y ≤ U) ≥ 1−α, marginally
// or per group, never per request.
//
// A [Score] says by how much a row was slower than predicted; a bound is the prediction moved by a quantile of scores. The
// quantile comes from [Split] (exchangeable rows, exact in finite samples), [Weighted] (rows observed with known propensity),
// [Mondrian] (per group), or from an online [Arm] that follows a shift: [Rolling], [ACI], [DtACI], [SFOGD], each per group with
// [Groups]. Where the data cannot carry a level the answer is "no bound at this level", never a guess.
//
// What becomes of issued bounds comes late: [Queue] holds them and says of each exactly once whether it was a hit, a miss or
// censored, a miss as soon as the bound has passed. [Coverage] and [Tally] count that, with intervals; [CUSUM] raises an alarm when
// coverage leaves its level.
//
//	issue ──► Queue ──► Resolution ──► Arm.Observe(Row)        the next bound
//	                        └───────► Coverage, Tally, CUSUM   what the bounds were worth
//
// α is the share of misses allowed, in (0, 1), everywhere. Scores are float64: finite, or +Inf for a row that missed any bound.
//
// The package is pure: time is an argument, nothing is shared. Each value has one owner; none is safe for concurrent use, but what
// does not change after its construction (Split, Weighted, Mondrian) may be read by many.
package conformal
