//go:build invariants

package worker

// invariants: every engine verifies its planner's books after each step.
const invariants = true
