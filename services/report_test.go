package services

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// Records become every kind of report, and a text that differs from them is found.
func TestReport(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "runs")
	for i, arm := range []string{"fifo", "continuous"} {
		for seed := uint64(1); seed <= 2; seed++ {
			run := &record.Run{ID: arm + "-" + string('0'+rune(seed)), On: "sim", Arm: arm, Rate: 1, Seed: seed, Order: i, Length: 10 * time.Second, SLOs: map[string]record.SLO{"": {E2E: time.Second}}}
			w, err := record.Create(filepath.Join(dir, run.ID), false)
			if err != nil {
				t.Fatal(err)
			}
			for k := range 10 {
				if err := w.Add(&record.Request{Index: k, Phase: record.Measure, Outcome: record.OK, TTFT: time.Millisecond, E2E: time.Duration(k) * 200 * time.Millisecond / time.Duration(i+1), Queued: -1}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(run); err != nil {
				t.Fatal(err)
			}
		}
	}
	ok := func(args ...string) string {
		t.Helper()
		status, out, errOut := run(append([]string{"report"}, args...)...)
		if status != 0 {
			t.Fatalf("%v: %d, %s", args, status, errOut)
		}
		return out
	}
	if out := ok(dir); !strings.Contains(out, "Peak goodput") || !strings.Contains(out, "continuous") {
		t.Error(out)
	}
	var d struct {
		Arms  []string
		Cells []struct {
			Metrics map[string]struct{ Mean float64 }
		}
	}
	if err := json.Unmarshal([]byte(ok(dir, "--json", "--slo", "e2e=400ms")), &d); err != nil || len(d.Cells) != 2 || d.Cells[0].Metrics["goodput"].Mean != 0.3 || d.Cells[1].Metrics["goodput"].Mean != 0.5 {
		t.Errorf("%+v, %v", d, err)
	}
	page, figures, tables := filepath.Join(root, "page.html"), filepath.Join(root, "figures"), filepath.Join(root, "tables.md")
	if out := ok(dir, "--html", page, "--figures", figures, "--markdown", tables); out != "" {
		t.Errorf("printed %q", out)
	}
	for _, path := range []string{page, tables, filepath.Join(figures, "cdf.svg"), filepath.Join(figures, "timeline.png")} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	text := filepath.Join(root, "text.md")
	if err := os.WriteFile(text, []byte("<!-- cadence:report headline runs -->\n<!-- /cadence:report -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, _ := run("report", "--embed", "--check", text); status != 1 || !strings.Contains(out, "fifo") {
		t.Errorf("a text without its table: %d, %s", status, out)
	}
	ok("--embed", text)
	if out := ok("--embed", "--check", text); out != "" {
		t.Error(out)
	}
	for _, args := range [][]string{{dir, "--slo", "4s"}, {dir, "--table", "nothing"}, {dir, "--check"}, {dir, dir}, {root + "/nowhere"}, {figures}} {
		if status, _, errOut := run(append([]string{"report"}, args...)...); status == 0 || errOut == "" {
			t.Errorf("%v: %d, %s", args, status, errOut)
		}
	}
}
