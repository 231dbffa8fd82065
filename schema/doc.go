// Package schema is the wire of Cadence: requests, lifecycle events, token chunks and the control messages that
// services exchange, with their versions, units and the pure fold that turns the event log into state.
//
// It imports nothing but the standard library and holds no goroutine, clock or I/O, so that every service, the
// simulator and offline tools share one definition.
//
// Units are in the names on the wire: _ns is nanoseconds (a duration, or UTC since the epoch where the name says
// time), _tokens counts tokens, _pages counts KV pages, _bytes counts bytes, _ratio lies in [0, 1].
//
// Within a version fields are only added, with omitempty, and keep name, type and meaning: the files in testdata/v1 are
// frozen, and decode and encode to the byte.
//
// Life of a request, as its events tell it (writer in brackets):
//
//	received [ingress] ─► refused [ingress]                                              terminal
//	        └─► admitted [ingress] ─► accepted [scheduler] ─► dispatched [scheduler] ─► prefill_started [worker]
//	              ┌───────────────────────────────────────────────┘  ▲                        │
//	              │ worker_down: sealed [scheduler], next attempt ────┘                        ▼
//	              │                                                            first_token, preempted* [worker]
//	              ▼                                                                            │
//	        cancelled | failed [whoever owns the state: scheduler while queued, worker after]  ▼
//	                                                                              finished [worker]   terminal
//
// model_published, model_rejected and model_rolled_back [trainer, operator] are of a pool's model of the residual, and of no
// request.
//
// cancel_requested [ingress, scheduler] may come at any time: it is a wish; only the owner of the request's state
// answers it with cancelled. delivered [ingress] tells what the client saw and how long it took.
//
// A terminal event settles its request if its attempt is the last one that was dispatched and its worker had not been
// declared lost: a worker that comes back may still write for an older attempt, and is not believed. The terminal
// events of a scheduler or an ingress name no worker.
package schema
