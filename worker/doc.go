// Package worker runs one engine for a pool: it takes requests from the scheduler, batches them continuously over a
// Backend, and sends tokens to the ingresses and events to the log.
//
// Goroutines, and what each owns:
//
//	dispatch handler  decodes requests and answers verdicts, at once: it reserves in the book (a mutex), not in the engine
//	engine loop       the Planner, the Backend and each run's text; takes mail from the book, posts to the outbox
//	publisher         swaps the outbox and sends, one chunk a request: what gathers while it sends goes out together
//	resender          keeps what a dying server would take along, and sends it again after a reconnection
//	heartbeat         tells the book's state every interval and after changes; notices that the process was frozen
//	teller            tells what the engine holds, for those who predict: the loop notes it (a mutex) before each step
//
// Life of an attempt here:
//
//	dispatched ─► offered ──full, draining, stale epoch, invalid, duplicate──► (not ours)
//	                 │ accepted: slot and pages of its peak are reserved in the book
//	                 ▼
//	              waiting ─► prefill_started ─► first_token ─► finished | failed
//	                 └──────────────┴────── cancel ─┴────────► cancelled
//
// Every way out gives slot, pages and sequence id back, and is followed by exactly one terminal event, after the tokens
// on the same connection. There are two silent ways: an attempt that a newer one of its request replaces, and what a
// fenced life leaves behind: the scheduler has moved both elsewhere.
//
// How fast the engine is, which the teller says, too, is known or measured before the first life (Config.Profile).
//
// Fencing: a worker that was silent for long has been declared lost, and its requests go on elsewhere. When it finds
// that out (its own heartbeat came late, the connection was gone, or the log says so), it abandons everything without
// a word and goes on as a new worker with another id.
package worker
