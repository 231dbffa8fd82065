package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the tables into testdata instead of comparing")

// Every table, of records that have something for each: go test ./bench/report -rewrite.
func TestTables(t *testing.T) {
	dir := t.TempDir()
	generate(t, dir, grid{arms: ladder, rates: []float64{0.6, 1.4, 2.6}, seeds: 3, length: 100 * time.Second, slo: 6 * time.Second})
	anchor := ladder[3]
	for seed := uint64(1); seed <= 3; seed++ { // the same again on a machine that has become slower
		anchor.service = 3800 * time.Millisecond
		run := grown(fmt.Sprintf("anchor-%d", seed), anchor.name, 1.4, seed)
		run.Block, run.Order = 1, 100+int(seed)
		run.Canary = &record.Canary{Err: "shed"}
		write(t, filepath.Join(dir, "runs", run.ID), run, anchor.serve(run))
	}
	lagging := grown("lagging", "fifo", 0.6, 4)
	lagging.Invalid = []string{"dispatch lag p99 80ms over 10ms"}
	write(t, filepath.Join(dir, "runs", "lagging"), lagging, ladder[0].serve(lagging))
	stopped := grown("stopped", "static", 0.6, 4)
	stopped.Partial = true
	write(t, filepath.Join(dir, "runs", "stopped"), stopped, ladder[1].serve(stopped))
	write(t, filepath.Join(dir, "runs", "unended"), nil, nil)
	r := load(t, dir, Options{Resamples: 2000})
	tables, err := r.Tables()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	if want := slices.DeleteFunc(TableNames(), func(s string) bool { return s == "classes" || s == "kinds" }); !slices.Equal(names, want) {
		t.Errorf("tables %v, want %v", names, want)
	}
	golden(t, "tables.md", Markdown(r.Title(), tables))
	var b bytes.Buffer
	if err := Write(&b, tables); err != nil {
		t.Fatal(err)
	}
	golden(t, "tables.txt", b.String())
	if _, err := r.Table("nothing"); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), "headline") {
		t.Error(err)
	}
	d, err := r.Document()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(d); err != nil || len(d.Cells) != 15 || d.Overload != 2.6 {
		t.Errorf("%v, %d cells, overload at %v", err, len(d.Cells), d.Overload)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		put(t, path, got)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test ./bench/report -rewrite):\n%s", name, diff)
	}
}

// grown is the description of a run of the grid.
func grown(id, arm string, rate float64, seed uint64) *record.Run {
	return &record.Run{ID: id, Experiment: "generated", On: "sim", Arm: arm, Rate: rate, Seed: seed, Workload: "queue", Arrivals: "poisson",
		SLOs: map[string]record.SLO{"": {E2E: 6 * time.Second}}, Length: 100 * time.Second, Warmup: 10 * time.Second, Tail: 10 * time.Second, Build: "test", Sources: "0123456789abcdef"}
}

// fixed is n answers that take e2e each, of a run of ten seconds.
func fixed(t *testing.T, dir, arm string, rate float64, seed uint64, block, n int, e2e time.Duration) {
	t.Helper()
	run := &record.Run{ID: fmt.Sprintf("%s-%g-%d-%d", arm, rate, seed, block), On: "sim", Arm: arm, Rate: rate, Seed: seed, Block: block, Length: 10 * time.Second, SLOs: map[string]record.SLO{"": {E2E: time.Second}}}
	rows := make([]record.Request, n)
	for i := range rows {
		rows[i] = record.Request{Index: i, Phase: record.Measure, Outcome: record.OK, TTFT: e2e / 2, E2E: e2e, OutputTokens: 1, Queued: -1}
	}
	write(t, filepath.Join(dir, run.ID), run, rows)
}

