// Package openai is the OpenAI dialect of the ingress as pure functions: request bodies in, values or one client
// error out; tokens and figures in, bytes of a response or of a server-sent event out. It has no server, clock,
// goroutine or I/O; the HTTP shell that stands over it owns all of these.
//
// # Reading
//
// ParseChat and ParseCompletion are lenient about what they do not know and strict about what they do. A field that
// the dialect does not know is skipped. A known field must have its type and range, and one that asks for something
// that is not served (tools, several choices, token biases, …) is refused by name: nothing is dropped silently
// that would change the answer. null is the same as absent. The result never aliases the body.
//
// The reader is stricter than encoding/json, because two readers of one body must not see two requests:
//
//   - A known key given twice in one object is refused (encoding/json takes the last one).
//   - Keys match exactly ("Model" is not "model").
//   - The body must be UTF-8, and its \u escapes must be whole characters: a lone surrogate is refused, not replaced.
//   - Nothing but white space may follow the object, and nesting is bounded.
//
// # Writing
//
// Encoders append to the caller's buffer and allocate nothing when it has room. Their output is stable byte for byte
// (golden files hold it), is plain JSON with no raw line break in it, so that it fits one data line of an event, and
// replaces bytes that are no UTF-8 with U+FFFD.
//
// # Life of a stream
//
//	AppendRole (chat only) ─► (AppendText | AppendTokens)* ─► AppendFinish ─► AppendUsage (if asked for) ─► Done
//	                                   └──────────────────► AppendError, and nothing after it
//
// PingComment may stand between any two events. A stream that ends in an error has no Done: a client must be able to
// tell a whole answer from a broken one.
package openai
