// Package sample chooses the next token from a row of logits: penalties, temperature, top-k, top-p, min-p, and one
// random draw keyed by (seed, position), so that a request which goes on elsewhere draws the same. It is pure; a
// Sampler is owned by one goroutine, many Samplers may share one Scratch in turn.
//
// The order is that of vLLM and Hugging Face: penalties on the logits; greedy if the temperature is 0; otherwise the
// softmax of logits/temperature, of which top-k keeps the k most probable, top-p the fewest of those whose share of
// their sum reaches p, and min-p those at least min-p times as probable as the most probable. Each keeps a beginning
// of the order by falling probability (equal ones by rising id), so what is left is described by its last member alone
// and nothing is ever sorted. The draw walks the kept tokens by rising id.
//
// A filter (a grammar) is asked about as few candidates as can be: the one drawn, then the next ones in the order in
// which they would have been drawn, then all. Log-probabilities are of the logits as they came.
//
// The repetition penalty looks at prompt and output (as in CTRL, arXiv:1909.05858: positive logits are divided,
// negative ones multiplied), presence and frequency penalties at the output (as OpenAI documents them).
package sample
