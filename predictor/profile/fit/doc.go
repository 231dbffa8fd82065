// Package fit makes a profile of an engine from steps that were timed: least squares that tell what the machine did besides from
// what the engine does. `cadence calibrate` and a worker that measures its engine at start-up share it. It is pure: the hold-out is
// drawn with a seed that is passed in, and it keeps nothing between calls.
package fit
