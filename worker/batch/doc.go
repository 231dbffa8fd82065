// Package batch chooses what an engine does in each step: which sequences decode, which prefill a chunk, which leave the
// waiting list, and which give way. It is a pure state machine: no clock, no I/O, no goroutine; time comes in as an
// argument and everything that happened goes out as values.
//
// One goroutine (the engine's owner) drives it:
//
//	Add, Cancel ─► Plan ─► (backend executes the Batch) ─► Commit ─► outcomes ─┐
//	     ▲                  └──────── Moves after each ───────┘                │
//	     └─────────────────────────────────────────────────────────────────────┘
//
// States of a sequence:
//
//	waiting ──admitted──► prefilling ──last chunk committed──► decoding ──stop, length──► ended
//	   │ ▲                    │                                   │
//	   │ └─────── preempted ──┴───────────────────────────────────┤
//	   └──────────────────────┴─ cancelled, row failed, deadline ─┴───────────────────────► ended
//
// A step obeys four limits at once: KV pages, sequence ids, tokens, and sequences in a batch. Admission is first come,
// first served, those of a Priority before the others: a sequence gets pages for what it prefills and one token more, less what the prefix cache has of it, and
// then a page at a time. The peaks (prompt and longest output) of those that run are bounded by Config.Overcommit; up to
// 1, everyone's pages are there when they are needed. Above, a step that lacks pages takes them from the prefix cache,
// then from a sequence that is preempted: it waits again, ahead of the others, and computes what it had, generated tokens
// included. Pages are always found before a step is planned, so that no step can fail for lack of cells.
//
// A sequence that still prefills never decodes. In each step every sequence that decodes does so, unless the Order is
// PrefillFirst.
//
// Deadlines. Who could not keep its deadline any more even alone on the engine (package deadline) is demoted: it waits behind all
// who can, is fed after them where tokens are scarce, gives way first, and also gives its place to one that waits. It is found out
// when a step is planned, or when it would be next to start; it runs whenever there is room. By its OnDeadline it may be cancelled
// instead, in a Commit, or stay where it is. A sequence of a Priority that would miss its deadline if it waited takes the place of
// one without. Nobody gives way more than MaxPreemptions times for the sake of another that waits.
//
// The engine's cells. A sequence id names cells, which ids share without copying; see package radix for who owns an id
// when. The Planner decides and says in Moves what the engine must do: copy, when a cached prefix is used; trim, when a
// sequence has ended or a prefix was evicted; rebase, when two have computed the same prefix at the same time. A page of
// package kv stands for PageTokens cells; the engine never holds more cells than the pages in use have room for.
//
// Invariants, which Check verifies: those of packages kv and radix; every sequence id is free, or of one running
// sequence, or of one cached leaf, or of both the latter; no sequence holds more tokens than it has pages for, nor more
// pages than it was promised; promises are within the limit; who is known waits or runs.
package batch
