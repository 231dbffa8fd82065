package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// Every is the class in Options.SLOs that stands for all.
const Every = "*"

func pick(slos map[string]record.SLO, class string) (record.SLO, bool) {
	if s, ok := slos[class]; ok {
		return s, true
	}
	s, ok := slos[Every]
	return s, ok
}

// ParseSLOs reads objectives: [CLASS:]KEY=DURATION[,KEY=DURATION…] with the keys ttft, tpot and e2e; without a class an
// objective is that of every class that has none of its own.
func ParseSLOs(texts []string) (map[string]record.SLO, error) {
	out := map[string]record.SLO{}
	for _, text := range texts {
		class, pairs, ok := strings.Cut(text, ":")
		if !ok {
			class, pairs = Every, text
		}
		var s record.SLO
		keys := map[string]*time.Duration{"ttft": &s.TTFT, "tpot": &s.TPOT, "e2e": &s.E2E}
		for pair := range strings.SplitSeq(pairs, ",") {
			key, value, _ := strings.Cut(pair, "=")
			at := keys[key]
			d, err := time.ParseDuration(value)
			if at == nil || err != nil || d <= 0 {
				return nil, fmt.Errorf("report: objective %q: %q is not ttft, tpot or e2e = a duration above 0", text, pair)
			}
			*at = d
		}
		out[class] = s
	}
	return out, nil
}

// describe says an objective in words.
func describe(s record.SLO) string {
	var parts []string
	for _, p := range []struct {
		name string
		d    time.Duration
	}{{"TTFT", s.TTFT}, {"TPOT", s.TPOT}, {"E2E", s.E2E}} {
		if p.d > 0 {
			parts = append(parts, p.name+" ≤ "+duration(p.d))
		}
	}
	if len(parts) == 0 {
		return "any complete answer"
	}
	return strings.Join(parts, ", ")
}

// describeSLOs says the objectives of all classes in words.
func describeSLOs(slos map[string]record.SLO) string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(slos)) {
		if class == "" {
			parts = append(parts, describe(slos[class]))
		} else {
			parts = append(parts, class+": "+describe(slos[class]))
		}
	}
	if len(parts) == 0 {
		return "any complete answer"
	}
	return strings.Join(parts, "; ")
}
