package admission

import (
	"fmt"
	"slices"
	"strings"
)

// arm is a rule with its grid of constants.
type arm struct {
	name  string
	of    string  // in package control
	level float64 // of its bounds; 0: it has none
	means string  // what its constant is
	grid  []float64
	group string // of the figure in which it is drawn
}

// none is the arm that the others are compared with.
const none = "none"

// Groups of arms in figures.
const (
	both    = "" // drawn in either
	limits  = "limits and rules without bounds"
	bounded = "bounds on the latency"
)

// every arm. What is first in a grid is taken where two do equally well. The frozen gates are tuned by their hysteresis only: their
// margin is the level, of which there are three.
var every = []arm{
	{none, "none", 0, "", []float64{0}, both},
	{"queue-wait", "queue-wait", 0, "longest wait (s)", []float64{0.75, 0.03, 0.1, 0.3}, limits},
	{"queue-depth", "queue-depth", 0, "waiting requests", []float64{8, 1, 2, 4}, limits},
	{"in-flight", "in-flight", 0, "requests held", []float64{8, 4, 6, 12}, limits},
	{"shed", "shed", 0, "part of the engine's time", []float64{0.8, 0.4, 0.6, 1}, limits},
	{"constant-quantile", "constant-quantile", 0, "level", []float64{0.95, 0.5, 0.8, 0.99}, limits},
	{"throughput", "throughput", 0, "level", []float64{0.95, 0.5, 0.8, 0.9}, limits},
	{"frozen-u80", "frozen-bound", 0.8, "hysteresis", []float64{0.9, 0.8, 0.95, 1}, bounded},
	{"frozen-u95", "frozen-bound", 0.95, "hysteresis", []float64{0.9, 0.8, 0.95, 1}, bounded},
	{"frozen-u99", "frozen-bound", 0.99, "hysteresis", []float64{0.9, 0.8, 0.95, 1}, bounded},
	{"online-u80", "online-bound", 0.8, "factor on the bound", []float64{1, 0.8, 0.9, 1.1}, bounded},
	{"marginal", "marginal", 0.8, "part of the engine's time", []float64{0.8, 0.4, 0.6, 1}, both},
}

// arms are those that are asked for, in their usual order.
func (o *Options) arms() ([]*arm, error) {
	var names []string
	for i := range every {
		names = append(names, every[i].name)
	}
	for _, name := range o.Arms {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%w: arms has %q, allowed: %s", ErrConfig, name, strings.Join(names, ", "))
		}
	}
	var out []*arm
	for i := range every {
		if a := &every[i]; len(o.Arms) == 0 || slices.Contains(o.Arms, a.name) || a.name == none {
			out = append(out, a)
		}
	}
	return out, nil
}

// constants are the grid, the same number for every arm that has one.
func (a *arm) constants(quick bool) []float64 {
	if quick {
		return a.grid[:min(2, len(a.grid))]
	}
	return a.grid
}
