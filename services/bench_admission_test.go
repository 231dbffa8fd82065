package services

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/bench/admission"
)

func TestBenchAdmission(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "figures")
	args := []string{"bench", "admission", "--arms", "queue-depth,constant-quantile", "--quick", "--out", dir}
	status, out, errOut := run(append(args, "--json")...)
	var r admission.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 || len(r.Arms) != 3 || len(r.Cells) != 9 || r.Peak.Goodput <= 0 {
		t.Fatalf("%d, %.300s, %s, %v", status, out, errOut, err)
	}
	for _, name := range []string{"admission-goodput.svg", "admission-p99.svg"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(b), "queue-depth") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for line, want := range map[string]string{
		"bench admission --arms none,best":        "queue-wait",
		"bench admission --loads 0":               "loads",
		"bench admission --seeds=-1":              "seeds",
		"bench admission --experiment a":          "guarantee",
		"bench admission --warmup 6m --length 6m": "warmup",
		"bench admission --profile nobody":        "seed-laptop",
		"bench admission --workload x.yml":        "x.yml",
	} {
		if status, _, errOut := run(strings.Fields(line)...); status == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: %d, %s", line, status, errOut)
		}
	}
}
