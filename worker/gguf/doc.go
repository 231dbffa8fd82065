// Package gguf writes synthetic models and reads the head of any model, both in the GGUF format.
//
// [Synth] makes a complete, loadable model from a shape and a seed: random weights, a byte-level BPE tokenizer that
// can encode any text, and a chat template. It costs what a trained model of that shape costs, needs no download, and
// says nothing sensible: tests, benchmarks and the load gate run on it. The same shape and seed give the same bytes on
// every platform, because only exactly rounded arithmetic is used.
//
// [Inspect] reads metadata and tensor table of a GGUF of version 2 or 3, from a file that it does not trust: each
// count, length and offset is checked against what the file can hold before anything is allocated or skipped, so a
// hostile file costs at most memory in proportion to its own size.
//
// The package is pure Go and holds no state; every function may be called from any goroutine.
package gguf
