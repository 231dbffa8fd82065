// Package load sends requests to OpenAI-compatible servers on an open loop and records what came back.
//
// Open loop means that arrivals follow their own schedule, whatever the server does: a request is sent when its time
// has come, however many are outstanding. Latencies are counted from that intended time, so that a server (or a
// generator) that stalls cannot hide the wait of those who came meanwhile. How far the generator itself was late stands
// beside them as dispatch lag: a run whose lag is not small against its latencies measured the generator.
//
// [Client] is a small HTTP/1.1 client for streamed answers with keep-alive connections and no goroutines of its own: one
// goroutine sends a request and reads its answer to the end. [Run] owns the schedule: its goroutine sleeps until the
// next arrival and starts a goroutine for it. [Collector] is shared by those and locks.
//
// A [Trial] is a run with its books: the requests of a workload, put in the [Form] that a server takes, at the times of an
// arrival process or of a trace, each with its record of what became of it.
//
// Each request ends in one [Outcome]; what it says is what the bytes said. An answer that ends without [DONE] is
// truncated even if the connection ended in order.
package load
