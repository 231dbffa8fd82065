package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
)

// LadderFile is the definition of the experiment, from which the order of arms is read.
const LadderFile = "ladder.json"

// ErrRecords is returned for a directory that no report can be made from.
var ErrRecords = errors.New("report: no report from these records")

// Options say how records are read. The zero value is the usual way.
type Options struct {
	SLOs      map[string]record.SLO // by class; "*" is every class; nil: those that the runs declare
	Partial   bool                  // count runs that were stopped before their end, too
	Overload  float64               // requests/s at which arms are compared past the knee; 0: chosen, see Report.Overload
	Baseline  string                // arm that every other is compared with; empty: each with the one before
	Resamples int                   // of the bootstrap; 0: stat.Resamples
	Worse     float64               // least change that the table of what got worse shows, a ratio; 0: 0.05
	Seed      uint64                // of the bootstrap
}

// Factors are the multiples of the objective that the sensitivity table shows.
var Factors = []float64{0.5, 0.75, 1, 1.5, 2}

// Bounds says whether the latencies that admission promised were kept.
type Bounds struct {
	Count  int           `json:"count"` // requests with a bound that were neither shed nor failed
	Kept   int           `json:"kept"`  // of those, ended within it
	Bound  time.Duration `json:"bound_sum_ns"`
	Actual time.Duration `json:"actual_sum_ns"`
}

// Run is a run that counts.
type Run struct {
	*record.Run
	Dir         string       `json:"-"`
	Summary     stat.Summary `json:"summary"`
	Sensitivity []float64    `json:"sensitivity_goodput"` // goodput at each of Factors
	Bounds      Bounds       `json:"bounds"`
}

// Excluded is a run that does not count.
type Excluded struct {
	ID   string  `json:"id"`
	Arm  string  `json:"arm"`
	Rate float64 `json:"rate"`
	Seed uint64  `json:"seed"`
	Why  string  `json:"why"`
}

// Report is what a directory of records shows.
type Report struct {
	Dir      string                `json:"-"`
	Arms     []string              `json:"arms"`  // in order: each is compared with the one before
	Rates    []float64             `json:"rates"` // ascending
	SLOs     map[string]record.SLO `json:"slos"`
	Runs     []*Run                `json:"runs"` // in order of arm, rate, block, seed, execution
	Excluded []Excluded            `json:"excluded"`

	seeds   []uint64 // that ladder.json names
	options Options
	cells   map[cellKey]*Cell
}

// Load reads the complete runs below dir. It returns ErrRecords if there are none, or if they are of more than one
// experiment.
func Load(dir string, o Options) (*Report, error) {
	if o.Worse == 0 {
		o.Worse = 0.05
	}
	r := &Report{Dir: dir, options: o, cells: map[cellKey]*Cell{}}
	dirs, err := record.Runs(dir)
	if err != nil {
		return nil, err
	}
	var all []*record.Run
	for _, d := range dirs {
		run, err := record.Open(d)
		if err != nil {
			return nil, err
		}
		all = append(all, run)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s has no complete run", ErrRecords, dir)
	}
	if err := r.agree(all); err != nil {
		return nil, err
	}
	for i, run := range all {
		if why := r.excluded(run); why != "" {
			r.Excluded = append(r.Excluded, Excluded{run.ID, run.Arm, run.Rate, run.Seed, why})
			continue
		}
		rows, err := record.Requests(dirs[i])
		if err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, r.run(dirs[i], run, rows))
	}
	open, err := unended(dir)
	if err != nil {
		return nil, err
	}
	r.Excluded = append(r.Excluded, open...)
	if err := r.order(all); err != nil {
		return nil, err
	}
	r.fill()
	return r, r.settleOverload()
}

// tolerance is how far a rate may be from one that was written with four digits.
const tolerance = 0.001

// settleOverload makes the rate that was asked for the rate of runs, or returns ErrRecords.
func (r *Report) settleOverload() error {
	if r.options.Overload == 0 {
		return nil
	}
	nearest := slices.MinFunc(r.Rates, func(a, b float64) int {
		return cmp.Compare(math.Abs(a-r.options.Overload), math.Abs(b-r.options.Overload))
	})
	if math.Abs(nearest-r.options.Overload) > tolerance*r.options.Overload {
		return fmt.Errorf("%w: no run is at %s req/s; the nearest are at %s", ErrRecords, number(r.options.Overload), number(nearest))
	}
	r.options.Overload = nearest
	return nil
}

