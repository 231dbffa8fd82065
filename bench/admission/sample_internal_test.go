package admission

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/schema"
)

func TestMoments(t *testing.T) {
	mean, variance, lag := moments([]float64{1, 3, 1, 3})
	if mean != 2 || variance != 1 || lag != -0.75 {
		t.Errorf("mean %v, variance %v, covariance %v of 1, 3, 1, 3", mean, variance, lag)
	}
	if mean, _, _ := moments(nil); !math.IsNaN(mean) {
		t.Errorf("the mean of nothing is %v", mean)
	}
}

func TestWorstMinute(t *testing.T) {
	var rows []record.Request
	for i := range 40 { // a request every 5 s; of the second minute a quarter is refused, of what is left over all
		r := record.Request{Intended: time.Duration(i) * 5 * time.Second, Outcome: record.OK}
		if i >= 12 && i < 15 || i >= 36 {
			r.Outcome = record.Shed
		}
		rows = append(rows, r)
	}
	if got := worst(rows, 200*time.Second); got != 0.25 {
		t.Errorf("%v in the worst minute", got)
	}
}

// Before the leap arrivals are as at the one rate, then as at the other, in order and within the length.
func TestLeap(t *testing.T) {
	at := slices.Collect(leap(1, 1, 10, 1000*time.Second, 2000*time.Second))
	before := 0
	for i, x := range at {
		if i > 0 && x < at[i-1] || x >= 2000*time.Second {
			t.Fatalf("%v after %v", x, at[max(0, i-1)])
		}
		if x < 1000*time.Second {
			before++
		}
	}
	if after := len(at) - before; math.Abs(float64(before)-1000) > 150 || math.Abs(float64(after)-10000) > 500 {
		t.Errorf("%d before and %d after", before, after)
	}
}

// What ended before the shift, in hundreds after it, and what arrived after it, are told apart.
func TestShifted(t *testing.T) {
	const at, slo = 100 * time.Second, 4 * time.Second
	row := func(sent, took, bound time.Duration, o record.Outcome) record.Request {
		return record.Request{Intended: sent, E2E: took, Bound: bound, Outcome: o}
	}
	rows := []record.Request{
		row(150*time.Second, 5*time.Second, 4*time.Second, record.OK), // late, and beyond its bound, among the second hundred
		row(120*time.Second, 0, 0, record.Shed),
		row(99*time.Second, 2*time.Second, 3*time.Second, record.OK), // across the shift: the first that ends after it
		row(5*time.Second, time.Second, 2*time.Second, record.OK),    // in the warm-up
		row(20*time.Second, time.Second, 2*time.Second, record.OK),
		row(21*time.Second, 3*time.Second, 2*time.Second, record.OK),
	}
	for i := range 99 {
		rows = append(rows, row(at+time.Duration(i+2)*100*time.Millisecond, time.Second, 2*time.Second, record.OK))
	}
	s := shifted(rows, 10*time.Second, at, 200*time.Second, slo)
	for name, want := range map[string]conformal.Coverage{
		"bounds_held_before_ratio": {Hits: 1, Misses: 1}, "bounds_held_100_ratio": {Hits: 100}, "bounds_held_200_ratio": {Misses: 1},
		"bounds_held_300_ratio": {}, refused.Name: {Hits: 1, Misses: 100},
	} {
		if s.shares[name] != want {
			t.Errorf("%s is %+v, want %+v", name, s.shares[name], want)
		}
	}
	if g := s.values[goodput.Name]; g != 0.99 {
		t.Errorf("goodput is %v", g)
	}
}

// Promised is who asked and was let in by its bound: not who asked and was let in otherwise, nor best effort.
func TestKept(t *testing.T) {
	row := func(class schema.Class, why string, took, bound time.Duration, o record.Outcome) record.Request {
		return record.Request{Class: string(class), Decision: why, E2E: took, Bound: bound, Outcome: o, Phase: record.Measure}
	}
	rows := []record.Request{
		row(schema.Guaranteed, "bound", 2*time.Second, 3*time.Second, record.OK),
		row(schema.Guaranteed, "bound", 6*time.Second, 3*time.Second, record.OK),
		row(schema.Guaranteed, "bound", time.Second, 2*time.Second, record.Timeout),
		row(schema.Guaranteed, "bound", 0, 5*time.Second, record.Shed),
		row(schema.Guaranteed, "idle", 9*time.Second, 3*time.Second, record.OK),
		row(schema.BestEffort, "bound", 9*time.Second, 3*time.Second, record.OK),
	}
	s := kept(rows, record.SLO{E2E: 4 * time.Second})
	for name, want := range map[string]conformal.Coverage{
		"promised_ratio": {Hits: 3, Misses: 2}, "guaranteed_refused_ratio": {Hits: 1, Misses: 4},
		"bounds_held_ratio": {Hits: 1, Misses: 1, Censored: 1}, "kept_ratio": {Hits: 1, Misses: 1, Censored: 1},
	} {
		if s.shares[name] != want {
			t.Errorf("%s is %+v, want %+v", name, s.shares[name], want)
		}
	}
	if got := s.values["bound_by_latency"]; got != 8.0/9 {
		t.Errorf("bounds are %v of latencies", got)
	}
}

// A ratio is to the case that it names, seed by seed, and no case has one to itself.
func TestRatiosAreOfPairs(t *testing.T) {
	c := Column{Name: "by", of: goodput.Name, against: always("a")}
	e := &experiment{cases: []trial{{name: "a"}, {name: "b"}}, columns: []Column{c}}
	of := func(k int) []sample {
		out := make([]sample, 3)
		for i := range out {
			out[i].values = map[string]float64{goodput.Name: float64((i + 1) * (k + 1))}
		}
		return out
	}
	own, err := c.value(e, of, 0, 100)
	if err != nil || own.Of != 0 {
		t.Errorf("%+v, %v", own, err)
	}
	if v, err := c.value(e, of, 1, 100); err != nil || v.Value != 2 || v.Low != 2 || v.High != 2 || v.Of != 3 {
		t.Errorf("%+v, %v", v, err)
	}
}
