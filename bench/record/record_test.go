package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func some() []Request {
	return []Request{
		{Index: 1, Tenant: "gold", Phase: Measure, PromptTokens: 540, CachedTokens: 496, CapTokens: 99, OutputTokens: 3, Intended: time.Second,
			Lag: time.Microsecond, Queued: -1, TTFT: 80 * time.Millisecond, E2E: 120 * time.Millisecond, ITL: []time.Duration{15e6, 25e6}, Outcome: OK},
		{Index: 0, Phase: Warmup, TTFT: -1, E2E: time.Millisecond, Outcome: Shed, Reason: "capacity", RetryAfter: time.Second},
	}
}

func write(t *testing.T, dir string, run *Run) {
	t.Helper()
	w, err := Create(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range some() {
		if err := w.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(run); err != nil {
		t.Fatal(err)
	}
}

func TestRunsAreReadAsWritten(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "runs", "a")
	want := &Run{ID: "a", On: "sim", Arm: "fifo", Rate: 1.4, Seed: 3, SLOs: map[string]SLO{"": {E2E: 4 * time.Second}}, Time: time.Unix(9, 0).UTC()}
	write(t, dir, want)
	write(t, filepath.Join(root, "runs", "b"), nil) // did not end
	got, err := Open(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	rows, err := Requests(dir)
	if err != nil {
		t.Fatal(err)
	}
	in := some()
	if len(rows) != 2 || !reflect.DeepEqual(rows[1], in[0]) || rows[0].Outcome != Shed || rows[0].TTFT != -1 || rows[0].RetryAfter != time.Second {
		t.Errorf("%+v", rows)
	}
	f, err := os.Open(filepath.Join(dir, JSONLFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for i := 0; lines.Scan(); i++ {
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || !reflect.DeepEqual(r, in[i]) {
			t.Errorf("line %d is %+v, %v", i, r, err)
		}
	}
	dirs, err := Runs(root)
	if err != nil || !reflect.DeepEqual(dirs, []string{dir}) {
		t.Errorf("complete runs: %v, %v", dirs, err)
	}
}

func TestWhatIsNoRun(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrRun) {
		t.Errorf("an empty directory: %v", err)
	}
	for _, text := range []string{"{", `{"version": 99}`} {
		if err := os.WriteFile(filepath.Join(dir, RunFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); !errors.Is(err, ErrRun) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// A run that is begun again is not complete before it has ended.
	write(t, dir, &Run{})
	w, err := Create(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrRun) {
		t.Errorf("begun again: %v", err)
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
}

func TestObjectives(t *testing.T) {
	ok := some()[0]
	shed := some()[1]
	for _, c := range []struct {
		slo  SLO
		r    *Request
		want bool
	}{
		{SLO{}, &ok, true},
		{SLO{}, &shed, false},
		{SLO{E2E: 120 * time.Millisecond}, &ok, true},
		{SLO{E2E: 119 * time.Millisecond}, &ok, false},
		{SLO{TTFT: 79 * time.Millisecond}, &ok, false},
		{SLO{TPOT: 20 * time.Millisecond}, &ok, true},
		{SLO{TPOT: 19 * time.Millisecond}, &ok, false},
	} {
		if got := c.slo.Keeps(c.r); got != c.want {
			t.Errorf("%+v of %s: %v", c.slo, c.r.Outcome, got)
		}
	}
	run := Run{Length: 10 * time.Second, Warmup: time.Second, Tail: 2 * time.Second}
	for at, want := range map[time.Duration]Phase{0: Warmup, time.Second: Measure, 8*time.Second - 1: Measure, 8 * time.Second: Tail} {
		if got := run.PhaseAt(at); got != want {
			t.Errorf("%v is of %s, want %s", at, got, want)
		}
	}
}

// A long run is not held in memory until it ends: what has come is on disk.
func TestRowsGoToDiskAsTheyCome(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, ParquetFile))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	row := some()[0]
	const n = 2*groupRows + 1
	for row.Index = range n {
		if err := w.Add(&row); err != nil {
			t.Fatal(err)
		}
	}
	if size() < 1000 {
		t.Errorf("%d requests in, %d bytes are on disk", n, size())
	}
	if err := w.Close(&Run{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if rows, err := Requests(dir); err != nil || len(rows) != n || rows[n-1].Index != n-1 || len(rows[n-1].ITL) != 2 {
		t.Errorf("%d requests, %v", len(rows), err)
	}
}
