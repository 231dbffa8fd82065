package report

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// given is n requests of a run of ten seconds that take e2e each; the first of them are given up then.
func given(t *testing.T, dir, arm string, seed uint64, n, up int, e2e time.Duration) {
	t.Helper()
	run := &record.Run{ID: fmt.Sprintf("%s-%d", arm, seed), On: "sim", Arm: arm, Rate: 1, Seed: seed, Length: 10 * time.Second, SLOs: map[string]record.SLO{"": {E2E: time.Second}}}
	rows := make([]record.Request, n)
	for i := range rows {
		rows[i] = record.Request{Index: i, Phase: record.Measure, Outcome: record.OK, TTFT: e2e / 2, E2E: e2e, OutputTokens: 2, Queued: -1}
		if i < up {
			rows[i].Outcome, rows[i].TTFT, rows[i].OutputTokens = record.Timeout, -1, 0
		}
	}
	write(t, filepath.Join(dir, run.ID), run, rows)
}

func tableOf(t *testing.T, r *Report, name string) *Table {
	t.Helper()
	table, err := r.Table(name)
	if err != nil || table == nil {
		t.Fatalf("table %s: %v, %v", name, table, err)
	}
	return table
}

// A ratio of lower bounds is a bound at most, and excludes nothing.
func TestRatiosOfBounds(t *testing.T) {
	dir := t.TempDir()
	for seed := uint64(1); seed <= 4; seed++ {
		given(t, dir, "a", seed, 10, 0, 4*time.Second)
		given(t, dir, "b", seed, 10, 5, 8*time.Second)
		given(t, dir, "c", seed, 10, 5, 16*time.Second)
		given(t, dir, "d", seed, 10, 0, 32*time.Second)
		given(t, dir, "e", seed, 10, 0, 64*time.Second)
	}
	put(t, filepath.Join(dir, LadderFile), `{"arms": ["a", "b", "c", "d", "e"]}`)
	r := load(t, dir, Options{Resamples: 200})
	var got []string
	for _, row := range tableOf(t, r, "comparison").Rows {
		got = append(got, row[len(row)-1])
	}
	if want := []string{"≥ ×2.00 [2.00, 2.00]", "? ×2.00 [2.00, 2.00]", "≤ ×2.00 [2.00, 2.00]", "×2.00 [2.00, 2.00] *"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	got = nil
	for _, row := range tableOf(t, r, "worse").Rows {
		if row[1] == E2E99.Name {
			got = append(got, row[5])
		}
	}
	if want := []string{"≥ +100 %", "? +100 %", "≤ +100 %", "+100 %"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// An arm that left no run, and one whose runs are all invalid, keep their places: nobody else is compared in them, they have
// no goodput, and every table says so.
func TestArmsWithoutRuns(t *testing.T) {
	dir := t.TempDir()
	for seed := uint64(1); seed <= 2; seed++ {
		for _, rate := range []float64{1, 2} {
			fixed(t, dir, "a", rate, seed, 0, 10, 300*time.Millisecond)
			fixed(t, dir, "d", rate, seed, 0, 10, 200*time.Millisecond)
		}
	}
	bad := &record.Run{ID: "bad", On: "sim", Arm: "b", Rate: 1, Seed: 1, Length: 10 * time.Second, SLOs: map[string]record.SLO{"": {E2E: time.Second}}, Invalid: []string{"lag"}}
	write(t, filepath.Join(dir, "bad"), bad, nil)
	put(t, filepath.Join(dir, LadderFile), `{"definition": {"arms": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}], "seeds": [1, 2, 3]}}`)
	r := load(t, dir, Options{Resamples: 10})
	for _, name := range []string{"headline", "sensitivity"} {
		for _, row := range tableOf(t, r, name).Rows {
			if empty := row[1] == none; empty != (row[0] == "b" || row[0] == "c") {
				t.Errorf("%s: %q", name, row)
			}
		}
	}
	var got []string
	for _, row := range tableOf(t, r, "comparison").Rows {
		got = append(got, row[0]+" "+row[2])
	}
	if want := []string{"a → b 0", "b → c 0", "c → d 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	figures, err := r.Figures()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if _, err := f.SVG(); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	tables, err := r.Tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		// Of a and d the third seed, at two rates; b and c at both.
		if table.Name != "excluded" && !strings.HasSuffix(table.Note, "1 runs do not count (table excluded). 8 cells or seeds are not there (table full).") {
			t.Errorf("%s: %q", table.Name, table.Note)
		}
	}
}

// Runs of one seed are no independent samples.
func TestReplicatesAreOnePair(t *testing.T) {
	dir := t.TempDir()
	for seed := uint64(1); seed <= 2; seed++ {
		for block := range 3 {
			fixed(t, dir, "a", 1, seed, block, 10, 300*time.Millisecond)
			fixed(t, dir, "b", 1, seed, block, 10+block, 300*time.Millisecond)
		}
	}
	r := load(t, dir, Options{Resamples: 10})
	all, err := r.Comparisons()
	if err != nil || len(all) != 1 || all[0].Goodput.Pairs != 2 || all[0].E2E99.Pairs != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if note := tableOf(t, r, "comparison").Note; !strings.Contains(note, "fewer than 10 pairs") {
		t.Error(note)
	}
}

// A rate copied from a table has four digits.
func TestOverloadIsARateOfTheRecords(t *testing.T) {
	dir := t.TempDir()
	const rate = 1.37411237
	fixed(t, dir, "a", rate, 1, 0, 10, 300*time.Millisecond)
	fixed(t, dir, "a", 2*rate, 1, 0, 10, 300*time.Millisecond)
	if r := load(t, dir, Options{Overload: 1.374}); r.Overload() != rate {
		t.Errorf("%v", r.Overload())
	}
	if _, err := Load(dir, Options{Overload: 1.4}); !errors.Is(err, ErrRecords) || !strings.Contains(err.Error(), "1.374") {
		t.Error(err)
	}
}

func TestRunsThatDoNotAgree(t *testing.T) {
	for want, change := range map[string]func(*record.Run){
		"copy":    func(r *record.Run) { r.ID = "x" },
		"warm-up": func(r *record.Run) { r.Warmup = time.Second },
		"length":  func(r *record.Run) { r.Length = time.Minute },
		"model":   func(r *record.Run) { r.Model = "other" },
		"profile": func(r *record.Run) { r.Profile = "other" },
	} {
		dir := t.TempDir()
		for i, id := range []string{"x", "y"} {
			run := &record.Run{ID: id, Arm: id, Rate: 1, Seed: 1, Length: 10 * time.Second}
			if i == 1 {
				change(run)
			}
			write(t, filepath.Join(dir, "runs", fmt.Sprint(i)), run, nil)
		}
		if _, err := Load(dir, Options{}); !errors.Is(err, ErrRecords) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestSurvivorsAreMarked(t *testing.T) {
	dir := t.TempDir()
	run := &record.Run{ID: "x", Arm: "a", Rate: 1, Length: 10 * time.Second}
	write(t, filepath.Join(dir, "x"), run, []record.Request{
		{Phase: record.Measure, Outcome: record.OK, TTFT: 1e6, E2E: 5e6, OutputTokens: 3},
		{Phase: record.Measure, Outcome: record.Timeout, TTFT: 1e6, E2E: 9e9, OutputTokens: 2},
	})
	r := load(t, dir, Options{})
	if v := r.Cell("a", 1).Over(TPOT99); !v.Survivors || value(TPOT99, v) != "0.002 ‡" {
		t.Errorf("%+v, %s", v, value(TPOT99, v))
	}
	run.ID, run.Arm = "y", "b"
	write(t, filepath.Join(dir, "y"), run, []record.Request{
		{Phase: record.Measure, Outcome: record.OK, TTFT: 1e6, E2E: 9e6, OutputTokens: 3},
	})
	worse := tableOf(t, load(t, dir, Options{}), "worse")
	i := slices.IndexFunc(worse.Rows, func(row []string) bool { return row[1] == TPOT99.Name })
	if i < 0 || worse.Rows[i][3] != "0.002 s ‡" || worse.Rows[i][4] != "0.004 s" || !strings.Contains(worse.Note, "‡") {
		t.Errorf("%q, %q", worse.Rows, worse.Note)
	}
}

func TestTitlesAreEscaped(t *testing.T) {
	if got := Markdown("a<b", []*Table{{Title: "c<d", Header: []string{"x"}, Left: 1}}); !strings.HasPrefix(got, "# a&lt;b\n\n## c&lt;d\n") {
		t.Error(got)
	}
}
