// Package digest tells which prefixes a worker has cached without telling what they are: a Bloom filter (Bloom 1970) over keyed
// hashes of prefixes of whole pages. The worker builds it, the ingress asks it how much of a prompt need not be computed.
//
// The hash of a prefix is a chain: Root of the scope, then Extend with each page. A prefix is cached only together with all
// shorter ones, so that a question ends at the first page that is absent. The key is the worker's own, drawn for each of its lives:
// equal prompts have different hashes in every digest, and nobody can prepare prompts that collide.
//
// It is pure, keeps nothing between calls, and every function may be called from any goroutine. Who builds a digest from a prefix
// tree collects the hashes in the goroutine that owns the tree; Build needs the hashes only.
//
// Invariant: for a prompt whose cached prefix was handed to Build, Cached returns no less than package batch would compute from
// the tree itself. It returns more with a chance of about 1 % for each page behind it.
package digest
