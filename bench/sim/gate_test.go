package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

// Whoever is refused for capacity found a bound reached, and nobody else did: counted again, from the records.
func TestBoundsAreKept(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		c.MaxOpen, c.MaxWaiting = rapid.IntRange(0, 12).Draw(t, "max_open"), rapid.IntRange(0, 8).Draw(t, "max_waiting")
		var rows []record.Request
		c.Sink = func(r *record.Request) error {
			rows = append(rows, *r)
			return nil
		}
		if _, err := Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(rows, func(a, b record.Request) int { return a.Index - b.Index })
		for i := range rows {
			at, open, waiting := rows[i].Intended, 0, 0
			for k := range rows[:i] {
				r := &rows[k]
				if r.Reason == ReasonContext || r.Reason == string(schema.RefusedCapacity) || r.Reason == string(schema.RefusedSLO) || r.Intended+r.E2E <= at {
					continue
				}
				open++
				if r.TTFT < 0 || r.Intended+r.TTFT > at {
					waiting++
				}
			}
			full := c.MaxOpen > 0 && open >= c.MaxOpen || c.MaxWaiting > 0 && waiting >= c.MaxWaiting
			r := &rows[i]
			if capacity := r.Outcome == record.Shed && r.Reason == string(schema.RefusedCapacity); capacity != full {
				t.Fatalf("request %d, with %d open and %d waiting of %d and %d: %+v", i, open, waiting, c.MaxOpen, c.MaxWaiting, r)
			}
			if !full {
				continue
			}
			refused++
			if r.E2E != c.Latency.Request || r.TTFT >= 0 || r.Attempts > 0 || r.RetryAfter < time.Second || r.RetryAfter > 2*time.Minute || r.RetryAfter%time.Second != 0 {
				t.Fatalf("%+v", r)
			}
		}
	})
	if refused == 0 {
		t.Error("nobody was refused")
	}
}

// The advice is when those who wait have their first tokens at the present rate, and up to as much again, so that not all
// come back at once.
func TestRetryAfter(t *testing.T) {
	for _, k := range []struct {
		waiting     int
		rate        float64
		least, most time.Duration
	}{
		{100, 0, time.Second, 3 * time.Second}, // not known
		{100, 10, 10 * time.Second, 20 * time.Second},
		{1, 10, time.Second, 3 * time.Second},
		{1000, 0.02, time.Minute, 2 * time.Minute},
	} {
		s := &sim{gate: gate{waiting: k.waiting, rate: k.rate}}
		seen := map[time.Duration]bool{}
		for i := range uint64(1000) {
			d := s.retryAfter(i)
			seen[d] = true
			if d < k.least || d > k.most || d != s.retryAfter(i) {
				t.Fatalf("%+v: %v", k, d)
			}
		}
		if !seen[k.most] || len(seen) < 2 {
			t.Errorf("%+v: %d values", k, len(seen))
		}
	}
}

// The rate of first tokens is that of the last ten seconds or so.
func TestGateRate(t *testing.T) {
	s := &sim{cfg: Config{MaxOpen: 1}}
	for range 200 {
		s.gate.started = 4
		s.now += gateEvery
		s.look()
	}
	if s.gate.rate < 7.9 || s.gate.rate > 8.1 {
		t.Errorf("%v/s, want 8", s.gate.rate)
	}
	for range 20 { // one time constant later
		s.now += gateEvery
		s.look()
	}
	if s.gate.rate < 2.5 || s.gate.rate > 3.2 {
		t.Errorf("%v/s, want about 8/e", s.gate.rate)
	}
}
