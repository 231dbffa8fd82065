// Package gate tells in about 90 seconds whether a change made the pipeline worse: all services with the mock engine, at
// one rate below the knee and one beyond it, against a budget that is committed beside the code.
//
// The mock decides the speed: its steps sleep for what a profile states, so that a figure is mostly the profile's and the
// planner's, and machines agree on it. What remains of a machine is what the services take between steps; a canary, timed
// before and after each run in this very process, where no change to the pipeline can slow it, tells whether that is more
// than a little, and then the run says nothing.
//
// Beyond the knee requests may wait for two seconds and are refused then. Without a limit the queue would grow for as long as
// the run lasts, and a difference of 2 % in speed be one of 30 % in goodput; with it, 2 % are 2 to 4 %.
//
// # The verdict
//
// [Judge] is pure. Its exit codes:
//
//	0  nothing is worse than the budget allows; an improvement never fails
//	1  a regression: a p99 of more than 15 % above the budget, a goodput of more than 10 % below, 0.5 % more of the requests
//	   failed, or services that started and then answered nothing
//	2  no verdict: the generator was late, the canary slow, too few requests came, the budget is of another profile or
//	   workload, or the services did not start
//
// What says nothing is done again up to three times, and what is worse once more, as long as [Options].Limit leaves time. A
// budget is the median of three runs or more, and is refused if they differ by more than half of what a change may.
//
// That 1 is found when it should be is shown by `make prove-gate`, which lets the engine run one request at a time.
package gate
