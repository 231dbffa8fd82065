package services

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/gate"
)

// budgetFile writes a budget of the default settings.
func budgetFile(t *testing.T) string {
	t.Helper()
	b := gate.Budget{Version: gate.Version, Runs: gate.MinRuns, Settings: gate.DefaultSettings()}
	for _, rate := range b.Settings.Rates {
		b.Points = append(b.Points, gate.Point{Sample: gate.Sample{Rate: rate, Requests: 100, Goodput: 5, TTFT99: time.Second, E2E99: 2 * time.Second, Canary: 90},
			Noise: map[string]float64{"goodput": 0, "TTFT p99": 0, "E2E p99": 0, "failed": 0}})
	}
	path := filepath.Join(t.TempDir(), "budget.json")
	if err := b.Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// The process ends with the verdict: 0, 1 or 2, and 2 for whatever keeps it from one.
func TestGateExitStatus(t *testing.T) {
	budget := budgetFile(t)
	for name, c := range map[string]struct {
		change func(*gate.Sample)
		err    error
		budget string
		rates  []float64
		want   int
		says   string
	}{
		"the same":        {budget: budget, want: 0, says: "Nothing is worse"},
		"better":          {budget: budget, change: func(s *gate.Sample) { s.Goodput = 9 }, want: 0, says: "Nothing is worse"},
		"worse":           {budget: budget, change: func(s *gate.Sample) { s.Goodput = 4 }, want: 1, says: "a regression"},
		"failures":        {budget: budget, change: func(s *gate.Sample) { s.Failed = 0.01 }, want: 1, says: "a regression"},
		"broken":          {budget: budget, change: func(s *gate.Sample) { s.Broken = "gone" }, want: 1, says: "a regression"},
		"busy":            {budget: budget, change: func(s *gate.Sample) { s.Canary = 10; s.Goodput = 1 }, want: 2, says: "no verdict"},
		"did not start":   {budget: budget, err: errors.New("no pipeline"), want: 2, says: "no pipeline"},
		"no budget":       {budget: budget + ".none", want: 2, says: "unusable budget"},
		"one rate":        {budget: budget, rates: []float64{6}, want: 0, says: "Nothing is worse"},
		"one rate, worse": {budget: budget, rates: []float64{16}, change: func(s *gate.Sample) { s.E2E99 *= 2 }, want: 1, says: "a regression"},
		"no such rate":    {budget: budget, rates: []float64{7}, want: 2, says: "no rate 7"},
	} {
		for _, asJSON := range []bool{false, true} {
			cmd := GateCmd{Budget: c.budget, Rates: c.rates, JSON: asJSON, judge: func(_ context.Context, b *gate.Budget, _ gate.Options) (*gate.Report, error) {
				r := &gate.Report{Budget: b}
				for i := range b.Points {
					s := b.Points[i].Sample
					if c.change != nil {
						c.change(&s)
					}
					r.Samples = append(r.Samples, s)
				}
				r.Verdict = gate.Judge(b, r.Samples)
				return r, c.err
			}}
			var out, errOut bytes.Buffer
			err := cmd.Run(t.Context(), &Globals{Log: slog.New(slog.DiscardHandler), Out: &out, Err: io.Discard})
			if got := exitStatus(err, &errOut); got != c.want {
				t.Errorf("%s: status %d, want %d: %v", name, got, c.want, err)
			}
			if said := out.String() + errOut.String(); !asJSON && !strings.Contains(said, c.says) {
				t.Errorf("%s: no %q in\n%s", name, c.says, said)
			}
		}
	}
	// As a whole, without anything to measure.
	for _, args := range [][]string{{"gate", "--budget", budget + ".none"}, {"gate", "--budget", budget, "--rates", "7"}, {"gate", "--budget", budget}, {"gate", "--refresh", "--passes", "2"},
		{"gate", "--refresh", "--rates", "6"}, {"gate", "--nonsense"}} {
		var out, errOut bytes.Buffer
		if got := Main(args, "test", &out, &errOut); got != 2 {
			t.Errorf("%q: status %d\n%s%s", args, got, &out, &errOut)
		}
	}
}
