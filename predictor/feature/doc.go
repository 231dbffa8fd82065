// Package feature turns what is known of a request at its arrival into the numbers that a model of the residual takes. It is the
// only place that does: a row to learn from and a request to predict have the same numbers by construction.
//
// A leak does not compile. [Append] sees a [predictor.Engine], a [predictor.Sequence], a [predictor.Lengths] and the
// [predictor.Forecast] that was made of them; none of these types can reach the outcome of the request they describe: that has no
// place in them before it is there. Whoever wants a later figure as a feature must widen one of those types, which a reader sees.
//
// Features are tokens, or have no dimension: times are in steps of one sequence that decodes alone, as the profile has it, so that a
// model of one machine means the same on another. The order and the names are those of [Table].
//
// The seed's fourteen are here but for: the logarithm of the cap and the flag of a long prefix hit, which for trees are what the cap and
// the cached tokens are; the number of messages, which a Sequence does not know and which acts through the prompt; the token rate, which
// is how many run by how long a step takes; and the arrival rate, which the controller itself changes: it would raise every bound of an
// engine that admission has kept idle.
//
// A sign says that more of a feature alone can only take longer (+1) or shorter (−1). Features that are predictions have none: they are in
// what the residual is relative to, and can be wrong either way. So is Slow, an estimate.
//
// The package is pure and keeps nothing.
package feature
