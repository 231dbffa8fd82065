// Package services wires Cadence together: configuration, sub-commands, and the ordered start and stop of what one
// process runs. It is the only package, beside the harness, that imports several shells.
//
// A process starts its components one after the other, each when the one before is ready, and stops them in the
// opposite order, each with its own time limit: the ingress drains while scheduler and workers still serve it, and the
// stream server goes last.
package services
