// Package enginecore runs one worker on an embedded stream server in this process, with a client that stands for scheduler
// and ingress, so that the memory, the goroutines and the CPU time of the engine's cores can be measured from inside.
//
// [Rig] is that worker; package soak uses it too. [Profile] loads it near its knee and says what a step is spent on:
//
//	wall time     of the engine loop: each call into the backend, into the pages and into the prefix tree is timed by a
//	              decorator around its interface; what is left between two calls of Backend.Step is the loop itself
//	CPU profile   of the process (runtime/pprof): splits what the decorators cannot see, by the innermost frame with an
//	              owner; time inside llama.cpp counts for the Go frame that called it. Threads that llama.cpp starts by
//	              itself are invisible to it, so that with more than one thread only wall time is complete.
//
// Two arms, the fast pages and prefix tree and the naive ones that tests compare them with, run in alternating blocks
// (A B B A) on one loaded model with the same requests.
package enginecore
