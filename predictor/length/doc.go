// Package length holds what is known of how long answers are: for each class of requests a table of hazards, learned as
// answers end.
//
// The hazard of a bin of lengths is the probability that an answer which reaches the bin ends in it. Bins are a third of
// their lower end wide, so that [Bins] of them hold every length. From the hazards follows the distribution of what is
// left of an answer, given what was generated and how much may be: never a single number.
//
// An answer that was cut by its cap says only that it would have been longer. It counts as at risk in the bins that it
// passed and as ended in none (Kaplan and Meier, 1958; inside the bin of the cap in proportion to the part that it passed,
// the actuarial form). Older answers fade: an observation's weight halves every so many of its class.
//
// What was never seen comes from a prior of the weight of one answer: P(length > k) = 1/√(1 + k/8), half above 24 tokens
// and a tenth above 800, which is wide rather than right, and which the cap bounds.
//
// A Table is owned by one goroutine while it learns; reading allocates nothing and changes nothing.
//
// Invariants: probabilities of a [Dist] are ≥ 0 and sum to 1; its tokens ascend, within (0, cap - done].
package length
