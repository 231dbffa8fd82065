// Package workload makes requests as data: which token ids each prompt has, which prefixes are shared, and how long each
// answer is.
//
// A [Spec] says what the requests of a workload are like; it is a YAML (or JSON) file that anyone may edit, and seed, unique
// and shared are embedded. A [Generator] draws requests from it: the i-th request depends on the spec, the vocabulary, the
// seed and i alone, so that several servers, or one server in several modes, get exactly the same requests, and any part of
// a run can be drawn again.
//
// Prompts are token ids drawn at random from the vocabulary: a prompt has exactly the length that was asked for, shares
// nothing by accident, and every server sees the same ids. Answers have a given length (max_tokens with ignore_eos), for a
// server must not win by answering less.
//
// The package has no clock and does no I/O but [Open]. Nothing here is shared between goroutines except a Generator, which
// is never changed.
package workload
