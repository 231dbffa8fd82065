package record

import (
	"encoding/json"
	"time"
)

// Version of the form of run.json and requests.parquet.
const Version = 1

// Run describes one run. The zero value of a field is "does not apply".
type Run struct {
	Version int       `json:"version"`
	ID      string    `json:"id"` // unique within an experiment; the directory's name
	Time    time.Time `json:"time"`

	// What was compared: runs of one experiment differ in these.
	Experiment string  `json:"experiment,omitempty"`
	On         string  `json:"on"`             // sim, mock, llama, or the URL of a server
	Arm        string  `json:"arm"`            // the rung or policy
	Load       float64 `json:"load,omitempty"` // offered rate as a multiple of the measured capacity
	Rate       float64 `json:"rate"`           // offered, requests/s
	Seed       uint64  `json:"seed"`
	Block      int     `json:"block"` // runs of one block were interleaved
	Order      int     `json:"order"` // place in the experiment's order of execution

	Workload     string          `json:"workload"`
	WorkloadSpec json.RawMessage `json:"workload_spec,omitempty"`
	Arrivals     string          `json:"arrivals"`       // as package arrival writes it
	SLOs         map[string]SLO  `json:"slos"`           // by class, see Objective
	Args         []string        `json:"args,omitempty"` // of the service that was measured

	Length time.Duration `json:"length_ns"` // of the arrivals
	Warmup time.Duration `json:"warmup_ns"` // arrivals before are of phase warmup
	Tail   time.Duration `json:"tail_ns"`   // the last of the arrivals are of phase tail
	Wall   time.Duration `json:"wall_ns"`   // until the last answer; of the simulated clock in a simulation

	// What it ran on.
	Build   string `json:"build"`       // version of cadence
	Sources string `json:"source_hash"` // provenance: SHA-256 over the engine's sources, see package provenance
	Model   string `json:"model,omitempty"`
	Profile string `json:"profile,omitempty"` // engine profile, for sim and mock
	// ProfileSHA256 is of the profile's content: names and paths do not tell what was in it.
	ProfileSHA256 string          `json:"profile_sha256,omitempty"`
	Machine       json.RawMessage `json:"machine,omitempty"`
	Canary        *Canary         `json:"canary,omitempty"`
	Capacity      float64         `json:"capacity,omitempty"` // requests/s that Load is a multiple of

	// What the server counted over the run; -1: unknown.
	PromptTokens int64 `json:"prompt_tokens"`
	CachedTokens int64 `json:"cached_tokens"`
	Preemptions  int64 `json:"preemptions"`

	// Lag of the generator behind its schedule. A run over budget is invalid: it measured the generator.
	LagP99    time.Duration `json:"lag_p99_ns"`
	LagMax    time.Duration `json:"lag_max_ns"`
	LagBudget time.Duration `json:"lag_budget_ns"`
	Partial   bool          `json:"partial"` // stopped before its end: what is there counts
	Invalid   []string      `json:"invalid,omitempty"`
	Notes     []string      `json:"notes,omitempty"` // what its reader should know; the run is valid for all that
}

// Canary is a fixed piece of work on the idle engine just before a run, past admission: a direct reading of how fast the machine was.
type Canary struct {
	Tokens     int           `json:"tokens"`
	Took       time.Duration `json:"took_ns"`
	TokensRate float64       `json:"tokens_per_second"` // of those after the first
	Err        string        `json:"error,omitempty"`
}

// Valid reports whether the run says anything about the server.
func (r *Run) Valid() bool { return len(r.Invalid) == 0 }

// SLO returns the objective of a request.
func (r *Run) SLO(q *Request) SLO { return Objective(r.SLOs, q.Class) }

// Good reports whether a request kept its objective.
func (r *Run) Good(q *Request) bool { return r.SLO(q).Keeps(q) }

// PhaseAt returns the phase of an arrival.
func (r *Run) PhaseAt(at time.Duration) Phase {
	switch {
	case at < r.Warmup:
		return Warmup
	case at >= r.Length-r.Tail:
		return Tail
	default:
		return Measure
	}
}
