package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
)

// name begins the ids of requests.
const name = "validate"

// measure offers a Poisson process to a stub and returns all requests, in order.
func measure(ctx context.Context, s *stub, rate float64, length, drain time.Duration) (_ *record.Run, rows []record.Request, err error) {
	cfg := load.DefaultClientConfig()
	cfg.URL, cfg.Timeout = s.URL, length+drain
	client, err := load.NewClient(cfg)
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	source, err := smallest()
	if err != nil {
		return nil, nil, err
	}
	t := load.Trial{
		Client: client, Form: &load.Form{Endpoint: load.Completions, Model: "stub", Name: name}, Source: source,
		Arrivals: arrival.Poisson{}.Times(1, rate, length), Drain: drain,
		Run:  record.Run{On: "stub", Arrivals: arrival.Poisson{}.String(), Rate: rate, Seed: 1, Length: length},
		Sink: func(r *record.Request) error { rows = append(rows, *r); return nil },
	}
	run, err := t.Measure(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(rows, func(a, b record.Request) int { return cmp.Compare(a.Index, b.Index) })
	return run, rows, nil
}

// Overload is what a server with a fixed service time shows over the run.
type Overload struct {
	Rate     float64         `json:"rate"`
	Service  time.Duration   `json:"service_ns"`
	Load     float64         `json:"load"` // Rate × Service: above 1 the server cannot keep up
	Length   time.Duration   `json:"length_ns"`
	Requests int             `json:"requests"`
	Answered int             `json:"answered"`
	Medians  []time.Duration `json:"e2e_median_by_quarter_ns"` // by intended arrival
	// Expected are, above capacity, the medians without randomness: a queue that grows at the rate of what is not served; below,
	// the mean of an M/D/1 queue, which the median is below.
	Expected []time.Duration `json:"e2e_expected_by_quarter_ns"`
	Invalid  []string        `json:"invalid,omitempty"`
	Passed   bool            `json:"passed"`
}

// Quarters of a run.
const quarters = 4

// Queue offers rate requests/s for a time to a server that takes service for each, one after the other.
//
// Above capacity it passes if the median latency grows from each quarter to the next by at least half of what is expected. Below, if
// each quarter's median is at most three times what is expected. Either way everything must be answered, and the generator on time.
func Queue(ctx context.Context, rate float64, service, length time.Duration) (out *Overload, err error) {
	s, err := startStub(service)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	out = &Overload{Rate: rate, Service: service, Load: rate * service.Seconds(), Length: length}
	// Twice the backlog that is expected, and something for chance.
	drain := time.Duration(2*max(0, out.Load-1)*float64(length)) + 20*service + 5*time.Second
	run, rows, err := measure(ctx, s, rate, length, drain)
	if err != nil {
		return nil, err
	}
	out.Requests, out.Invalid = len(rows), run.Invalid
	parts := make([][]time.Duration, quarters)
	for i := range rows {
		if rows[i].Outcome == record.OK {
			out.Answered++
			part := int(rows[i].Intended * quarters / length)
			parts[part] = append(parts[part], rows[i].E2E)
		}
	}
	for i, part := range parts {
		if len(part) == 0 {
			return nil, fmt.Errorf("validate: nothing of quarter %d of the run was answered", i+1)
		}
		slices.Sort(part)
		out.Medians = append(out.Medians, time.Duration(stat.Quantile(part, 0.5)))
		out.Expected = append(out.Expected, out.expect(i))
	}
	out.Passed = out.passed()
	return out, nil
}

// expect is what is expected of the median of a quarter.
func (o *Overload) expect(quarter int) time.Duration {
	if o.Load < 1 {
		return o.Service + time.Duration(o.Load/(2*(1-o.Load))*float64(o.Service))
	}
	middle := (float64(quarter) + 0.5) / quarters * float64(o.Length)
	return o.Service + time.Duration((o.Load-1)*middle)
}

// passed is the verdict on what was seen.
func (o *Overload) passed() bool {
	return o.Answered == o.Requests && len(o.Invalid) == 0 && o.shape()
}

// shape reports whether the medians go as they must.
func (o *Overload) shape() bool {
	if o.Load < 1 {
		for i, m := range o.Medians {
			if m > 3*o.Expected[i] {
				return false
			}
		}
		return true
	}
	for i := 1; i < quarters; i++ {
		if o.Medians[i]-o.Medians[i-1] < (o.Expected[i]-o.Expected[i-1])/2 {
			return false
		}
	}
	return true
}

// Punctuality is how far the generator is behind its schedule.
type Punctuality struct {
	Rate     float64       `json:"rate"`
	Length   time.Duration `json:"length_ns"`
	Requests int           `json:"requests"`
	P50      time.Duration `json:"lag_p50_ns"`
	P99      time.Duration `json:"lag_p99_ns"`
	P999     time.Duration `json:"lag_p999_ns"`
	Max      time.Duration `json:"lag_max_ns"`
	// Seen is how much later requests came to the server than its most punctual one, each against its own schedule. The wire
	// and the server's own delays are in it.
	Seen    Seen     `json:"seen_by_server"`
	Invalid []string `json:"invalid,omitempty"`
	Passed  bool     `json:"passed"` // it would not invalidate a run
}

// Seen are quantiles of delays.
type Seen struct {
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// Lag offers rate requests/s for a time to a server that answers at once.
func Lag(ctx context.Context, rate float64, length time.Duration) (out *Punctuality, err error) {
	s, err := startStub(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	run, rows, err := measure(ctx, s, rate, length, 5*time.Second)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("validate: no request arrives at a rate of %v in %v", rate, length)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var lags, seen []time.Duration
	first := s.arrivals[name+"-0"]
	for i := range rows {
		lags = append(lags, rows[i].Lag)
		if at, ok := s.arrivals[name+"-"+strconv.Itoa(rows[i].Index)]; ok {
			seen = append(seen, at.Sub(first)-rows[i].Intended)
		}
	}
	if len(seen) != len(rows) {
		return nil, fmt.Errorf("validate: %d of %d requests came to the server", len(seen), len(rows))
	}
	slices.Sort(lags)
	slices.Sort(seen)
	of := func(sorted []time.Duration, q float64) time.Duration { return time.Duration(stat.Quantile(sorted, q)) }
	return &Punctuality{
		Rate: rate, Length: length, Requests: len(rows), P50: of(lags, 0.5), P99: of(lags, 0.99), P999: of(lags, 0.999), Max: lags[len(lags)-1],
		Seen:    Seen{P50: of(seen, 0.5) - seen[0], P99: of(seen, 0.99) - seen[0], Max: seen[len(seen)-1] - seen[0]},
		Invalid: run.Invalid, Passed: run.Valid(),
	}, nil
}
