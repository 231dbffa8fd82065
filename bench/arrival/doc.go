// Package arrival makes the times at which requests arrive.
//
// A [Process] turns a seed, a rate and a length into ascending times. The mean rate is the one that was asked for, whatever
// the process: burstiness and ramps move arrivals about, they add none. The same seed gives the same times everywhere, so that
// what is compared meets the same arrivals; times are never rescaled to another rate.
//
// Every process has a short text, which [Parse] reads and String writes: poisson, gamma:cv=2, onoff:on=10s,off=20s,low=0.2,
// ramp:from=0.5,to=2, constant.
//
// The package has no clock and does no I/O. Processes are values and may be shared; each iteration of a sequence is its own.
package arrival
