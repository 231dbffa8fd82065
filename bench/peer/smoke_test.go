package peer_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/peer"
	"github.com/cadence-slo/cadence/services"
)

// childVariable makes this test binary cadence itself, so that services can be started as children.
const childVariable = "PEER_TEST_CADENCE"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(services.Main(os.Args[1:], "test", os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// cadence returns the path of what tests start.
func cadence(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(childVariable, "1")
	return exe
}

// Every mode takes the seed workload on the real pipeline over the mock engine.
func TestRungsOnTheMock(t *testing.T) {
	o := peer.DefaultRungsOptions()
	o.Executable, o.Version, o.Log = cadence(t), "test", slog.New(slog.NewTextHandler(t.Output(), nil))
	o.On, o.Capacity, o.Load, o.Length, o.Drain, o.Repeats = "mock", 4, 3, 500*time.Millisecond, 20*time.Second, 1
	o.UpArgs = []string{"--mock-step", "500us", "--mock-step-per-seq", "20us", "--mock-prefill-rate", "40000"}
	rep, err := peer.Rungs(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Capacity <= 0 || rep.Rate != 3*rep.Capacity || rep.SLO.TTFT <= 0 || rep.SLO.E2E <= 0 || len(rep.Rungs) != 4 || rep.Workload.Name != "seed" {
		t.Fatalf("%+v", rep)
	}
	requests := rep.Rungs[0].Pooled.Requests
	for _, g := range rep.Rungs {
		if len(g.Runs) != 1 || g.Pooled.Requests != requests || g.Pooled.Complete != requests || g.Pooled.OutputTokens != rep.Rungs[0].Pooled.OutputTokens {
			t.Fatalf("%s: %+v", g.Name, g.Pooled)
		}
		if g.Name != "continuous+cache" && g.Pooled.CachedTokens != 0 {
			t.Errorf("%s: %d tokens cached", g.Name, g.Pooled.CachedTokens)
		}
	}
	if err := rep.Write(t.Output()); err != nil {
		t.Fatal(err)
	}
}
