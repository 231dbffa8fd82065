// Package record is what every experiment leaves behind: one [Run] (what was offered to what, under which objective, on
// which machine) and one [Request] for everything that was offered, whatever became of it. The load generator, the
// simulator and the ladder write it, reports are made from it alone.
//
// A run is a directory with run.json and requests.parquet (and requests.jsonl where it was asked for). A directory
// without run.json is of a run that did not end: [Writer] writes it last.
//
// Latencies count from the intended arrival, so that a server or a generator that stalls cannot hide the wait of those
// who came meanwhile. Values anchored to the moment of sending are those less Lag.
package record
