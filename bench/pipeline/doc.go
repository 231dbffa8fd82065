// Package pipeline runs what is measured: every service of Cadence in a child process (`cadence up`) with a state of its
// own, and what must be known of its model and machine. Nothing here is for concurrent use.
package pipeline
