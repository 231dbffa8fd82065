package fidelity_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/cadence-slo/cadence/bench/fidelity"
	"github.com/cadence-slo/cadence/bench/ladder"
	"github.com/cadence-slo/cadence/bench/pipeline/pipelinetest"
	"github.com/cadence-slo/cadence/predictor/profile"
)

func TestMain(m *testing.M) {
	pipelinetest.Child()
	os.Exit(m.Run())
}

// bounds are how many times one may be the other.
var bounds = map[string]float64{fidelity.MetricP50: 1.6, fidelity.MetricP99: 2, fidelity.MetricGoodput: 1.5}

// The simulator and the mock on the real clock come to about the same at a low load. The bounds are wide: other things run on the
// machine of a test.
func TestSimulatorAgainstMock(t *testing.T) {
	o := fidelity.DefaultOptions()
	p, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	o.On, o.Profile, o.Executable, o.Version, o.Out = []string{ladder.Sim, ladder.Mock}, p, pipelinetest.Executable(t), "test", t.TempDir()
	o.Loads, o.Requests, o.Warmup, o.Log = []float64{0.2}, 40, 4, slog.New(slog.NewTextHandler(t.Output(), nil))
	r, err := fidelity.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Differences { // whichever of the two is the greater
		if ratio := max(d.Of/d.Than, d.Than/d.Of); !(ratio <= bounds[d.Metric]) {
			t.Errorf("they differ by a factor of %.2f, more than %v: %+v", ratio, bounds[d.Metric], d)
		}
	}
	if len(r.Runs) != 2 || len(r.Differences) != 3 || r.Runs[0].Offered < 20 || r.Runs[0].Answered != r.Runs[0].Offered || r.SLO <= 0 || r.Capacity <= 0 {
		t.Errorf("%+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(o.Out, "profile.json")); err != nil {
		t.Error(err)
	} else if got, err := profile.Decode(b); err != nil || got.Name != "mock" {
		t.Errorf("%+v, %v", got, err)
	}
}
