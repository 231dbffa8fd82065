// Package trainer makes models of the residual out of rows of what happened: it keeps rows so that rare regimes are not forgotten,
// folds them by whole rounds, fits and calibrates, says what the bounds are worth on rows that were held out, and whether a new model
// may take the place of the running one.
//
//	event log ──► Trace ──► Collector: Row ──► Reservoir ──► Split ──► Fit ──► Candidate ──► Artifact ──► Deployed
//	                                                           └─────────────────────────► Evaluate, Compare (held out)
//
// [Train] is all of it from rows on; package trainer/service reads and publishes. This is the pure part: no clock, no I/O, no goroutine; randomness is an argument, and equal rows in equal order with an equal seed give
// an equal artifact. Nothing here keeps or changes the rows that it is given, unless it says so.
//
// A [Row] is in two parts. What was known at the arrival is a [Known]; only that is shown to whatever predicts or bounds ([Bounder]), so
// that none can look at the outcome.
//
// The unit of exchangeability is the round, in which every load occurs; the unit of an interval is the run, whose requests shared a queue
// (the requests of one run are far from independent). Rows whose client left have a lower bound for a label: they are dropped from the
// fit, count as such in the calibration, and reports say how many there are.
package trainer
