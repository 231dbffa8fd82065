// Package calibrate measures how fast an engine is and makes a profile of it: it drives a worker.Backend in this process, as
// the worker's loop does, through steps of many kinds (prefill in chunks of several sizes, batches that decode at several
// depths of context, requests that come and go), each timed around the engine alone, and fits the cost of a step by least
// squares. Rounds repeat all of it in another order, so that a drift of the machine does not look like a property of the
// engine. Everything here belongs to the goroutine that called.
package calibrate
