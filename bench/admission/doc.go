// Package admission answers questions about admission in the simulator. The first is which rule is best ([Compare]): every arm runs at
// every offered load with every seed, on the same requests at the same times.
//
//	peak of no admission ─► loads ─► one run that everything is fitted to ─► a constant for each arm ─► the runs that are reported
//	 (tuning seeds)                   (a seed of its own)                     (tuning seeds)             (seeds 1, 2, …)
//
// The constants are chosen with equal effort, a grid of the same size for each arm, on seeds that are not reported. Requests of one
// run queue behind each other, so the unit of every interval is the seed: a paired bootstrap over runs that had the same arrivals.
//
// Others ([Try], named by [Experiments]) ask what promises are worth, and what becomes of a rule when the engine, the load or what it believes
// changes. Each is some cases, run as the arms are, with columns of what came of them.
//
// Invariants: every request that was offered in the measured phase of a run is counted as exactly one of good, late, refused, open
// and failed; the same options give the same report, however many processors do the work.
//
// Whole runs are simulated on several goroutines, which share only what nobody changes; all else belongs to the goroutine that
// called [Compare] or [Try].
package admission
