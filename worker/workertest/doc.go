// Package workertest is the suite that every worker.Backend passes, and the small driver under it: planner and backend
// without a wire, in the caller's goroutine.
package workertest
