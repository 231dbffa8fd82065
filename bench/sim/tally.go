package sim

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/cadence-slo/cadence/bench/record"
)

// Tally sums up a run's measured phase in constant memory; quantiles are within 0.1 %. Use NewTally.
type Tally struct {
	run       *record.Run
	Offered   int                    `json:"offered"`
	Good      int                    `json:"good"`
	Outcomes  map[record.Outcome]int `json:"outcomes"`
	ttft, e2e *hdrhistogram.Histogram
}

// NewTally returns an empty tally; of run it only needs the phases and the objectives.
func NewTally(run *record.Run) *Tally {
	// From a microsecond to a day.
	histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, 86_400_000_000, 3) }
	return &Tally{run: run, Outcomes: map[record.Outcome]int{}, ttft: histogram(), e2e: histogram()}
}

// Add counts a request.
func (t *Tally) Add(r *record.Request) {
	if r.Phase != record.Measure {
		return
	}
	t.Offered++
	t.Outcomes[r.Outcome]++
	if t.run.Good(r) {
		t.Good++
	}
	if r.Outcome == record.OK { // nothing is beyond a day but what is not served at all
		_ = t.ttft.RecordValue(min(r.TTFT.Microseconds(), 86_400_000_000))
		_ = t.e2e.RecordValue(min(r.E2E.Microseconds(), 86_400_000_000))
	}
}

// TTFT and E2E are quantiles, q in [0, 1], of answered requests.
func (t *Tally) TTFT(q float64) time.Duration { return quantile(t.ttft, q) }

// E2E is a quantile as TTFT is.
func (t *Tally) E2E(q float64) time.Duration { return quantile(t.e2e, q) }

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(100*q)) * time.Microsecond
}