// What is compared with what: the same seed at the same rate, within a block where there is one.
func TestComparisons(t *testing.T) {
	dir := t.TempDir()
	for seed := uint64(1); seed <= 3; seed++ {
		fixed(t, dir, "a", 1, seed, 0, 10*int(seed), 400*time.Millisecond)
		fixed(t, dir, "b", 1, seed, 0, 10*int(seed)+5, 300*time.Millisecond)
		fixed(t, dir, "b", 1, seed, 1, 10*int(seed)+7, 300*time.Millisecond)
		fixed(t, dir, "c", 1, seed, 1, 10*int(seed)+8, 600*time.Millisecond)
		fixed(t, dir, "d", 1, seed, 2, 10*int(seed)+9, 600*time.Millisecond)
	}
	fixed(t, dir, "a", 2, 9, 0, 10, 400*time.Millisecond) // nobody to compare with
	r := load(t, dir, Options{Resamples: 500})
	if !slices.Equal(r.Arms, []string{"a", "b", "c", "d"}) || !slices.Equal(r.Rates, []float64{1, 2}) {
		t.Fatalf("%v, %v", r.Arms, r.Rates)
	}
	all, err := r.Comparisons()
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, want := range []struct {
		goodput, e2e float64
		across       bool
	}{{0.5, 0.75, false}, {0.1, 2, false}, {0.1, 1, true}} {
		c := all[i]
		if c.Rate != 1 || c.Across != want.across || c.Goodput.Pairs != 3 || math.Abs(c.Goodput.Mean.Value-want.goodput) > 1e-9 || math.Abs(c.E2E99.MedianRatio.Value-want.e2e) > 1e-9 {
			t.Errorf("%+v", c)
		}
	}
	// b → c: slower, more goodput.
	var worse []string
	for _, w := range r.Worsenings() {
		worse = append(worse, fmt.Sprintf("%s→%s %s %+.2f %d/%d %d/%d", w.Before, w.After, w.Metric, w.Change, w.PairsWorse, w.Pairs, w.Affected, w.Rates))
	}
	if want := []string{"b→c p50 TTFT +1.00 3/3 1/1", "b→c p99 TTFT +1.00 3/3 1/1", "b→c p50 E2E +1.00 3/3 1/1", "b→c p99 E2E +1.00 3/3 1/1"}; !slices.Equal(worse, want) {
		t.Errorf("%q", worse)
	}
	// Against a baseline instead.
	all, err = load(t, dir, Options{Resamples: 500, Baseline: "b"}).Comparisons()
	if err != nil || len(all) != 3 || all[0].Before != "b" || all[0].After != "a" || all[2].Before != "b" || all[2].After != "d" || math.Abs(all[0].Goodput.Mean.Value+0.5) > 1e-9 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := Load(dir, Options{Baseline: "x"}); !errors.Is(err, ErrRecords) {
		t.Error(err)
	}
	anchors := r.Anchors()
	if len(anchors) != 2 || anchors[0].Arm != "b" || !slices.Equal(anchors[0].Blocks, []int{0, 1}) || math.Abs(anchors[0].Values[0].Mean-2.5) > 1e-9 || math.Abs(anchors[0].Values[1].Mean-2.7) > 1e-9 {
		t.Errorf("%+v", anchors)
	}
	if missing := r.Missing(); len(missing) != 4+4+3-1 {
		t.Errorf("%q", missing)
	}
}

func TestLadderOrdersTheArms(t *testing.T) {
	dir := t.TempDir()
	for _, arm := range []string{"b", "c", "a"} {
		fixed(t, dir, arm, 1, 1, 0, 1, time.Second)
	}
	for _, text := range []string{`{"name": "x", "arms": ["c", "not run", "a"], "other": 1}`, `{"definition": {"arms": [{"name": "c", "args": ["--x"]}, {"name": "not run"}, {"name": "a"}]}}`} {
		put(t, filepath.Join(dir, LadderFile), text)
		if r := load(t, dir, Options{}); !slices.Equal(r.Arms, []string{"c", "not run", "a", "b"}) {
			t.Errorf("%s: %v", text, r.Arms)
		}
	}
	put(t, filepath.Join(dir, LadderFile), `{`)
	if _, err := Load(dir, Options{}); !errors.Is(err, ErrRecords) {
		t.Error(err)
	}
}

func TestWhatIsNoExperiment(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir, Options{}); !errors.Is(err, ErrRecords) {
		t.Errorf("no run: %v", err)
	}
	fixed(t, dir, "a", 1, 1, 0, 1, time.Second)
	other := &record.Run{ID: "other", On: "llama", Arm: "a", Rate: 1, Seed: 2}
	write(t, filepath.Join(dir, "other"), other, nil)
	if _, err := Load(dir, Options{}); !errors.Is(err, ErrRecords) || !strings.Contains(err.Error(), `"llama"`) {
		t.Errorf("a simulation beside a measurement: %v", err)
	}
	other.On, other.SLOs = "sim", map[string]record.SLO{"": {E2E: 9 * time.Second}}
	write(t, filepath.Join(dir, "other"), other, nil)
	if _, err := Load(dir, Options{}); !errors.Is(err, ErrRecords) || !strings.Contains(err.Error(), "--slo") {
		t.Errorf("two objectives: %v", err)
	}
	slos, err := ParseSLOs([]string{"e2e=2s"})
	if err != nil {
		t.Fatal(err)
	}
	if r := load(t, dir, Options{SLOs: slos}); r.SLOs[""].E2E != 2*time.Second {
		t.Errorf("%+v", r.SLOs)
	}
}

// Nothing but invalid runs is a report too: it says so.
func TestNoRunCounts(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x"), &record.Run{ID: "x", Arm: "a", Rate: 1, Partial: true}, nil)
	r := load(t, dir, Options{})
	tables, err := r.Tables()
	if err != nil || len(tables) != 1 || tables[0].Name != "excluded" {
		t.Errorf("%+v, %v", tables, err)
	}
	if figures, err := r.Figures(); err != nil || len(figures) != 0 {
		t.Errorf("%d figures, %v", len(figures), err)
	}
	if r := load(t, dir, Options{Partial: true}); len(r.Runs) != 1 || len(r.Excluded) != 0 {
		t.Errorf("%d runs, %d excluded", len(r.Runs), len(r.Excluded))
	}
}

