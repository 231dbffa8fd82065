// Package llama is a thin binding to llama.cpp: load a model, tokenize, decode hand-built batches on a unified KV cache, read
// logits without copying. It is the only package with C in it.
//
// # Build
//
// With the build tag llama (and cgo) it is linked to the llama.cpp objects that `go build` compiles out of the module
// github.com/ollama/ollama; `make build` sets the flags, which matter for speed by a factor of ten. Without the tag the
// same API compiles in pure Go and every constructor returns [ErrNotBuilt], so that the rest of the module builds and
// tests without a C++ compiler.
//
// # Order of life
//
//	Init ─► LoadModel ─► NewContext ─► Decode, Logits, Seq… ─► Context.Close ─► Model.Close
//
// [Init] comes first and once. A model can have several contexts and outlives them: [Model.Close] refuses with [ErrInUse]
// while one is open. Both Close methods may be called again.
//
// # Who may call what
//
// A [Model] is safe for use by any number of goroutines: tokenizing does not need the engine. A [Context] and the [Batch]
// given to it belong to one goroutine, the engine's; only [Context.Interrupt] may be called from others.
//
// # KV cache
//
// All sequences of a context share one pool of cells (unified KV), one cell per token and position. [Context.SeqCopy] lets
// a second sequence use cells of the first without copying data; a cell is free when no sequence uses it. [Context.Decode]
// is all or nothing: after an error the cache holds what it held before the call.
//
// # Grammars
//
// A [Grammar] is one sequence's place in a grammar: which tokens may come next, and the step to the next place. It is
// slow for a whole vocabulary and quick for a few tokens. It belongs to one goroutine and is closed before its model.
//
// # Bad input
//
// llama.cpp ends the process on many mistakes that a caller can make. Everything it would abort on and that can be known in
// advance (token ids, sequence ids, positions, batch size, overlapping copies, rows without logits, files that are no
// models) is checked in Go first and becomes an error value; its C++ exceptions become errors, too.
package llama
