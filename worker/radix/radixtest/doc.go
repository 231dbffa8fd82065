// Package radixtest holds a prefix cache that is obviously right and slow, to be run in lockstep with radix.Tree: a
// plain list of nodes, each with its whole path, searched from end to end; nothing is counted or linked. Its tests run
// random operations on it and the tree, together with the allocators of kv and kvtest, and compare everything that can
// be seen after every operation.
package radixtest
