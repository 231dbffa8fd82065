// Package service runs the trainer: it reads what requests took, has package trainer make a model of it and compare that with the
// running one, and moves a pool's pointer to it or leaves it where it is.
//
//	source ─► Collector ─► Train ──not worse──► file stored ─► pointer moved ─► model_published
//	                         └────otherwise──────────────────────────────────► model_rejected
//
// A source is ClickHouse (the view traces), the stream EVENTS, or a log of events in a file; all give the same traces.
//
// Invariants: the pointer never names a file that is not stored whole; whoever dies at any point leaves the old pointer or the new one;
// the pointer moves only from where the comparison found it, so that of several trainers of a pool one wins and the others begin anew.
// The events tell analysts; what counts is the pointer.
//
// Service.Run is one goroutine, which owns the Service; a subscription notes which engines there are.
package service
