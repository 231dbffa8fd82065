package services

import (
	"encoding/json"
	"os"
	"path/filepath"
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
		"--kv-tokens 8":                    "kv_pages",
		"--warmup 3m":                      "warmup",
		"--kv-overcommit 99":               "kv_overcommit",
		"--sequences 300":                  "sequences",
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
