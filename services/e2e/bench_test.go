package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/overhead"
)

// `cadence bench overhead` runs, counts everything, and its figures are plausible; whether targets are met is for a
// longer run on a quiet machine.
func TestBenchOverhead(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "bench", "overhead", "--json", "--rate", "100", "--length", "3s", "--warmup", "1s",
		"--search-from", "100", "--search-to", "100", "--search-length", "2s")
	out, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !asExit(err, &failed) {
		t.Fatal(err)
	}
	var r overhead.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr(failed))
	}
	l := r.Latency
	if l.Load.Requests < 200 || l.Load.Outcomes[load.OK] != l.Load.Requests || l.Added.P50 <= 0 || l.Added.P50 > time.Second || len(l.Stages) == 0 ||
		l.Cost.Services <= 0 || l.Cost.Generator <= 0 || r.Machine.Cores == 0 || r.Throughput == nil || len(r.Throughput.Stretches) == 0 {
		t.Errorf("%s", out)
	}
	t.Logf("added: %+v, sustained %v", l.Added, r.Throughput.Sustained)
}

func asExit(err error, to **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError) //nolint:errorlint // as Output documents it
	*to = e
	return ok
}

func stderr(e *exec.ExitError) string {
	if e == nil {
		return ""
	}
	return string(e.Stderr)
}
