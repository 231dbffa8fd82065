// Package openai is an engine that another server runs: vLLM, llama-server or any server with OpenAI's
// POST /v1/completions. Each sequence is one streaming request there.
//
// Two goroutines meet in a sequence: the engine loop, which owns the [Backend], and the sequence's own, which owns its
// HTTP exchange. It reads ahead of the loop, at most to the request's max_tokens. As many exchanges as Config.Permits are
// open at once.
//
//	Start ──► waiting for a permit ──► asked ──► streaming ──► ended (finish_reason) or failed (a *Fault)
//	                    └────── MoveTrim to 0 at any time: the exchange is cancelled ──────┘
//
// Tokens: a server that tells token ids is believed if their text is the text that it sent with them. Other text is
// tokenized again with the model's tokenizer, so that the ids always spell exactly what the server said. The counts of a
// finished answer are then the server's own; see worker.UsageReporter.
//
// Nothing that is cut short looks like an answer: a stream without a finish_reason, without a token, or with a
// malformed event fails its request. If the server itself is gone, requests are not failed; the worker learns so from
// Healthy, gives up its life, and they go on elsewhere. A server that was away is asked again what it runs before it
// counts as well: with another model or context than at the start it stays unhealthy (ErrChanged) until it has the first
// again or the worker is restarted. One that is replaced between two questions after its health, while nothing is asked
// of it, is not noticed.
//
// Sampling parameters mean what the server makes of them. A seed is passed on together with the position at which the
// server begins, so that the same attempt draws the same; a request that goes on elsewhere draws differently than it
// would have here, if it is not greedy.
package openai
