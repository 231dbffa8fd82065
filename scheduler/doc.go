// Package scheduler runs one pool's scheduler: it claims the pool, folds EVENTS into the state that the last scheduler left,
// and from then on feeds package core with what comes over the streams and does what core asks for.
//
// One goroutine, Run's own, owns the core. Around it:
//
//	readers (EVENTS, REQUESTS, heartbeats) ──► inbox ─┐                 ┌─► appender: one group of events in flight
//	                                                  ▼                 ├─► a sender for each worker: one dispatch in flight
//	                                          owner: core.Core ─ Ready ─┤
//	                                                  ▲                 ├─► seals and dead letters: a few at a time
//	            inbox ◄── answers of all of these ────┘                 ├─► cancels and chunks: published at once (chunks again after a reconnection)
//	                                                                    └─► teller: what waits, for those who predict
//
// States of a Run:
//
//	waiting for the lease ─► claimed ─► folding ─► restoring ─► serving ─► stopping ─► nil
//	                            └───────────┴──────────┴───────────┴─► deposed ─► ErrDeposed
//
// Invariants: nothing is dispatched before its dispatched event is stored; after another scheduler's claim nothing is
// stored any more. A scheduler may be killed at any time: the next one finds everything in the streams.
package scheduler
