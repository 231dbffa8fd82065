// Package batch chooses what an engine does in each step: which sequences decode, which prefill a chunk, and which
// leave the waiting list. It is a pure state machine: no clock, no I/O, no goroutine; time comes in as an argument and
// everything that happened goes out as values.
//
// One goroutine (the engine's owner) drives it:
//
//	Add, Cancel ─► Plan ─► (backend executes the Batch) ─► Commit ─► outcomes ─┐
//	     ▲                                                                     │
//	     └─────────────────────────────────────────────────────────────────────┘
//
// States of a sequence:
//
//	waiting ──admitted──► prefilling ──last chunk committed──► decoding ──stop, length──► ended
//	   │                      │                                   │
//	   └──────────────────────┴───── cancelled, row failed ───────┴───────────────────────► ended
//
// A step obeys four limits at once: KV pages, sequence ids, tokens, and sequences in a batch. Admission is first come,
// first served and reserves the pages of the sequence's peak (prompt and longest output), so that running sequences
// jointly never need a page that is not there. A sequence that still prefills never decodes; every sequence that
// decodes does so in every step.
//
// Invariants, which Check verifies: reserved and free pages add up to all pages; held and free sequence ids are all
// ids, each once; no sequence holds more tokens than it reserved; at most MaxBatch sequences run.
package batch
