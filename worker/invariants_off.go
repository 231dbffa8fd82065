//go:build !invariants

package worker

// invariants: an engine verifies its planner's books only if Config.CheckInvariants says so.
const invariants = false
