package workload

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// Source gives the requests of a run. It is safe for concurrent use.
type Source interface {
	// Name is the workload's.
	Name() string
	// Describe is all that is needed to make the same requests again, as JSON, for the run's record.
	Describe() json.RawMessage
	// SLOs are the objectives by class; nil: the workload declares none.
	SLOs() map[string]record.SLO
	// Request returns the i-th request, i ≥ 0.
	Request(i int) Request
}

// Timed is a Source whose requests come with times of their own, as those of a trace do.
type Timed interface {
	Source
	// Arrivals are the times since the beginning of the trace, ascending, one for each request; never rescaled.
	Arrivals() iter.Seq[time.Duration]
}

// OpenSource opens a source by name: a workload as [Open] finds it, drawn with seed.
func OpenSource(name string, vocab Vocabulary, seed uint64) (Source, error) {
	spec, err := Open(name)
	if err != nil {
		return nil, err
	}
	return New(spec, vocab, seed)
}
