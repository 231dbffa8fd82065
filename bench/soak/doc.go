// Package soak runs a worker under a load that never lets it rest, and looks for what it loses.
//
// The engine is the mock, whose every token is checked against what it must be, or llama.cpp on a small random model made on
// the spot, whose answers are checked for their length and order. Its KV cache is small and overcommitted, so that
// eviction and preemption never stop. Requests share prefixes, have random lengths, tenants, classes and deadlines; some
// are cancelled, some are taken over by a newer attempt while they run. The worker verifies its books (pages, prefix tree,
// sequence ids) after each step.
//
// Every few seconds the load pauses until nothing runs. At such a quiet point all that is reserved must have come back,
// and only then are heap, resident memory and goroutines measured, after a garbage collection; the streams are purged
// first, since what the server keeps is not the worker's, and memory is judged only after a warm-up of three minutes: the
// server remembers the ids of two. At the end the worker is stopped, and the engine must take as many
// tokens as it has cells, in all of its sequence ids: nothing is left in it.
//
// Goroutines: [Run]'s own dispatches and measures; the client's delivers chunks and checks them. They meet in the mutex of
// load.
package soak
