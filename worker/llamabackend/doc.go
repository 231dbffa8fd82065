// Package llamabackend makes package llama's binding a worker.Backend: one model, one context with a unified KV cache,
// and a sampler for each sequence id. It compiles in both builds of package llama; without llama.cpp, Open returns
// llama.ErrNotBuilt.
//
// What a sequence says hardly depends on what else runs: attention looks at a sequence's own cells only and
// adds up in single precision, in the order of the cells. What is left is that matrix products of
// other sizes round in other ways. A sequence alone, in an engine without a prefix cache, says the same each time to the
// last bit. That also keeps sequences apart when one computes NaN: it fails alone.
//
// A sequence with a grammar is sampled as if the model had no other tokens than those that may come next. llama.cpp is
// asked about the token that was drawn, and only if that may not come about the next candidates, and about the whole
// vocabulary last: that takes tens of milliseconds with a large one.
//
// The worker's engine loop owns a Backend. Its Model may be used by anyone: an ingress in the same process tokenizes
// with it.
package llamabackend
