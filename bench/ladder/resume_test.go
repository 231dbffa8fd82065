package ladder

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/predictor/profile"
)

// What is served counts by its content: a file that was written over is another.
func TestDirectoriesBelongToOneEngine(t *testing.T) {
	dir := t.TempDir()
	first := twoArms()
	first.profile, first.served.SHA256 = "p1", "m1"
	if _, err := execute(t.Context(), mustOptions(t, dir), first); err != nil {
		t.Fatal(err)
	}
	s, err := OpenState(dir)
	if err != nil || s.Profile != "p1" {
		t.Errorf("%+v, %v", s, err)
	}
	other := twoArms()
	other.profile, other.served = "p1", pipeline.Model{SHA256: "m2"}
	if _, err := execute(t.Context(), mustOptions(t, dir), other); !errors.Is(err, ErrOther) || len(other.runs) > 0 {
		t.Error(err)
	}

	dir = t.TempDir()
	for _, sum := range []string{"p1", "p2"} {
		f := twoArms()
		f.profile = sum
		if _, err := execute(t.Context(), mustOptions(t, dir), f); errors.Is(err, ErrOther) != (sum == "p2") {
			t.Errorf("%s: %v", sum, err)
		}
	}
}

// The simulator says of which profile it is, by content.
func TestTheProfilesContentIsRecorded(t *testing.T) {
	d := embeddedLadder(t, "seed")
	p, err := profile.Open(d.Profile)
	if err != nil {
		t.Fatal(err)
	}
	a, err := openSimulator(d, p)
	if err != nil {
		t.Fatal(err)
	}
	changed := *p
	changed.Cost.Base++
	b, err := openSimulator(d, &changed)
	if err != nil || a.sum == b.sum || len(a.sum) != 64 {
		t.Errorf("%s, %s, %v", a.sum, b.sum, err)
	}
}

// Two builds that do not know their sources may be two.
func TestUnknownBuildsAreNotMixed(t *testing.T) {
	dir := t.TempDir()
	o := mustOptions(t, dir)
	o.TrustBuild = false
	if _, err := execute(t.Context(), o, twoArms()); err != nil { // nothing to be mixed with
		t.Fatal(err)
	}
	f := twoArms()
	if _, err := execute(t.Context(), o, f); !errors.Is(err, ErrUnknownBuild) || !strings.Contains(err.Error(), "--trust-build") || len(f.runs) > 0 {
		t.Errorf("%v", err)
	}
	o.TrustBuild = true
	if res, err := execute(t.Context(), o, f); err != nil || !res.Runs[0].Kept {
		t.Error(err)
	}
	for sources, known := range map[string]bool{"sha256:ab": true, "git:ab": true, "git:ab+dirty": false, "unknown": false, "": false} {
		if knownBuild(sources) != known {
			t.Errorf("%q", sources)
		}
	}
}

// Two processes never write to one directory.
func TestOneProcessAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := twoArms()
	if _, err := execute(t.Context(), mustOptions(t, dir), f); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) || len(f.runs) > 0 {
		t.Errorf("%v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and it is given back
		if _, err := execute(t.Context(), mustOptions(t, dir), f); err != nil {
			t.Error(err)
		}
	}
}

// A run that is not what the ladder would have made of its place, or that cannot be read, is made again.
func TestWhatIsKeptIsOfThisLadder(t *testing.T) {
	dir := t.TempDir()
	res, err := execute(t.Context(), mustOptions(t, dir), twoArms())
	if err != nil {
		t.Fatal(err)
	}
	spec := func(from, to string) func(*record.Run) {
		return func(r *record.Run) {
			was := string(r.WorkloadSpec)
			if r.WorkloadSpec = json.RawMessage(strings.Replace(was, from, to, 1)); string(r.WorkloadSpec) == was {
				t.Errorf("no %s in %s", from, was)
			}
		}
	}
	for differs, change := range map[string]func(*record.Run){
		"rate": func(r *record.Run) { r.Rate++ }, "source_hash": func(r *record.Run) { r.Sources = "other" }, "profile_sha256": func(r *record.Run) { r.ProfileSHA256 = "other" },
		`slos."".e2e_ns`: func(r *record.Run) { r.SLOs = map[string]record.SLO{"": {E2E: time.Hour}} }, "seed": func(r *record.Run) { r.Seed++ },
		"arm": func(r *record.Run) { r.Arm = "other" }, "arrivals": func(r *record.Run) { r.Arrivals = "constant" }, "on": func(r *record.Run) { r.On = Llama }, "load": func(r *record.Run) { r.Load++ },
		"length_ns": func(r *record.Run) { r.Length++ }, "warmup_ns": func(r *record.Run) { r.Warmup++ }, "capacity": func(r *record.Run) { r.Capacity++ },
		"workload_spec.seed": spec(`"seed": `, `"seed": 1`), "workload_spec.spec.unique_tokens.max": spec(`"max": `, `"max": 1`),
	} {
		at := res.Runs[4].Dir
		run, err := record.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		change(run)
		b, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, record.RunFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, o, log := twoArms(), mustOptions(t, dir), &strings.Builder{}
		o.Log = slog.New(slog.NewJSONHandler(log, nil))
		if res, err := execute(t.Context(), o, f); err != nil || len(f.runs) != 1 || res.Runs[4].Kept || res.Runs[4].Good == 0 {
			t.Errorf("%s: %v, %v", differs, f.runs, err)
		}
		if said, err := json.Marshal(differs); err != nil || !strings.Contains(log.String(), `"differs":`+string(said)) {
			t.Errorf("%s: %s", differs, log)
		}
	}
	if err := os.WriteFile(filepath.Join(res.Runs[7].Dir, record.ParquetFile), []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := twoArms()
	if again, err := execute(t.Context(), mustOptions(t, dir), f); err != nil || len(f.runs) != 1 || again.Runs[7].Kept || again.Runs[7].Good != res.Runs[7].Good {
		t.Errorf("%v, %v", f.runs, err)
	}
}
