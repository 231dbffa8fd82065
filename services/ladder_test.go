package services

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/bench/ladder"
)

func TestLadderCommand(t *testing.T) {
	if status, out, _ := run("ladder"); status != 0 || !strings.Contains(out, "queue-budget") {
		t.Errorf("%d, %s", status, out)
	}
	if status, out, _ := run("ladder", "rungs", "--show"); status != 0 || !strings.Contains(out, "slo_alone:") {
		t.Errorf("%d, %s", status, out)
	}
	if status, out, _ := run("ladder", "rungs", "--on", "llama", "--dry-run", "--out", t.TempDir()); status != 0 || !strings.Contains(out, "36 runs: 27m0s if") || strings.Count(out, " fifo ") != 9 {
		t.Errorf("%d, %s", status, out)
	}
	for line, want := range map[string]string{
		"ladder nobody":                       "rungs",
		"ladder seed --on llama":              "not for",
		"ladder direct-gateway --on sim":      "not for",
		"ladder rungs --seeds 1,2":            "at least 3",
		"ladder rungs --up-args=--tls-cert=x": "tls-cert",
		"ladder rungs --up-args=--sequences=64 --up-args=--worker-max-batch=128 --out /tmp": "max_batch is 128, allowed: 0 to 64",
		"ladder rungs --arrivals never --dry-run":                                           "arrivals",
		"ladder rungs --profile nobody":                                                     "nobody",
		"ladder rungs --workload nobody --out /tmp":                                         "nobody",
	} {
		if status, _, errOut := run(strings.Fields(line)...); status != 1 || !strings.Contains(errOut, want) {
			t.Errorf("%s: %d, %s", line, status, errOut)
		}
	}
}

// A ladder is run, its records are where they should be, and it is not run again.
func TestLadderIsRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	args := []string{"ladder", "rungs", "--on", "sim", "--loads", "1.6", "--length", "10s", "--trust-build", "--out", dir, "--log-level", "error"}
	status, out, errOut := run(append(args, "--json")...)
	if status != 0 || errOut != "" {
		t.Fatalf("%d, %s", status, errOut)
	}
	var res ladder.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		t.Fatal(err)
	}
	if len(res.Runs) != 12 || res.State.Capacity <= 0 || res.Runs[0].Kept {
		t.Errorf("%+v", res)
	}
	if _, err := os.Stat(filepath.Join(res.Runs[11].Dir, "run.json")); err != nil {
		t.Error(err)
	}
	status, out, errOut = run(args...)
	if status != 0 || errOut != "" || !strings.Contains(out, "12 runs, 12 of them from before, 0 invalid") || !strings.Contains(out, "continuous+cache") {
		t.Errorf("%d, %s, %s", status, out, errOut)
	}
	if status, _, errOut = run(append(args, "--seeds", "4,5,6")...); status != 1 || !strings.Contains(errOut, "another directory") {
		t.Errorf("%d, %s", status, errOut)
	}
}

// A table has each run in its place, and what an invalid run came to in none.
func TestLadderTable(t *testing.T) {
	d := &ladder.Definition{Name: "mine", Blocks: [][]string{{"a", "a1", "late"}}}
	res := &ladder.Result{State: &ladder.State{Definition: d, On: "mock"}}
	for i, r := range []struct {
		arm  string
		rate float64
		good float64
	}{{"a", 10.5, 3}, {"a1", 0.5, 5}, {"a", 0.5, 7}, {"a1", 10.5, 9}, {"a", 0.500001, 11}, {"late", 0.5, 1}, {"late", 10.5, 1}, {"late", 10.5, 2}} {
		o := ladder.Outcome{Job: ladder.Job{Arm: r.arm, Rate: r.rate, Seed: uint64(i)}, Good: r.good}
		if r.arm == "late" && r.good == 1 {
			o.Invalid = []string{"lag"}
		}
		res.Runs = append(res.Runs, o)
	}
	var out strings.Builder
	if err := writeLadder(&out, res, "dir"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a 3.00 [3.00, 3.00] 7.00 [7.00, 7.00] 11.00 [11.00, 11.00]", "a1 9.00 [9.00, 9.00] 5.00 [5.00, 5.00] -",
		"late 2.00 [2.00, 2.00] (1 of 2 valid) - (0 of 1 valid) -", "8 runs, 0 of them from before, 2 invalid"} {
		if !strings.Contains(strings.Join(strings.Fields(strings.NewReplacer("│", "", "|", "").Replace(out.String())), " "), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// Only a regression ends with 1: what says nothing about the change ends with 2.
func TestGateWithoutVerdict(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "budget.json")
	if status, _, errOut := run("gate", "--budget", missing); status != 2 || !strings.Contains(errOut, "budget.json") {
		t.Errorf("%d, %s", status, errOut)
	}
	if status, _, errOut := run("gate", "--refresh", "--up-args=--worker-max-batch=1", "--budget", missing); status != 2 || !strings.Contains(errOut, "up-args") {
		t.Errorf("%d, %s", status, errOut)
	}
	if status, _, errOut := run("gate", "--refresh", "--length", "1ns", "--budget", missing); status != 2 || !strings.Contains(errOut, "length") {
		t.Errorf("%d, %s", status, errOut)
	}
}