func TestParseSLOs(t *testing.T) {
	got, err := ParseSLOs([]string{"gold:e2e=4s,ttft=500ms", "tpot=50ms"})
	if err != nil || got["gold"] != (record.SLO{E2E: 4 * time.Second, TTFT: 500 * time.Millisecond}) || got[Every] != (record.SLO{TPOT: 50 * time.Millisecond}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "4s", "e2e", "e2e=4", "e2e=-1s", "p99=4s", "gold:"} {
		if _, err := ParseSLOs([]string{text}); err == nil {
			t.Errorf("%q is an objective", text)
		}
	}
}

// An objective given for every class is that of classes which only the requests name.
func TestObjectivesOfClassesWithoutOne(t *testing.T) {
	dir := t.TempDir()
	run := &record.Run{ID: "x", Arm: "a", Rate: 1, Length: time.Second}
	write(t, filepath.Join(dir, "x"), run, []record.Request{{Class: "gold", Phase: record.Measure, Outcome: record.OK, E2E: 3 * time.Second}})
	for limit, want := range map[time.Duration]int{2 * time.Second: 0, 4 * time.Second: 1} {
		r := load(t, dir, Options{SLOs: map[string]record.SLO{Every: {E2E: limit}}})
		if got := r.Runs[0].Summary.Good; got != want {
			t.Errorf("%d are good within %v", got, limit)
		}
	}
}

// No request is lost between records and tables, whatever became of it, and every row of groups sums up to its whole.
func TestNoRequestIsLost(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		dir := filepath.Join(root, strconv.Itoa(n))
		n++
		type sums struct{ offered, measured int }
		var want sums
		by := map[record.Outcome]int{}
		counted := map[string]int{}
		for i := range rapid.IntRange(1, 5).Draw(rt, "runs") {
			run := &record.Run{ID: strconv.Itoa(i), Arm: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "arm"), Rate: 1, Seed: uint64(i), Length: 10 * time.Second, SLOs: map[string]record.SLO{"": {E2E: time.Second}}}
			if rapid.IntRange(0, 4).Draw(rt, "invalid") == 0 {
				run.Invalid = []string{"lag"}
			}
			var rows []record.Request
			for range rapid.IntRange(0, 20).Draw(rt, "requests") {
				q := record.Request{Index: len(rows), Phase: rapid.SampledFrom([]record.Phase{record.Warmup, record.Measure, record.Tail}).Draw(rt, "phase"),
					Outcome: rapid.SampledFrom(record.Outcomes).Draw(rt, "outcome"), TTFT: -1, Queued: -1, E2E: time.Duration(rapid.IntRange(0, 2000).Draw(rt, "e2e")) * time.Millisecond}
				rows = append(rows, q)
				if run.Valid() {
					want.offered++
					if q.Phase == record.Measure {
						want.measured++
						by[q.Outcome]++
					}
				}
			}
			if run.Valid() {
				counted[run.Arm]++
			}
			write(t, filepath.Join(dir, run.ID), run, rows)
		}
		r := load(t, dir, Options{Resamples: 10})
		table, err := r.Table("requests")
		if err != nil {
			rt.Fatal(err)
		}
		if len(counted) == 0 {
			if table != nil {
				rt.Fatal("a table of no runs")
			}
			return
		}
		column := func(name string) (total, sum int) {
			i := slices.Index(table.Header, name)
			for _, row := range table.Rows {
				v, err := strconv.Atoi(row[i])
				if err != nil {
					rt.Fatal(err)
				}
				if row[0] == "all" {
					total = v
				} else {
					sum += v
				}
			}
			return total, sum
		}
		answered := 0
		for name, n := range map[string]int{"offered": want.offered, "measured": want.measured, "shed": by[record.Shed], "time-out": by[record.Timeout], "censored": by[record.Censored], "error": by[record.Error]} {
			if total, sum := column(name); total != n || sum != n {
				rt.Fatalf("%s: %d and %d, want %d", name, total, sum, n)
			}
		}
		for _, name := range []string{"good", "late"} {
			total, _ := column(name)
			answered += total
		}
		if answered != by[record.OK] {
			rt.Fatalf("%d answered, want %d", answered, by[record.OK])
		}
	})
}

func TestOneRate(t *testing.T) {
	dir := t.TempDir()
	fixed(t, dir, "a", 3, 1, 0, 10, 300*time.Millisecond)
	table, err := load(t, dir, Options{}).Table("headline")
	if err != nil || table.Title != "At 3 req/s" || len(table.Rows) != 1 || table.Rows[0][1] != "1.00" || len(table.Rows[0]) != len(table.Header) {
		t.Errorf("%+v, %v", table, err)
	}
}

func TestNumbers(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.0123: "0.012", 0.000234: "0.00023", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 4567: "4567", 99.99: "100", 0.0999999: "0.10", 9.999: "10.0", -0.5: "-0.50"} {
		if got := figure(x); got != want {
			t.Errorf("%v is written %q", x, got)
		}
	}
}
