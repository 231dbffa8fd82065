package services

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/schema"
)

// cadence sim tells what became of every request, and leaves the same in its records and in its event log.
func TestSim(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "events.jsonl")
	status, out, errOut := run("sim", "--rate", "1.4", "--length", "1m", "--slo", "e2e=4s", "--warmup", "10s", "--out", dir, "--events", log, "--speed", "30s=0.5", "--json")
	var got []struct {
		Run     record.Run
		Summary stat.Summary
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || len(got) != 1 {
		t.Fatalf("%d, %s, %s, %v", status, out, errOut, err)
	}
	r, s := got[0].Run, got[0].Summary
	if r.ID != "continuous+cache-1.4-1" || r.Arm != "continuous+cache" || r.On != "sim" || r.Profile != "seed-laptop" || r.Workload != "seed" || r.Arrivals != "poisson" || r.Rate != 1.4 ||
		r.Partial || r.CachedTokens == 0 || s.Good == 0 || s.Outcomes[record.OK] != s.Offered || s.ITL.Count == 0 {
		t.Errorf("%s", out)
	}
	if onDisk, err := record.Open(filepath.Join(dir, "runs", r.ID)); err != nil || onDisk.ID != r.ID {
		t.Errorf("%+v, %v", onDisk, err)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	finished := 0
	if err := sim.ReadLog(f, func(e *schema.Stored) error {
		if e.Type == schema.Finished {
			finished++
		}
		return nil
	}); err != nil || finished != s.Phases[record.Warmup]+s.Phases[record.Measure] {
		t.Errorf("%d finished, %v, want those of %v", finished, err, s.Phases)
	}
}

func TestSimTables(t *testing.T) {
	status, out, errOut := run("sim", "--rate", "0.6,4", "--seeds", "2", "--length", "1m", "--mode", "static", "--max-batch", "8", "--no-prefix-cache", "--slo", "e2e=4s", "--max-queue-wait", "3s", "--order", "sjf")
	if status != 0 || !strings.Contains(out, "static-0.6-1") || !strings.Contains(out, "static-4-2") || !strings.Contains(out, "a second") {
		t.Errorf("%d, %s, %s", status, out, errOut)
	}
	status, out, errOut = run("sim", "--brief", "--workers", "4", "--rate", "6", "--length", "1h", "--requests", "200", "--json")
	var got []struct {
		Run   record.Run
		Tally sim.Tally
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || len(got) != 1 || got[0].Tally.Offered != 200 || got[0].Tally.Good < 190 {
		t.Errorf("%d, %s, %s, %v", status, out, errOut, err)
	}
	for args, want := range map[string]string{
		"--rate 0":                         "rate is 0",
		"--seeds 0":                        "seeds is 0",
		"--events x --seeds 2":             "--events",
		"--profile nobody":                 "seed-laptop",
		"--workload nobody":                "nobody",
		"--arrivals sometimes":             "poisson, gamma",
		"--speed fast":                     "TIME=FACTOR",
		"--slo soon":                       "ttft, tpot or e2e",
		"--workers 0":                      "workers is 0",
		"--max-waiting=-1":                 "max_waiting is -1",
		"--max-open=-1":                    "max_open is -1",
		"--kv-tokens 8":                    "kv_pages",
		"--warmup 3m":                      "warmup",
		"--kv-overcommit 99":               "kv_overcommit",
		"--sequences 300":                  "sequences",
		"--max-batch 128 --sequences 64":   "max_batch is 128, allowed: 0 to 64",
		"--batch-tokens 100000":            "batch_tokens is 100000",
		"--hop=-1s":                        "latency",
		"--mode fifo --context-tokens 1":   "context_tokens",
		"--out /dev/null/x --length 10s":   "/dev/null",
		"--events /dev/null/x --length 9s": "/dev/null",
	} {
		if status, out, errOut := run(append([]string{"sim"}, strings.Fields(args)...)...); status != 1 || !strings.Contains(errOut, want) {
			t.Errorf("%s: %d, %s, %s", args, status, out, errOut)
		}
	}
}

// The ingress's bounds shed what they have no place for.
func TestSimBounds(t *testing.T) {
	for _, bound := range []string{"--max-open=8", "--max-waiting=3", "--max-open=0"} {
		var got []struct {
			Run   record.Run
			Tally sim.Tally
		}
		runJSON(t, &got, "sim", "--rate", "6", "--length", "60s", "--slo", "e2e=4s", "--brief", "--json", bound)
		if shed := got[0].Tally.Outcomes[record.Shed]; (shed > 0) != (bound != "--max-open=0") || !slices.Contains(got[0].Run.Args, bound) {
			t.Errorf("%s: %d were shed, %v", bound, shed, got[0].Run.Args)
		}
	}
}

// A trace keeps its own times: the rate in its record is that of what was offered, whatever was said.
func TestSimOfATrace(t *testing.T) {
	trace := "azure:" + filepath.Join("..", "bench", "workload", "testdata", "azure-conv-2023.csv")
	for _, args := range [][]string{{"--length", "20s"}, {"--length", "1h", "--requests", "30"}} {
		var got []struct {
			Run     record.Run
			Summary stat.Summary
		}
		runJSON(t, &got, append([]string{"sim", "--workload", trace, "--rate", "77", "--slo", "e2e=4s", "--json"}, args...)...)
		r, s := got[0].Run, got[0].Summary
		if want := float64(s.Offered) / r.Length.Seconds(); r.Arrivals != "trace" || s.Offered == 0 || s.Offered > 100 || r.Rate < 0.999*want || r.Rate > 1.001*want {
			t.Errorf("%v: %d requests in %v at %v/s", args, s.Offered, r.Length, r.Rate)
		}
	}
	if status, _, errOut := run("sim", "--workload", trace, "--rate", "1,2"); status != 1 || !strings.Contains(errOut, "its own") {
		t.Errorf("%d, %s", status, errOut)
	}
}

// What is sent as max_tokens is said as for cadence load, and told.
func TestSimAnswers(t *testing.T) {
	dir := t.TempDir()
	for answers, capped := range map[string]bool{"exact": false, "cap": true} {
		out := filepath.Join(dir, answers)
		if status, _, errOut := run("sim", "--answers", answers, "--rate", "1", "--length", "30s", "--slo", "e2e=4s", "--out", out); status != 0 {
			t.Fatal(errOut)
		}
		at := filepath.Join(out, "runs", "continuous+cache-1-1")
		r, err := record.Open(at)
		if err != nil || !slices.Contains(r.Args, "--answers="+answers) {
			t.Fatalf("%+v, %v", r, err)
		}
		rows, err := record.Requests(at)
		if err != nil {
			t.Fatal(err)
		}
		more := slices.ContainsFunc(rows, func(q record.Request) bool { return q.CapTokens > q.OutputTokens })
		if len(rows) == 0 || more != capped {
			t.Errorf("%s: %t", answers, more)
		}
	}
}

// Without its event log a run leaves no records behind, complete or not.
func TestSimWithoutItsLog(t *testing.T) {
	dir := t.TempDir()
	if status, _, errOut := run("sim", "--length", "9s", "--out", dir, "--events", "/dev/null/x"); status != 1 || !strings.Contains(errOut, "/dev/null/x") {
		t.Errorf("%d, %s", status, errOut)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
