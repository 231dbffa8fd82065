// Package llamabackend makes package llama's binding a worker.Backend: one model, one context with a unified KV cache,
// and a sampler for each sequence id. It compiles in both builds of package llama; without llama.cpp, Open returns
// llama.ErrNotBuilt.
//
// What a sequence says depends on the cells that it got, by rounding: on the CPU, flash attention adds up in half
// precision in the order of the cells, and a sequence whose later tokens lie in earlier cells (given back by another)
// adds up in another order. Sequences that start together in an empty cache say what each says alone. Flash attention
// is also what keeps sequences apart when one computes NaN: it skips the cells of others, where a product with zero
// weights would not.
//
// A sequence with a grammar is sampled as if the model had no other tokens than those that may come next. llama.cpp is
// asked about the token that was drawn, and only if that may not come about the next candidates, and about the whole
// vocabulary last: that takes tens of milliseconds with a large one.
//
// The worker's engine loop owns a Backend. Its Model may be used by anyone: an ingress in the same process tokenizes
// with it.
package llamabackend
