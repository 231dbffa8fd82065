// Package stack tells whose code a stack was in. Pure.
package stack

import "strings"

// Owners names code by the beginning of its functions' names: pairs of a prefix and a name, of which the first that fits counts.
type Owners [][2]string

// Of is the name of the innermost code on a stack, which lists functions innermost first, that has one; "other" if none has. cgo's
// frames have none, so that time in C counts for the Go function that called it.
func (o Owners) Of(stack []string) string {
	for _, f := range stack {
		for _, owner := range o {
			if strings.HasPrefix(f, owner[0]) {
				return owner[1]
			}
		}
	}
	return "other"
}
