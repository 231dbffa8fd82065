// Package peer compares ways of answering the same requests: the pipeline with llama.cpp's own llama-server ([Engine]),
// and the worker's prefill with a bare loop of llama_decode ([Prefill]).
//
// Whatever is compared gets the same requests, token by token, from package workload. Two things that can run side by side
// are measured in one run in alternating blocks (A B B A A B …), for a shared machine drifts: each block of one has a
// neighbour of the other, the ratio of the two is one observation, and a result is the median of them with the least and
// the greatest. While one is measured the other idles.
//
// # What is measured
//
// TTFT runs from sending to the first event with text. ITL is the time between tokens: servers may put several tokens into
// one event, so that the intervals between a request's tokens (usage says how many there are) are spread evenly over the
// gaps between its events, and a gap with k of them counts as k intervals of a k-th of it. TPOT is the mean interval of a
// request. Output tokens/s are tokens of complete answers over the length of the block, its ramp-up and ramp-down included,
// which are the same for both.
//
// Load generator and servers share the machine. Everything here belongs to the goroutine that called Run; nothing is for
// concurrent use.
package peer
