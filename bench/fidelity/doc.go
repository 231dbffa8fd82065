// Package fidelity tells how far results of the simulator and of the mock engine can be taken for those of a real engine: it
// offers the same requests at the same times to all three, at several loads. At each, llama.cpp comes first, and the simulator and the
// mock take their time from a profile that is fitted to its steps: a machine's speed drifts, and is not what is compared. What is
// compared is what experiments report: E2E at p50 and p99, and goodput.
//
// An error is left / right - 1, where right is the more real of the two. Everything here belongs to the goroutine that called Run.
package fidelity
