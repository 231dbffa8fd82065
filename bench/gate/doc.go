// Package gate tells in about 90 seconds whether a change made the pipeline worse: all services with the mock engine, at
// one rate below the knee and one beyond it, against a budget that is committed beside the code.
//
// The mock decides the speed: its steps sleep for what a profile states, so that a figure is mostly the profile's and the
// planner's, and machines agree on it. What remains of a machine is what the services take between steps; a canary, timed
// before each run, tells whether that is more than a little, and then the run says nothing.
//
// Beyond the knee requests may wait for two seconds and are refused then. Without a limit the queue would grow for as long as
// the run lasts, and a difference of 2 % in speed be one of 30 % in goodput; with it, 2 % are 2 to 4 %.
//
// # The verdict
//
// [Judge] is pure. Its exit codes:
//
//	0  nothing is worse than the budget allows; an improvement never fails
//	1  a regression: a p99 of more than 15 % above, or a goodput of more than 10 % below the budget
//	2  no verdict: the generator was late, the canary slow, too few requests came, the budget is of other settings, or
//	   the services did not run at all
//
// That 1 is found when it should be is shown by `make prove-gate`, which lets the engine run one request at a time.
package gate
