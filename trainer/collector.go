package trainer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/length"
)

// ErrEngine is the error of traces that no engine, or not the one that was asked for, can be told of.
var ErrEngine = errors.New("trainer: engine")

// lengthHalfLife is after how many answers an answer weighs half in the lengths that an artifact begins with.
const lengthHalfLife = 2000

// Collector makes rows of traces and keeps them by engine: what is learned of one means nothing for another. It has one owner.
type Collector struct {
	per      int
	seed     uint64
	rounding Rounding
	force    string
	last     string // the engine of the latest trace that names one
	mark     time.Time
	engines  map[string]*Collected
	skipped  map[string]int
}

// Collected is what was gathered of one engine.
type Collected struct {
	Fingerprint string
	Seen        int // rows
	Censored    int // of them
	New         int // of them, that arrived later than Collector.Mark
	From, To    time.Time
	reservoir   *Reservoir
	lengths     *length.Table
}

// NewCollector keeps per rows of each stratum; see NewReservoir. With an engine's fingerprint, traces of other engines are skipped, and
// those that tell of none are taken for its own. ErrConfig.
func NewCollector(per int, seed uint64, r Rounding, fingerprint string) (*Collector, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if _, err := NewReservoir(per, rand.New(rand.NewPCG(seed, 0))); err != nil {
		return nil, err
	}
	return &Collector{per: per, seed: seed, rounding: r, force: fingerprint, last: fingerprint, engines: map[string]*Collected{}, skipped: map[string]int{}}, nil
}

// Mark makes rows that arrive later than a time count as new; those that were added are not looked at again.
func (c *Collector) Mark(t time.Time) { c.mark = t }

// Add takes a trace, and copies it; traces come in the order of their arrival, or nearly. What cannot be a row is counted.
func (c *Collector) Add(t *Trace) {
	row, err := t.Row(c.rounding)
	if err != nil {
		c.skipped[reason(err)]++
		return
	}
	engine := t.Fingerprint
	switch {
	case c.force != "" && engine == "":
		engine = c.force
	case c.force != "" && engine != c.force:
		c.skipped["of another engine"]++
		return
	case engine == "" && t.Worker != "":
		c.skipped["of a worker whose fingerprint is not known"]++
		return
	case engine == "": // it waited in vain, for the engine that there was
		engine = c.last
	}
	if engine == "" {
		c.skipped["before any engine"]++
		return
	}
	c.last = engine
	e := c.engines[engine]
	if e == nil {
		reservoir, err := NewReservoir(c.per, rand.New(rand.NewPCG(c.seed, 0x7265737672)))
		if err != nil { // NewCollector has tried
			c.skipped["no reservoir"]++
			return
		}
		e = &Collected{Fingerprint: engine, reservoir: reservoir, lengths: length.New(1, lengthHalfLife), From: t.Arrived, To: t.Arrived}
		c.engines[engine] = e
	}
	if err := e.reservoir.Add(row); err != nil {
		c.skipped[reason(err)]++
		return
	}
	e.Seen++
	if row.Censored {
		e.Censored++
	}
	if t.Arrived.After(c.mark) {
		e.New++
	}
	if t.Arrived.Before(e.From) {
		e.From = t.Arrived
	}
	if t.Arrived.After(e.To) {
		e.To = t.Arrived
	}
	e.lengths.Observe(0, t.OutputTokens, row.Censored || t.OutputTokens >= t.CapTokens)
}

// reason is the last part of an error's text.
func reason(err error) string {
	if !errors.Is(err, ErrSkip) {
		return "not a row"
	}
	return err.Error()[len(ErrSkip.Error())+len(": "):]
}

// Skipped counts the traces that are no rows, by reason.
func (c *Collector) Skipped() map[string]int { return maps.Clone(c.skipped) }

// Engine returns what was gathered of the engine that was asked for, or of the one with the most new rows, and of those the most rows: one
// that was replaced has none. ErrEngine if there is none.
func (c *Collector) Engine() (*Collected, error) {
	if len(c.engines) == 0 {
		if len(c.skipped) == 0 {
			return nil, fmt.Errorf("%w: no rows: no request that was admitted with features has been delivered", ErrEngine)
		}
		return nil, fmt.Errorf("%w: no rows%s", ErrEngine, why(c.skipped))
	}
	all := slices.SortedFunc(maps.Values(c.engines), func(a, b *Collected) int {
		return cmp.Or(cmp.Compare(b.New, a.New), cmp.Compare(b.Seen, a.Seen), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return all[0], nil
}

// why says what was skipped.
func why(skipped map[string]int) string {
	s := ""
	for _, r := range slices.Sorted(maps.Keys(skipped)) {
		s += fmt.Sprintf("; %d %s", skipped[r], r)
	}
	return s
}

// Rows are as in Reservoir.Rows.
func (e *Collected) Rows() []Row { return e.reservoir.Rows() }

// Strata are as in Reservoir.Strata.
func (e *Collected) Strata() []artifact.Stratum { return e.reservoir.Strata() }

// Lengths of all answers together, as one class: an ingress numbers its classes as they come, and each that it knows little of begins with
// what is known of all. See length.Table.Borrow.
func (e *Collected) Lengths() length.State { return e.lengths.State() }
