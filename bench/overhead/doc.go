// Package overhead measures what the pipeline itself costs: everything between a client and an engine that takes no
// time.
//
// It starts `cadence up` as a child process, all services and the projector included, over a mock engine without cost,
// and sends it requests from this process on an open loop. Two questions are asked:
//
//   - How much later does the first token come than if the engine were called directly? A request's added time is its
//     TTFT, from the arrival that the schedule intended, less that of the same prompt given to the worker's planner and
//     engine in this process, without HTTP, streams or scheduler.
//   - Which rate is sustained? A rate is, if in one stretch of it every request was answered in full and the 99th
//     percentile of the time to the last byte, from the intended arrival, stayed within the limit. A stretch that fails
//     is tried once more, for a shared machine has hiccups; every stretch is in the report.
//
// Client, services and ClickHouse share the machine, so that the load generator's own cost lowers the result: the report
// says what each took. Stage times are differences of the event log's times, which are all of one clock here.
//
// [Run] owns the child process and everything else; nothing here is for concurrent use.
package overhead
