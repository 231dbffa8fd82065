// Package provenance says which engine was measured: a hash over its sources, which every record carries.
//
// A binary cannot read its own sources, and what is embedded of other packages would have to be embedded by each of them.
// So the build stamps the hash: the Makefile runs ./srchash over the tree that it compiles and hands the result to the
// linker. That is as true as the build is: `make build` from a tree with local changes stamps the hash of the changed
// files, which a commit's id could not tell. A binary that was built in another way (go build, go run, go test) falls back
// to the commit in its build information, marked when the tree had changes, and says "unknown" without one.
package provenance
