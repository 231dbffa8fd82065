package ladder

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/predictor/profile"
	"pgregory.net/rapid"
)

// A step costs what the profile says, and for each decode and each cell that others fill so much more: of all that was computed so far,
// up to the pool's size, less what the step's own sequences hold.
func TestSpan(t *testing.T) {
	p, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	e := &spanning{profile: p, ns: 100, cells: 1000}
	for i, s := range []struct{ prefill, decodes, context, charged int }{
		{300, 0, 300, 0},       // nobody else, and nobody decodes
		{0, 1, 301, 0},         // nobody else
		{500, 1, 802, 0},       // 802 were computed, and all are of this step
		{0, 2, 303, 2 * 501},   // 804 less 303
		{0, 1, 304, 501},       // 805 less 304
		{600, 3, 904, 3 * 96},  // 1,408 were computed, and 1,000 cells there are
		{0, 3, 1500, 0},        // shared cells count for each that holds them
		{0, 4, 400, 4 * 600},   //
		{512, 0, 512, 0},       // prefill is not charged
		{0, 10, 0, 10 * 1_000}, //
	} {
		want := p.Step(s.prefill, s.decodes, s.context) + time.Duration(100*s.charged)
		if got := e.Step(s.prefill, s.decodes, s.context); got != want {
			t.Errorf("step %d takes %v, want %v", i, got, want)
		}
	}
}

// No step is faster for it, nor by more than the whole pool for each decode.
func TestSpanIsBounded(t *testing.T) {
	p, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		e := &spanning{profile: p, ns: rapid.Float64Range(0.01, 1e4).Draw(t, "ns"), cells: rapid.IntRange(1, 1<<20).Draw(t, "cells")}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			prefill, decodes, context := rapid.IntRange(0, 512).Draw(t, "prefill"), rapid.IntRange(0, 64).Draw(t, "decodes"), rapid.IntRange(0, 1<<17).Draw(t, "context")
			more := float64(e.Step(prefill, decodes, context) - p.Step(prefill, decodes, context))
			if most := e.ns*float64(decodes)*float64(e.cells) + 1; more < 0 || more > most {
				t.Fatalf("a step takes %v ns more, allowed: 0 to %v", more, most)
			}
		}
	})
}

// Beyond the knee the full pool costs goodput; far below it hardly any. The record names the profile that the charge is on top of.
func TestSpanInTheSimulator(t *testing.T) {
	d := embeddedLadder(t, "seed-span")
	if err := (&Change{Rates: []float64{0.4, 2.2}, Length: time.Minute}).Apply(d); err != nil {
		t.Fatal(err)
	}
	good := map[string]float64{}
	for _, r := range onSim(t, d).Runs {
		if r.Rate == 0.4 {
			good["idle "+r.Arm] += r.Good
		} else {
			good["busy "+r.Arm] += r.Good
		}
		run, err := record.Open(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if run.Profile != d.Profile {
			t.Errorf("%s is on %q, want %q", r.ID, run.Profile, d.Profile)
		}
	}
	if good["busy full-pool"] > 0.9*good["busy empty-pool"] || good["idle full-pool"] < 0.9*good["idle empty-pool"] || good["idle full-pool"] == 0 {
		t.Errorf("goodput %v", good)
	}
}

// The charge is refused where it says nothing: on a real clock, without a cache that keeps the pool full, and below 0.
func TestSpanIsRefused(t *testing.T) {
	d := embeddedLadder(t, "seed-span")
	d.On = Kinds
	for _, on := range []string{Mock, Llama} {
		if err := (&Options{Definition: d, On: on}).Check(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "span_ns") {
			t.Errorf("%s: %v", on, err)
		}
	}
	p, err := profile.Open(d.Profile)
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--no-worker-prefix-cache", "--no-worker-cache-output"} {
		d := embeddedLadder(t, "seed-span")
		d.Args = append(d.Args, flag)
		if _, err := openSimulator(d, p); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "span_ns") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	for _, ns := range []float64{-1, 2e6} {
		d := embeddedLadder(t, "seed-span")
		d.Arms[1].SpanNS = ns
		if err := d.Validate(); !errors.Is(err, ErrDefinition) || !strings.Contains(err.Error(), "span_ns") {
			t.Errorf("%v: %v", ns, err)
		}
	}
}
