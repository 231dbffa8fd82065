package fidelity

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/predictor/profile"
)

// Outcome is what one run came to.
type Outcome struct {
	On       string         `json:"on"`
	Load     float64        `json:"load"`
	Rate     float64        `json:"rate"`
	Offered  int            `json:"offered"` // in the measured phase
	Answered int            `json:"answered"`
	TTFTP50  time.Duration  `json:"ttft_p50_ns"`
	E2EP50   time.Duration  `json:"e2e_p50_ns"`
	E2EP99   time.Duration  `json:"e2e_p99_ns"`
	TPOTP50  time.Duration  `json:"tpot_p50_ns"`
	Goodput  float64        `json:"goodput_per_second"`
	HitRatio float64        `json:"hit_ratio"` // of all phases, where the server counts
	Canary   *record.Canary `json:"canary,omitempty"`
	// Profile that it took its time from; nil on llama.
	Profile *profile.Profile `json:"profile,omitempty"`
	Invalid []string         `json:"invalid,omitempty"`
}

// outcome sums a run up.
func outcome(run *record.Run, rows []record.Request) Outcome {
	s := stat.Summarize(run, rows, nil)
	if run.PromptTokens > 0 { // by the server's counters, which count more than what usage says
		s.HitRatio = float64(run.CachedTokens) / float64(run.PromptTokens)
	}
	return Outcome{On: run.On, Load: run.Load, Rate: run.Rate, Offered: s.Offered, Answered: s.Outcomes[record.OK], TTFTP50: s.TTFT.P50, E2EP50: s.E2E.P50, E2EP99: s.E2E.P99,
		TPOTP50: s.TPOT.P50, Goodput: s.Goodput, HitRatio: s.HitRatio, Canary: run.Canary, Invalid: run.Invalid}
}

// Difference is one metric of two runs at the same load.
type Difference struct {
	Load   float64 `json:"load"`
	Left   string  `json:"left"`
	Right  string  `json:"right"` // the more real one
	Metric string  `json:"metric"`
	Of     float64 `json:"left_value"` // seconds, or requests/s
	Than   float64 `json:"right_value"`
	Error  float64 `json:"error"` // Of / Than - 1
	Target float64 `json:"target"`
	Passed bool    `json:"passed"`
}

// The metrics.
const (
	MetricP50     = "E2E p50"
	MetricP99     = "E2E p99"
	MetricGoodput = "goodput"
)

// compare takes every pair of runs of equal load. Two zeros are equal; nothing comes near a zero.
func compare(runs []Outcome, t Targets) []Difference {
	var out []Difference
	for i := range runs {
		for k := range runs {
			a, b := &runs[i], &runs[k]
			if a.Load != b.Load || slices.Index(kinds, a.On) >= slices.Index(kinds, b.On) {
				continue
			}
			for _, m := range []struct {
				name     string
				of, than float64
				target   float64
			}{
				{MetricP50, a.E2EP50.Seconds(), b.E2EP50.Seconds(), t.P50},
				{MetricP99, a.E2EP99.Seconds(), b.E2EP99.Seconds(), t.P99},
				{MetricGoodput, a.Goodput, b.Goodput, t.Goodput},
			} {
				d := Difference{Load: a.Load, Left: a.On, Right: b.On, Metric: m.name, Of: m.of, Than: m.than, Target: m.target}
				switch {
				case m.of == m.than:
				case m.than == 0:
					d.Error = math.MaxFloat64
				default:
					d.Error = m.of/m.than - 1
				}
				d.Passed = math.Abs(d.Error) <= m.target+1e-9
				out = append(out, d)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Difference) int {
		switch {
		case a.Load < b.Load:
			return -1
		case a.Load > b.Load:
			return 1
		}
		return 0
	})
	return out
}

// same returns an error unless two runs were offered the same requests at the same times.
func same(a, b []record.Request) error {
	if len(a) != len(b) {
		return fmt.Errorf("fidelity: %d requests were offered to one, %d to the other", len(a), len(b))
	}
	index := func(rows []record.Request) []record.Request {
		s := slices.Clone(rows)
		slices.SortFunc(s, func(x, y record.Request) int { return x.Index - y.Index })
		return s
	}
	a, b = index(a), index(b)
	for i := range a {
		x, y := &a[i], &b[i]
		if x.CapTokens != y.CapTokens {
			return fmt.Errorf("fidelity: request %d differs: max_tokens are %d and %d", x.Index, x.CapTokens, y.CapTokens)
		}
		if x.Index != y.Index || x.Intended != y.Intended ||
			x.Outcome == record.OK && y.Outcome == record.OK && (x.PromptTokens != y.PromptTokens || x.OutputTokens != y.OutputTokens) {
			return fmt.Errorf("fidelity: request %d differs: %d and %d tokens at %v, %d and %d at %v", x.Index, x.PromptTokens, x.OutputTokens, x.Intended, y.PromptTokens, y.OutputTokens, y.Intended)
		}
	}
	return nil
}
