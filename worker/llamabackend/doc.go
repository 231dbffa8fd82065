// Package llamabackend makes package llama's binding a worker.Backend: one model, one context with a unified KV cache,
// and a sampler for each sequence id. It compiles in both builds of package llama; without llama.cpp, Open returns
// llama.ErrNotBuilt.
//
// The worker's engine loop owns a Backend. Its Model may be used by anyone: an ingress in the same process tokenizes
// with it.
package llamabackend
