// Package ingress is the HTTP front of Cadence: OpenAI's dialect over Fiber on one side, JetStream on the other. It
// parses, tokenizes and publishes requests, relays their tokens as server-sent events or one JSON body, and tells the
// event log what its clients saw. Package ingress/openai is the dialect, ingress/chat renders chat templates; both are
// pure. What it must know of a model (tokenizer, template) is injected: it imports no other shell.
//
// # Life of a request
//
//	place reserved ─► parsed ─► tokenized ─► fits ─► received ─► stored ─► admitted ─► relayed ─► delivered
//	      │              │           │          │                   │
//	      │              └───────────┴──────────┴─► 4xx             └─► unavailable, capacity: refused, 503
//	      └─► capacity, draining: refused, 503                          (no_worker before it)
//
// Nothing is answered with a 200 before the request is stored in REQUESTS. A request waits until its first token; the
// number and bytes of waiting requests, and the number of open ones, are bounded by the gate, whose places are taken
// before any work is done for a body.
//
// # Admission
//
// The desk decides, after a prompt is tokenized and before anything is stored. Under its mutex it puts together what the
// latest states of engines and queues say and what was let in here since (engines), asks the rule of package
// ingress/admission for one pool (court), and remembers who was let in until the end of the request is seen: by its last chunk,
// by an error, or because its client left, whichever comes first. Where nothing is known of an engine, requests are let in.
//
// # Relaying
//
// An answer holds what has been relayed of one request: its tokens, in order and without a gap, whatever the attempts
// they come from. Chunks arrive on one subscription for the whole process and are put into their answer under its
// mutex; its reader, which is the goroutine of the client's connection, takes what is there and writes it. The
// subscription never waits for a client: a reader that is too far behind is cut. A gap, a reconnection to NATS and
// a long silence make the answer look into TOKENS. A seal raises the answer's floor: from then on, tokens of sealed
// attempts are dropped, and the next attempt goes on where the answer stands.
//
//	attached ──(client gone)──► detached ──(grace over, or none)──► closed, and cancelled if not ended
//	   ▲ │                         │ ▲
//	   │ └──(ended and written)────│─┴─► kept until the grace is over, then closed
//	   └────(Last-Event-ID)────────┘
//
// # Control tokens
//
// What a client writes in a message stays text, even if it is the name of a control token such as <|im_end|>; only the
// template's own become tokens (see controlNames). The prompt of /v1/completions is the whole input of the model, so that
// names in it are tokens: an application that builds such prompts from what its users write must take them out itself.
//
// # Goroutines
//
//   - one for each connection (fasthttp's): parses, publishes, writes;
//   - the NATS subscriptions': put chunks into answers, answer seals, note heartbeats;
//   - the watcher: every quarter of a second it asks the kernel which clients of open requests have gone (nothing else
//     tells, while a server is silent), and does what is due: keep-alive comments, ends of grace, looks into TOKENS;
//   - the pulse: heartbeats, and reconnections of NATS;
//   - a few at most that read TOKENS.
//
// Lock order: answer, then gate. The desk is asked and told, and events are emitted, under no lock.
package ingress
