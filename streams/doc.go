// Package streams is Cadence's use of NATS JetStream: every subject, stream and consumer as data, the embedded server,
// and typed publishing and consuming of package schema's bodies. Services meet here and nowhere else.
//
// What is stored, and what that promises:
//
//   - REQUESTS: admitted requests, published synchronously; limits retention, so that they can be replayed.
//   - EVENTS: the lifecycle, the truth. Writers deduplicate by event id; a scheduler's appends are fenced by its epoch.
//   - STEPS, TOKENS: regenerable, published without waiting; TOKENS lets a gap or a reconnect be filled.
//   - DLQ: what could not be read, once each.
//   - MODELS: files of models by SHA-256, and each pool's pointer to its present one, moved by compare-and-swap.
//
// Core subjects (dispatch, cancel, seal, state) are not stored: what matters of them is an event first.
//
// A Client is safe for concurrent use. It owns its NATS connection. Handlers run on the subscription's own goroutine,
// one message at a time: they must not block for long.
package streams
