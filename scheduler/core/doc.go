// Package core decides what a pool's scheduler does: in which order requests leave the queue, on which worker each of
// them runs, and what happens when a worker, an ingress or the scheduler itself is lost. It is a pure state machine: no
// clock, no I/O, no goroutine. Time comes in as nanoseconds UTC, what is to be done goes out as a [Ready].
//
// One goroutine (the owner) drives a Core:
//
//	Enqueue, Event, WorkerState, IngressState, Appended, DispatchAnswer, Sealed, Buried, Tick ─► Ready ─┐
//	     ▲                                                                                              │
//	     └────────── results of the append, of dispatches, of seals, of dead letters ───────────────────┘
//
// Ordering rule: an action that follows from an event is in a Ready only after Appended said that the event is stored.
// One append is in flight at a time; decisions are made when a group is formed, not before, so that a request leaves
// the queue as late as it can.
//
// States of a request:
//
//	            ┌──── full, draining, worker lost before it was sent ────┐
//	            ▼                                                        │
//	Enqueue ─► waiting ─► binding ─(dispatched stored)─► due ─► sending ─┴─(accepted)─► running ─(worker's event)─► ended
//	            ▲                                         ▲        │                       │
//	            │                                         └─silent─┘     worker_down seen  │
//	            └─(relayed so far, attempt + 1)─ sealing ◄─────────────────┴───────────────┘
//
//	waiting, binding, due, sealing ─(cancel, timeout, finish found)─► ending ─(our event stored)─► ended
//	sending, sealing ─(unreadable, attempts used up)─► burying ─(dead letter stored)─► ending
//
// The queue: what can still meet its objectives goes before what cannot (package deadline), guaranteed before best effort, what
// ran before what never did, and then by the Order. A request that is found to be late when it is next, or, if it is to be cancelled
// then, by a look at the whole queue once in a while, is demoted for good, ended with [schema.FailedDeadline], or stays, by its
// OnDeadline. How fast workers are is for the owner to say ([Core.SetSpeed]). What is late at its worker keeps its slot there: given to
// what waits, which under overload is just not late yet, it serves fewer in time, for what was computed is thrown away.
//
// Who may end a request: while a worker may have it (sending and running, or due again after silence), only that
// worker's event ends it; otherwise only the Core does. A worker that was declared lost has its requests until its worker_down event comes back
// from the log, because only then is everything known that it stored before.
//
// Invariants: every request that was enqueued gets exactly one settling terminal event; a request that may have run is
// sealed before its next attempt is bound; a request whose cancel was seen is not bound any more; a worker's booked requests and
// pages never grow above the slots and pages of its last heartbeat, but for guaranteed ones that would be late otherwise: these
// may have what they could have if they were alone with their like, and the worker makes best effort give way; the fold of the stored events (schema.State) knows
// the same unfinished requests.
package core
