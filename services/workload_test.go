package services

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/bench/workload/sample"
)

func TestWorkloadList(t *testing.T) {
	var list []struct{ Name, About string }
	runJSON(t, &list, "workload", "list", "--json")
	_, table, _ := run("workload", "list")
	if len(list) != len(workload.Embedded()) {
		t.Errorf("%d workloads, want %d", len(list), len(workload.Embedded()))
	}
	for _, w := range list {
		if len(w.About) < 20 || strings.Contains(w.About, "\n") || !strings.Contains(table, w.Name+" ") || !strings.Contains(table, w.About) {
			t.Errorf("%+v", w)
		}
	}
}

// A workload that is shown can be edited and sampled.
func TestWorkloadShowAndSample(t *testing.T) {
	status, text, errOut := run("workload", "show", "elastic-mixed")
	if status != 0 {
		t.Fatal(errOut)
	}
	dir := t.TempDir()
	mine, png := filepath.Join(dir, "mine.yaml"), filepath.Join(dir, "mine.png")
	if err := os.WriteFile(mine, []byte(strings.Replace(text, "name: gold", "name: platinum", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	var r sample.Report
	runJSON(t, &r, "workload", "sample", mine, "--n", "50", "--plot", png, "--json")
	if r.Requests != 50 || len(r.Groups) != 4 || r.Groups[2].Name != "platinum" || r.Groups[0].Prompt.Max > 960 {
		t.Errorf("%+v", r)
	}
	if b, err := os.ReadFile(png); err != nil || !strings.HasPrefix(string(b), "\x89PNG") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	trace := "azure:" + filepath.Join("..", "bench", "workload", "testdata", "azure-conv-2023.csv") + "?tokens=0.25"
	if status, out, errOut := run("workload", "sample", trace); status != 0 || !strings.Contains(out, "the first 120 requests") || !strings.Contains(out, "over 45.503s: 2.62 requests/s") {
		t.Errorf("%s%s", out, errOut)
	}
}

func TestWorkloadErrors(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"elastic-mixed", []string{"show", "nobody"}},
		{"elastic-mixed", []string{"sample", "nobody"}},
		{"--n is 0", []string{"sample", "seed", "--n", "0"}},
		{"nowhere", []string{"sample", "seed", "--plot", filepath.Join("nowhere", "x.png")}},
		{"tokens (factor", []string{"sample", "azure:x?token=2"}},
	} {
		if status, _, errOut := run(append([]string{"workload"}, c.args...)...); status != 1 || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: %d, %s", c.args, status, errOut)
		}
	}
}
