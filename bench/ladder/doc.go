// Package ladder runs experiments in which one thing at a time is added to an engine, or changed: every arm at every rate
// with every seed, each run on fresh services, one record ([record.Run]) each.
//
// A [Definition] says what is run, its Plan in which order. Both are pure. [Run] executes the plan on one of three kinds of
// engine: sim (package sim, virtual time), mock and llama (a child process `cadence up`, real time).
//
// # The directory
//
//	OUT/ladder.json          what is run on what, and what was measured beforehand (capacity, objectives): [State]
//	OUT/runs/<job id>/       one run each, see package record; complete when it has its run.json
//
// ladder.json is written before the first run. A ladder that is begun again in the same directory goes on where it
// stopped, however it stopped: a complete run is kept, anything else is run again. The directory belongs to one definition
// (its hash) on one build of the engine (its provenance): for another, Run returns [ErrOther].
//
// # What makes runs comparable
//
// Runs of equal rate and seed get the same requests at the same times, whatever the arm. The order is rate-major with the
// arms rotated, and services are started anew for each run, so that no arm inherits a warm cache or always meets the warm
// machine. Before each run on a real clock a canary, the same 64 tokens, greedily and on the idle engine, reads how fast
// the machine is just then: it goes into the record and never decides whether a run counts. It is an ordinary request to
// the ingress with a client's id of "canary"; what refuses work does so for lack of capacity, which an idle engine has.
package ladder
