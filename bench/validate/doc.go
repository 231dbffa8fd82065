// Package validate checks the instrument before anything is measured with it.
//
// Three questions, none of which needs a model: do arrivals come as the process says ([Arrivals], over many seeds, with
// processes that must be told apart from it as controls); does a server that can do half of what is offered show latencies that
// grow without bound, as they must on an open loop and never do on a closed one ([Overload], beside the same server at half of
// its capacity); and how far is the generator behind its schedule at a given rate ([Lag], by its own count and as the server
// sees it).
//
// The first is deterministic. The others run on the real clock against a server in this process, which competes with the
// generator for the machine: what they find is rather too bad than too good.
package validate