// agree settles the objectives, and refuses runs that cannot be in one table.
func (r *Report) agree(all []*record.Run) error {
	first := all[0]
	type point struct {
		rate float64
		seed uint64
	}
	ids, lengths := map[string]bool{}, map[point]*record.Run{}
	for _, run := range all {
		if ids[run.ID] {
			return fmt.Errorf("%w: two runs are called %s: is one directory a copy of another?", ErrRecords, run.ID)
		}
		ids[run.ID] = true
		if run.Partial {
			continue // its length is where it was stopped
		}
		at := point{run.Rate, run.Seed}
		if o := lengths[at]; o != nil && (o.Length != run.Length || o.Warmup != run.Warmup || o.Tail != run.Tail) {
			return fmt.Errorf("%w: %s and %s are of one rate and seed and differ in length, warm-up or tail", ErrRecords, o.ID, run.ID)
		}
		lengths[at] = run
	}
	for _, run := range all[1:] {
		for _, f := range []struct{ what, a, b string }{
			{"experiment", first.Experiment, run.Experiment}, {"on", first.On, run.On}, {"workload", first.Workload, run.Workload}, {"arrivals", first.Arrivals, run.Arrivals},
			{"model", first.Model, run.Model}, {"profile", first.Profile, run.Profile},
		} {
			if f.a != f.b {
				return fmt.Errorf("%w: %s and %s differ in %s: %q and %q; give one directory for each", ErrRecords, first.ID, run.ID, f.what, f.a, f.b)
			}
		}
	}
	r.SLOs = map[string]record.SLO{}
	for _, run := range all {
		for class, s := range run.SLOs {
			if o, ok := pick(r.options.SLOs, class); ok {
				s = o
			}
			if have, ok := r.SLOs[class]; ok && have != s {
				return fmt.Errorf("%w: runs declare different objectives of class %q; say which one counts (--slo)", ErrRecords, class)
			}
			r.SLOs[class] = s
		}
	}
	for class, s := range r.options.SLOs {
		if class != Every {
			r.SLOs[class] = s
		}
	}
	return nil
}

// excluded is why a run does not count, empty if it does.
func (r *Report) excluded(run *record.Run) string {
	switch {
	case !run.Valid():
		return "invalid: " + strings.Join(run.Invalid, "; ")
	case run.Partial && !r.options.Partial:
		return "partial: stopped before its end"
	}
	return ""
}

// run sums up one run.
func (r *Report) run(dir string, run *record.Run, rows []record.Request) *Run {
	for i := range rows { // classes without an objective of their own
		class := rows[i].Class
		if _, ok := r.SLOs[class]; !ok {
			if s, ok := pick(r.options.SLOs, class); ok {
				r.SLOs[class] = s
			}
		}
	}
	out := &Run{Run: run, Dir: dir, Summary: stat.Summarize(run, rows, r.SLOs)}
	for _, f := range Factors {
		out.Sensitivity = append(out.Sensitivity, stat.Goodput(run, rows, stat.Scale(r.SLOs, f)))
	}
	for i := range rows {
		q := &rows[i]
		if q.Bound <= 0 || q.Phase != record.Measure || q.Outcome == record.Shed || q.Outcome == record.Error {
			continue
		}
		b := &out.Bounds
		b.Count, b.Bound, b.Actual = b.Count+1, b.Bound+q.Bound, b.Actual+q.E2E
		if q.Outcome == record.OK && q.E2E <= q.Bound {
			b.Kept++
		}
	}
	return out
}

// unended lists the directories below dir in which a run began and did not end.
func unended(dir string) ([]Excluded, error) {
	var out []Excluded
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != record.ParquetFile {
			return err
		}
		at := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(at, record.RunFile)); errors.Is(err, fs.ErrNotExist) {
			out = append(out, Excluded{ID: filepath.Base(at), Why: "did not end"})
		} else if err != nil {
			return err
		}
		return nil
	})
	return out, err
}

// armName is an arm in ladder.json: its name, or an object that has it.
type armName string

// UnmarshalJSON implements json.Unmarshaler.
func (a *armName) UnmarshalJSON(b []byte) error {
	var arm struct{ Name string }
	if json.Unmarshal(b, &arm) == nil {
		*a = armName(arm.Name)
		return nil
	}
	return json.Unmarshal(b, (*string)(a))
}

// order settles the order of arms and rates and sorts the runs by it. Arms of ladder.json that left no run stay, so that no
// arm takes their place in comparisons; those that it does not name come last, in order of execution.
func (r *Report) order(all []*record.Run) error {
	b, err := os.ReadFile(filepath.Join(r.Dir, LadderFile))
	if err == nil {
		var ladder struct {
			Arms       []armName `json:"arms"`
			Definition struct {
				Arms  []armName `json:"arms"`
				Seeds []uint64  `json:"seeds"`
			} `json:"definition"`
		}
		if err := json.Unmarshal(b, &ladder); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRecords, filepath.Join(r.Dir, LadderFile), err)
		}
		for _, arm := range append(ladder.Arms, ladder.Definition.Arms...) {
			if !slices.Contains(r.Arms, string(arm)) {
				r.Arms = append(r.Arms, string(arm))
			}
		}
		r.seeds = ladder.Definition.Seeds
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *record.Run) int { return a.Order - b.Order })
	for _, run := range all {
		if !slices.Contains(r.Arms, run.Arm) {
			r.Arms = append(r.Arms, run.Arm)
		}
		if !slices.Contains(r.Rates, run.Rate) {
			r.Rates = append(r.Rates, run.Rate)
		}
	}
	slices.Sort(r.Rates)
	if b := r.options.Baseline; b != "" && !slices.Contains(r.Arms, b) {
		return fmt.Errorf("%w: no arm is called %q; there are %s", ErrRecords, b, strings.Join(r.Arms, ", "))
	}
	slices.SortStableFunc(r.Runs, func(a, b *Run) int { return compareRuns(r.Arms, a, b) })
	return nil
}
