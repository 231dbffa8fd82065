package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// spread says what the brackets are.
func (r *Report) spread() string {
	seeds := map[uint64]bool{}
	for _, run := range r.Runs {
		seeds[run.Seed] = true
	}
	fewest, most := math.MaxInt, 0
	for _, c := range r.cells {
		fewest, most = min(fewest, len(c.Runs)), max(most, len(c.Runs))
	}
	cells := ""
	if fewest < most {
		cells = fmt.Sprintf(", %d to %d runs for an arm at a rate", fewest, most)
	}
	return fmt.Sprintf("Mean over runs (%d seeds%s), [least, largest]. ≥: lower bound, requests were given up before their answer came.", len(seeds), cells)
}

// gaps says how many runs are in no table and how many cells have fewer than others; empty for none. It stands below every
// table, since a table may be read alone.
func (r *Report) gaps() string {
	var parts []string
	if n := len(r.Excluded); n > 0 {
		parts = append(parts, fmt.Sprintf("%d runs do not count (table excluded).", n))
	}
	if n := len(r.Missing()); n > 0 && len(r.Runs) > 0 {
		parts = append(parts, fmt.Sprintf("%d cells or seeds are not there (table full).", n))
	}
	return strings.Join(parts, " ")
}

// has reports whether a run of an arm counts.
func (r *Report) has(arm string) bool {
	return slices.ContainsFunc(r.Runs, func(run *Run) bool { return run.Arm == arm })
}
