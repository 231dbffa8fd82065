// Package sim runs the pipeline in virtual time: the scheduler's core and each worker's planner, the very code that the services
// run, with KV pages and prefix cache inside it, and what lies between them as constant latencies. An engine's step takes
// what its profile says. What decides is not written here a second time, but for the ingress's bounds and a worker's book of what it has room for: an [Admit] hook decides at arrival, the core orders,
// places and binds, the planner batches, caches and preempts.
//
// A run has one owner and no goroutine, clock or randomness of its own: [Run] walks a heap of events in order of time, and
// in order of their making where times are equal. Only a worker that plans its next step comes after everything else of its
// instant, so that with latencies of 0 a freed slot is filled by the next step, as in an engine that shares its process with its
// queue. The same Config gives the same records and the same bytes of the event log.
//
//	arrivals ─► gate ─► Admit ─(Request)─► core.Enqueue ─(Append)─► stored ─(Dispatch)─► planner ─► step ─► … ─► last token
//	   │          │       │ refused               ▲   MaxQueueWait                                               │
//	   ▼          ▼       ▼                       └────────────────────────────(Token)───────────────────────────┤
//	time-outs ─► cancel                                                                                          ▼
//	                                                                                                      record, event log
//
// With Config.Deadlines requests carry the objectives of their class, and what cannot be in time any more is demoted, ended or left alone as
// Config.OnDeadline says, by the scheduler's core and the planners. What ends so is shed if its client had nothing of it, and an error otherwise.
//
// What differs from the services: the ingress bounds requests only as the Config says, which by default it does not, and never
// bytes (its gate is part of a shell, so that gate.go is its rule and its Retry-After a second time); what MaxQueueWait sheds
// has the scheduler's reason, "timeout", where a client of the services is told "deadline"; bodies of requests are
// place-holders, so that the scheduler's bound on the bytes of a dispatch is never met; events that only tell something are stored at once; heartbeats come at their interval only (the core takes nothing
// from them but that a worker lives and what it is); nothing is ever lost.
//
// Invariants: every request that was offered has exactly one record; with Config.Events, the fold of the log (schema.State) is
// empty after a run that was not cut off; memory grows with what is unfinished, not with what has been.
package sim
