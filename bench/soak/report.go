package soak

import (
	"io"
	"time"

	"github.com/cadence-slo/cadence/bench/printer"
)

// Trend is how a quantity moved over the samples after the warm-up, by least squares.
type Trend struct {
	PerMinute float64 `json:"bytes_per_minute"`
	Growth    int64   `json:"growth_bytes"` // PerMinute over the time between the first and the last of the samples
	Bound     int64   `json:"bound_bytes"`  // Growth may be as much
	First     int64   `json:"first_bytes"`
	Last      int64   `json:"last_bytes"`
}

// trend judges a quantity that may grow by rate a minute, besides noise.
func trend(samples []Sample, value func(*Sample) int64, rate, noise int64) Trend {
	var t Trend
	if len(samples) == 0 {
		return t
	}
	var x []time.Duration
	var y []int64
	for i := range samples {
		x, y = append(x, samples[i].At), append(y, value(&samples[i]))
	}
	minutes := (x[len(x)-1] - x[0]).Minutes()
	t.PerMinute = slope(x, y) * 60
	t.Growth = int64(t.PerMinute * minutes)
	t.Bound = noise + int64(float64(rate)*minutes)
	t.First, t.Last = y[0], y[len(y)-1]
	return t
}

// Engine is what the worker asked of the engine, and what its planner counted.
type Engine struct {
	Steps        int64  `json:"steps"`
	FailedSteps  int64  `json:"failed_steps"`
	FedTokens    int64  `json:"fed_tokens"`
	Sampled      int64  `json:"sampled_tokens"`
	LargestBatch int64  `json:"largest_batch"`
	Copies       int64  `json:"moves_copy"`
	Trims        int64  `json:"moves_trim"`
	Rebases      int64  `json:"moves_rebase"`
	Preemptions  uint64 `json:"preemptions"`
	Wasted       uint64 `json:"preempted_tokens"`
	Evictions    uint64 `json:"evictions"`
	PageCopies   uint64 `json:"page_copies"`
	Rebased      uint64 `json:"rebased_tokens"`
	PromptTokens uint64 `json:"prompt_tokens"`
	CachedTokens uint64 `json:"cached_tokens"`
}

// Goroutines counts them, but for one of nats.go's that may outlive its connection.
type Goroutines struct {
	Before int `json:"before"` // anything was started
	First  int `json:"first"`  // quiet point after the warm-up
	Last   int `json:"last"`   // quiet point
	After  int `json:"after"`  // everything was stopped
}

// Judged is the Report's Memory if Heap and RSS were held against their bounds.
const Judged = "judged"

// Report is the outcome.
type Report struct {
	On         string        `json:"on"`
	Seed       uint64        `json:"seed"`
	Length     time.Duration `json:"length_ns"`
	KVPages    int           `json:"kv_pages"`
	Sequences  int           `json:"sequences"`
	MaxBatch   int           `json:"max_batch"`
	Overcommit float64       `json:"kv_overcommit"`
	Requests   Counts        `json:"requests"`
	Engine     Engine        `json:"engine"`
	Heap       Trend         `json:"heap"`
	RSS        Trend         `json:"rss"`
	// Memory is Judged, or why Heap and RSS are reported only.
	Memory     string     `json:"memory"`
	Goroutines Goroutines `json:"goroutines"`
	// Vacant: after the end the engine took as many tokens as it has cells, in all of its sequence ids.
	Vacant  bool     `json:"vacant"`
	Samples []Sample `json:"samples"`
	// Problems is what must not be; nothing if Passed.
	Problems []string `json:"problems"`
	Passed   bool     `json:"passed"`
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	p := printer.Printer{W: w}
	p.Line("Soak on %s: %s, %d KV pages overcommitted %g times, %d sequence ids, %d requests at once, seed %d",
		r.On, r.Length.Round(time.Second), r.KVPages, r.Overcommit, r.Sequences, r.MaxBatch, r.Seed)
	c, e := &r.Requests, &r.Engine
	p.Line("requests    %d: %d finished, %d cancelled; %d attempts replaced; %d tokens; %d full, %d late chunks",
		c.Requests, c.Finished, c.Cancelled, c.Replaced, c.Tokens, c.Full, c.Late)
	p.Line("engine      %d steps (%d failed), %d tokens fed, batches up to %d; moves: %d copies, %d trims, %d rebases",
		e.Steps, e.FailedSteps, e.FedTokens, e.LargestBatch, e.Copies, e.Trims, e.Rebases)
	p.Line("planner     %d preemptions (%d tokens wasted), %d evictions, %d pages copied on write, %d tokens rebased, %d of %d prompt tokens cached",
		e.Preemptions, e.Wasted, e.Evictions, e.PageCopies, e.Rebased, e.CachedTokens, e.PromptTokens)
	for _, t := range []struct {
		name string
		t    *Trend
	}{{"heap", &r.Heap}, {"resident", &r.RSS}} {
		p.Line("%-11s %.1f MiB at first, %.1f MiB at last; %+.1f KiB/min, %+.1f KiB in all (allowed %.1f)", t.name,
			float64(t.t.First)/(1<<20), float64(t.t.Last)/(1<<20), t.t.PerMinute/1024, float64(t.t.Growth)/1024, float64(t.t.Bound)/1024)
	}
	p.Line("memory      %s", r.Memory)
	g := &r.Goroutines
	p.Line("goroutines  %d before, %d at the first quiet point, %d at the last, %d after", g.Before, g.First, g.Last, g.After)
	p.Line("engine after the end: vacant %v", r.Vacant)
	for _, s := range r.Problems {
		p.Line("PROBLEM     %s", s)
	}
	p.Line("passed      %v (%d quiet points)", r.Passed, len(r.Samples))
	return p.Err
}
