// Package constraint words what is wrong with options, alike for every command: which key, what it is, what is allowed. Pure.
package constraint

import "fmt"

// Constraint is what must hold of one key.
type Constraint struct {
	key     string
	ok      bool
	value   any
	allowed string
}

// Of returns the constraint that ok holds of a key with a value; allowed tells, in words, which values it holds of.
func Of(key string, ok bool, value any, allowed string) Constraint {
	return Constraint{key, ok, value, allowed}
}

// Check returns nil if all hold, and otherwise the error that wraps invalid and tells of the first that does not.
func Check(invalid error, all ...Constraint) error {
	for _, c := range all {
		if !c.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", invalid, c.key, c.value, c.allowed)
		}
	}
	return nil
}
