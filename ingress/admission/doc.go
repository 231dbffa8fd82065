// Package admission decides whether a request is let in, when it arrives: from what is expected of it (a [predictor.Outlook])
// and from what the engines' time is worth just now (a [Price]). [Marginal] is the product's rule; every other [Arm] is a
// baseline that it is measured against, on the same input.
//
// It is pure: no clock, no I/O, no goroutine. Time comes in as a duration since any fixed moment, randomness as a *rand.Rand.
// An Arm, a Price and a [Book] each have one owner, who calls them one at a time; nothing that is passed in is kept.
//
// # The rule
//
// With p the probability that a request meets its objectives, harm what those that were admitted before lose of theirs, cost its
// part of the engine's time, and λ the price of that:
//
//	breaks the promise of another ─► refused: protects_guaranteed, whatever else is true
//	hopeless on an idle engine ────► refused: infeasible ───────────────────────┐
//	guaranteed:   bound ≤ budget ──► admitted: bound, labelled guaranteed       │
//	best effort:  p > harm, λ·cost ─► admitted: best_effort_price               │
//	otherwise: the engine is idle ─► admitted: idle, labelled best effort       │
//	otherwise ─────────────────────► refused: bound or best_effort_price ───────┤
//	                                                                            ▼
//	of what is refused, but for protects_guaranteed, a small part is admitted: exploration, labelled best effort
//
// Harm and price are not added. What an admission delays, it delays in the place of the next one: p is judged by residuals that have the
// usual effect of later arrivals in them, and λ is what the time of an engine is worth to those. Only what is more than that counts, so
// that a request must be worth the greater of both. Added, they refuse much that would have been in time where requests are alike.
//
// What is infeasible is explored too: a bound that is too wide, because the prefix cache is cold or the engine has become
// faster, can only be corrected by requests that it would refuse.
//
// For best effort only [Config].MinMeet says what is infeasible, not the bound on an idle engine: with a bound at 99 % that would refuse, on an
// idle engine, requests that meet their objectives nine times in ten.
//
// # Invariants
//
//   - λ is 0 whenever what was asked for in the window fits the engines.
//   - An idle engine refuses only what is infeasible or breaks a promise.
//   - Nothing is labelled guaranteed whose bound is not known or exceeds its budget.
//   - Breaks admits nothing, exploration included.
//   - A refused request's [Decision].Propensity is the probability with which it would have been admitted, exactly, given what came before.
package admission
