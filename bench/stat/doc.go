// Package stat says what runs show: the summary of one run, the spread over seeds, and the paired bootstrap between two
// arms. It is pure, and deterministic by seed.
//
// Everything that was offered in the measured phase is in the denominator of goodput and attainment: refused, failed and
// unfinished requests did not keep their objective.
//
// A request that was given up (time-out, censored) has a latency that is at least what it waited. Leaving it out would
// make the worst server look best, so it counts with that lower bound, and quantiles that it touches are marked as lower
// bounds ([Durations.Exact]).
//
// The unit of inference is the run, never the request: requests of one run queue behind each other, so their latencies
// are not independent. Arms are compared in pairs of runs that had the same seed, hence the same arrivals.
package stat
