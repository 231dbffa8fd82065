// Package mock is an engine without a model: it takes the time that a stated cost model (or a profile.Profile) says, on the real clock, and
// answers with text that shows where each token came from.
//
// A token is a hash of the sampling seed, the attempt and every token before it, prompt included. A token that got lost,
// was repeated or came from another request changes all that follow; an answer spliced from two attempts equals the
// first up to the splice and what the second makes of those tokens after it. AttemptIndependent leaves the attempt out:
// then a spliced answer equals an undisturbed one. How sequences are batched changes nothing.
//
// Its tokenizer stands for a model's: every text has tokens and comes back from them. See Tokenizer.
package mock
