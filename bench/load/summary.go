package load

import (
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Durations sums up a set of durations, to three digits.
type Durations struct {
	Count int64         `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}

// Interval is what became of the requests that were to arrive in one stretch of the run.
type Interval struct {
	Start    time.Duration `json:"start_ns"` // since the start of the run
	Requests int           `json:"requests"`
	OK       int           `json:"ok"`
	Refused  int           `json:"refused"`
	TTFT     Durations     `json:"ttft"`
	E2E      Durations     `json:"e2e"`
	Lag      Durations     `json:"lag"`
}

// Summary is what became of a run's requests. Latencies count from the intended arrival; TTFT, Gap and E2E are those
// of complete answers, Lag is every request's.
type Summary struct {
	Length    time.Duration   `json:"length_ns"` // until the last answer
	Requests  int             `json:"requests"`
	Rate      float64         `json:"requests_per_second"` // offered, over the time of arrivals
	OKRate    float64         `json:"ok_per_second"`       // complete answers over Length
	Outcomes  map[Outcome]int `json:"outcomes"`
	Reasons   map[string]int  `json:"reasons,omitempty"` // of refusals and errors
	Tokens    int             `json:"output_tokens"`     // as the usage of complete answers says
	TTFT      Durations       `json:"ttft"`
	Gap       Durations       `json:"gap"`
	E2E       Durations       `json:"e2e"`
	Lag       Durations       `json:"lag"`
	Intervals []Interval      `json:"intervals,omitempty"`
}

// Histogram holds durations from 1 µs to 1 h. It has one owner.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram returns an empty histogram with the given number of significant digits, 1 to 5.
func NewHistogram(digits int) *Histogram {
	return &Histogram{hdrhistogram.New(int64(time.Microsecond), int64(time.Hour), digits)}
}

// Add counts d; what is outside the range is counted as its edge.
func (h *Histogram) Add(d time.Duration) {
	// The only error is a value outside the range.
	_ = h.h.RecordValue(int64(min(max(d, 0), time.Hour)))
}

// Quantile returns the duration below which a share q in [0, 1] lies.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtQuantile(100 * q))
}

// Durations sums the histogram up.
func (h *Histogram) Durations() Durations {
	if h == nil || h.h.TotalCount() == 0 {
		return Durations{}
	}
	v := h.h.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9})
	return Durations{
		Count: h.h.TotalCount(), Mean: time.Duration(h.h.Mean()),
		P50: time.Duration(v[0]), P90: time.Duration(v[1]), P99: time.Duration(v[2]), P999: time.Duration(v[3]),
		Max: time.Duration(h.h.Max()),
	}
}

// Collector sums records up as they come. It is safe for concurrent use.
type Collector struct {
	every time.Duration

	mu        sync.Mutex
	outcomes  map[Outcome]int
	reasons   map[string]int
	requests  int
	tokens    int
	last      time.Duration // intended arrival
	ttft      *Histogram
	gap       *Histogram
	e2e       *Histogram
	lag       *Histogram
	intervals map[int64]*interval
}

type interval struct {
	row            Interval
	ttft, e2e, lag *Histogram
}

// NewCollector returns an empty collector. Rows of Summary.Intervals are as long as every; 0 has none.
func NewCollector(every time.Duration) *Collector {
	return &Collector{every: every, outcomes: map[Outcome]int{}, reasons: map[string]int{}, intervals: map[int64]*interval{},
		ttft: NewHistogram(3), gap: NewHistogram(3), e2e: NewHistogram(3), lag: NewHistogram(3)}
}

// Add counts a complete record.
func (c *Collector) Add(r *Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.outcomes[r.Outcome]++
	if r.Reason != "" {
		c.reasons[r.Reason]++
	}
	c.last = max(c.last, r.Intended)
	c.lag.Add(r.Lag)
	var iv *interval
	if c.every > 0 {
		iv = c.interval(int64(r.Intended / c.every))
		iv.row.Requests++
		iv.lag.Add(r.Lag)
	}
	switch r.Outcome {
	case Refused:
		if iv != nil {
			iv.row.Refused++
		}
	case OK:
		if r.Usage != nil {
			c.tokens += r.Usage.CompletionTokens
		}
		c.e2e.Add(r.E2E)
		if r.TTFT >= 0 {
			c.ttft.Add(r.TTFT)
		}
		for _, g := range r.Gaps {
			c.gap.Add(g)
		}
		if iv != nil {
			iv.row.OK++
			iv.e2e.Add(r.E2E)
			if r.TTFT >= 0 {
				iv.ttft.Add(r.TTFT)
			}
		}
	}
}

func (c *Collector) interval(n int64) *interval {
	iv := c.intervals[n]
	if iv == nil { // two digits: there may be thousands of intervals
		iv = &interval{ttft: NewHistogram(2), e2e: NewHistogram(2), lag: NewHistogram(2)}
		iv.row.Start = time.Duration(n) * c.every
		c.intervals[n] = iv
	}
	return iv
}

// Summary sums up what was added, for a run of the given length. The collector can go on.
func (c *Collector) Summary(length time.Duration) *Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Summary{
		Length: length, Requests: c.requests, Tokens: c.tokens,
		Outcomes: map[Outcome]int{}, Reasons: map[string]int{},
		TTFT: c.ttft.Durations(), Gap: c.gap.Durations(), E2E: c.e2e.Durations(), Lag: c.lag.Durations(),
	}
	for k, v := range c.outcomes {
		s.Outcomes[k] = v
	}
	for k, v := range c.reasons {
		s.Reasons[k] = v
	}
	if c.last > 0 {
		s.Rate = float64(c.requests) / c.last.Seconds()
	}
	if length > 0 {
		s.OKRate = float64(c.outcomes[OK]) / length.Seconds()
	}
	for _, iv := range c.intervals {
		row := iv.row
		row.TTFT, row.E2E, row.Lag = iv.ttft.Durations(), iv.e2e.Durations(), iv.lag.Durations()
		s.Intervals = append(s.Intervals, row)
	}
	slices.SortFunc(s.Intervals, func(a, b Interval) int { return int(a.Start - b.Start) })
	return s
}
