// Package deadline says which requests can no longer meet their objectives. It is pure and holds nothing; whoever has
// a request asks: the scheduler's core of those that wait, a worker's planner of those that it has.
//
// A request is doomed if it would be late even alone on an engine at its fastest. That is a necessary condition of being late,
// and on purpose no more: who is demoted or ended wrongly loses an answer that was wanted, who is found out late only loses some
// engine time. So nothing is assumed of how long an answer becomes but the fewest tokens that it may have, though its class
// may be known to answer at length.
//
// Invariants: a larger budget, fewer tokens and a faster engine never doom a request that was not; an engine of unknown speed
// dooms only what is late already.
package deadline
