package ladder

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/process"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
)

// fake answers requests of an arm in turn, each after the arm's time, on the test's own clock.
type fake struct {
	perRequest map[string]time.Duration
	runs       []string // arm and seed of each run, as they come
	before     func(s *setup) error
	late       bool // the generator was
	timed      bool // the workload is a trace
	workload   string
	served     pipeline.Model
	profile    string
}

// timed is a workload with times of its own.
type timed struct{ workload.Source }

func (timed) Arrivals() iter.Seq[time.Duration] { return slices.Values([]time.Duration{0, 1}) }

func (f *fake) source(seed uint64) (workload.Source, error) {
	_, vocab, err := pipeline.MockModel()
	if err != nil {
		return nil, err
	}
	s, err := workload.OpenSource(cmp.Or(f.workload, "unique"), vocab, seed)
	if f.timed {
		s = timed{s}
	}
	return s, err
}

func (f *fake) model() *pipeline.Model {
	if f.served.SHA256 == "" {
		return nil
	}
	return &f.served
}

func (f *fake) profileSHA256() string { return f.profile }

func (f *fake) run(_ context.Context, s *setup) (*record.Run, error) {
	if s.canary { // a run of the ladder
		f.runs = append(f.runs, fmt.Sprintf("%s %d", s.arm.Name, s.run.Seed))
		if f.before != nil {
			if err := f.before(s); err != nil {
				return nil, err
			}
		}
	}
	free := time.Duration(0)
	i := 0
	for at := range s.arrivals {
		free = max(free, at) + f.perRequest[s.arm.Name]
		q := s.source.Request(i)
		r := record.Request{Index: i, Intended: at, Queued: -1, TTFT: free - at, E2E: free - at, PromptTokens: len(q.Prompt), OutputTokens: q.Output, Outcome: record.OK, Phase: s.run.PhaseAt(at)}
		if err := s.sink(&r); err != nil {
			return nil, err
		}
		i++
	}
	s.run.Wall = free
	if f.late {
		s.run.Invalid = []string{"lag"}
	}
	return &s.run, nil
}

func (f *fake) alone(_ context.Context, s *setup, n int) ([]record.Request, error) {
	rows := make([]record.Request, n)
	for i := range rows {
		d := f.perRequest[s.arm.Name]
		rows[i] = record.Request{TTFT: d / 2, E2E: d, Outcome: record.OK}
	}
	return rows, nil
}

func twoArms() *fake {
	return &fake{perRequest: map[string]time.Duration{"slow": 100 * time.Millisecond, "fast": 50 * time.Millisecond}}
}

func options(dir string) (*Options, error) {
	d, err := Parse([]byte(`{"name": "mine", "arms": [{"name": "slow"}, {"name": "fast"}], "loads": [0.5, 1.5], "seeds": [1, 2, 3], "workload": "unique",
		"length": "20s", "warmup": "2s", "drain": "1s", "slo_alone": {"e2e": 4}}`))
	return &Options{Definition: d, On: Mock, Dir: dir, Version: "test", TrustBuild: true, Log: slog.New(slog.DiscardHandler)}, err
}

func mustOptions(t *testing.T, dir string) *Options {
	t.Helper()
	o, err := options(dir)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// What the definition leaves to measurement is measured once, and every run has what it needs to be read alone.
func TestLadder(t *testing.T) {
	dir, f := t.TempDir(), twoArms()
	o := mustOptions(t, dir)
	var seen []Progress
	o.Progress = func(p Progress) { seen = append(seen, p) }
	res, err := execute(t.Context(), o, f)
	if err != nil {
		t.Fatal(err)
	}
	if c := res.State.Capacity; c < 9.9 || c > 10.1 {
		t.Errorf("capacity %v, want 10", c)
	}
	if s := res.State.SLOs[""]; s.E2E != 400*time.Millisecond || s.TTFT != 0 {
		t.Errorf("%+v", s)
	}
	if len(res.Runs) != 12 || len(f.runs) != 12 || len(seen) != 13 || seen[12].Done != 12 || seen[12].Left != 0 || seen[12].Last.ID != res.Runs[11].ID {
		t.Fatalf("%d runs, %d on the engine, %+v", len(res.Runs), len(f.runs), seen)
	}
	dirs, err := record.Runs(dir)
	if err != nil || len(dirs) != 12 {
		t.Fatal(dirs, err)
	}
	for _, r := range res.Runs {
		run, err := record.Open(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if run.ID != r.ID || run.Experiment != "mine" || run.On != Mock || run.Arm != r.Arm || run.Rate != r.Load*res.State.Capacity || run.Seed != r.Seed || run.Order != r.Order ||
			run.Workload != "unique" || len(run.WorkloadSpec) == 0 || run.Arrivals != "poisson" || run.Length != 20*time.Second || run.Warmup != 2*time.Second ||
			run.Sources == "" || run.Build != "test" || !strings.Contains(string(run.Machine), `"cores"`) || run.Capacity != res.State.Capacity {
			t.Errorf("%+v", run)
		}
		rows, err := record.Requests(r.Dir)
		if err != nil || len(rows) < 50 || rows[0].Phase != record.Warmup || rows[len(rows)-1].Phase != record.Measure {
			t.Errorf("%d rows, %v", len(rows), err)
		}
		// 15 requests/s are beyond the slow arm and within the fast one.
		if overloaded := r.Load > 1 && r.Arm == "slow"; overloaded != (r.Good < 0.5*r.Rate) {
			t.Errorf("%s: goodput %v at %v", r.ID, r.Good, r.Rate)
		}
	}
	// Equal seed and rate: the same arrivals, whatever the arm.
	times := map[string][]time.Duration{}
	for _, r := range res.Runs {
		rows, err := record.Requests(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		var at []time.Duration
		for i := range rows {
			at = append(at, rows[i].Intended)
		}
		key := fmt.Sprint(r.Rate, r.Seed)
		if was, ok := times[key]; ok && !slices.Equal(was, at) {
			t.Errorf("%s: other arrivals", r.ID)
		}
		times[key] = at
	}
}

// A ladder that failed, or whose runs were stopped, incomplete or, if asked, invalid, goes on where it stopped.
func TestGoesOnWhereItStopped(t *testing.T) {
	dir, f := t.TempDir(), twoArms()
	broken := errors.New("broken")
	f.before = func(*setup) error {
		if len(f.runs) == 5 {
			return broken
		}
		return nil
	}
	if _, err := execute(t.Context(), mustOptions(t, dir), f); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	state, err := os.ReadFile(filepath.Join(dir, StateFile))
	if err != nil {
		t.Fatal(err)
	}
	next := twoArms()
	next.perRequest = map[string]time.Duration{"slow": time.Second, "fast": time.Second} // measured again, it would differ
	next.late = true
	res, err := execute(t.Context(), mustOptions(t, dir), next)
	if err != nil {
		t.Fatal(err)
	}
	if len(next.runs) != 8 || next.runs[0] != f.runs[4] {
		t.Errorf("it ran %v after %v", next.runs, f.runs)
	}
	for i, r := range res.Runs {
		if r.Kept != (i < 4) || (len(r.Invalid) > 0) != (i >= 4) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, StateFile)); err != nil || !bytes.Equal(b, state) {
		t.Errorf("the state changed: %v", err)
	}
	// One that was stopped counts no more than none.
	run, err := record.Open(res.Runs[2].Dir)
	if err != nil {
		t.Fatal(err)
	}
	run.Partial = true
	b, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(res.Runs[2].Dir, record.RunFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	f = twoArms()
	if _, err := execute(t.Context(), mustOptions(t, dir), f); err != nil || len(f.runs) != 1 || f.runs[0] != fmt.Sprintf("%s %d", res.Runs[2].Arm, res.Runs[2].Seed) {
		t.Errorf("%v, %v", f.runs, err)
	}
	f = twoArms()
	o := mustOptions(t, dir)
	o.RetryInvalid = true
	if _, err = execute(t.Context(), o, f); err != nil || len(f.runs) != 8 {
		t.Errorf("%v, %v", f.runs, err)
	}
	f = twoArms()
	if res, err = execute(t.Context(), o, f); err != nil || len(f.runs) != 0 || len(res.Runs) != 12 || !res.Runs[11].Kept || res.Runs[0].Good == 0 {
		t.Errorf("%v, %v", f.runs, err)
	}
}

// Runs of another ladder, of another engine or of another build never end up beside each other.
func TestDirectoriesBelongToOneExperiment(t *testing.T) {
	dir := t.TempDir()
	if _, err := execute(t.Context(), mustOptions(t, dir), twoArms()); err != nil {
		t.Fatal(err)
	}
	text, err := workload.Text("unique")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "changed.yaml")
	if err := os.WriteFile(file, bytes.Replace(text, []byte("min: 256"), []byte("min: 255"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for differs, change := range map[string]func(*Options, *fake){
		"definition.length_ns":             func(o *Options, _ *fake) { o.Definition.Length++ },
		"definition.arms":                  func(o *Options, _ *fake) { o.Definition.Arms[0].Args = []string{"--x=1"} },
		"definition.seeds":                 func(o *Options, _ *fake) { o.Definition.Seeds[2]++ },
		"definition.slo":                   func(o *Options, _ *fake) { o.Definition.SLO = &record.SLO{E2E: time.Second} },
		"definition.slo_alone.e2e":         func(o *Options, _ *fake) { o.Definition.Alone.E2E++ },
		"on":                               func(o *Options, _ *fake) { o.On = Sim },
		"profile_sha256":                   func(_ *Options, f *fake) { f.profile = "other" },
		"model":                            func(_ *Options, f *fake) { f.served.SHA256 = "other" },
		"workload_spec.spec.unique_tokens": func(_ *Options, f *fake) { f.workload = file },
	} {
		o, f := mustOptions(t, dir), twoArms()
		change(o, f)
		if _, err := execute(t.Context(), o, f); !errors.Is(err, ErrOther) || len(f.runs) > 0 || !strings.Contains(err.Error(), "("+differs) {
			t.Errorf("%s: %v", differs, err)
		}
	}
	s, err := OpenState(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Sources = "sha256:of something else"
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := execute(t.Context(), mustOptions(t, dir), twoArms()); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "something else") {
		t.Error(err)
	}
}

// A trace has one rate, its own: runs at several would all be the same.
func TestTracesHaveNoLadder(t *testing.T) {
	f := twoArms()
	f.timed = true
	if _, err := execute(t.Context(), mustOptions(t, t.TempDir()), f); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "times of its own") || len(f.runs) > 0 {
		t.Errorf("%v after %v", err, f.runs)
	}
}

// When told to stop, the run that is under way is not complete.
func TestStopping(t *testing.T) {
	dir, f := t.TempDir(), twoArms()
	ctx, cancel := context.WithCancel(t.Context())
	f.before = func(*setup) error {
		if len(f.runs) == 3 {
			cancel()
		}
		return nil
	}
	if _, err := execute(ctx, mustOptions(t, dir), f); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if dirs, err := record.Runs(dir); err != nil || len(dirs) != 2 {
		t.Errorf("%v, %v", dirs, err)
	}
}

// KilledDir is the variable that makes this test binary the process that TestKilledAndBegunAgain kills.
const KilledDir = "LADDER_TEST_KILLED"

// Killed is what that process does: it stops in the middle of its fourth run.
func Killed(dir string) error {
	f := twoArms()
	f.before = func(s *setup) error {
		if len(f.runs) == 4 {
			s.arrivals = func(yield func(time.Duration) bool) {
				yield(0)
				fmt.Println("in the middle of", s.arm.Name, s.run.Seed)
				<-context.Background().Done() // never: it is killed
			}
		}
		return nil
	}
	o, err := options(dir)
	if err == nil {
		_, err = execute(context.Background(), o, f)
	}
	return err
}

func TestKilledAndBegunAgain(t *testing.T) {
	dir := t.TempDir()
	p, err := process.Start(process.Options{Path: os.Args[0], Env: []string{KilledDir + "=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	line, err := p.WaitLine(t.Context(), func(l string) bool { return strings.HasPrefix(l, "in the middle of ") })
	if err := errors.Join(err, p.Kill()); err != nil {
		t.Fatal(err)
	}
	complete, err := record.Runs(dir)
	if err != nil || len(complete) != 3 {
		t.Fatal(complete, err)
	}
	files := map[string][]byte{}
	for _, d := range complete {
		if files[d], err = os.ReadFile(filepath.Join(d, record.RunFile)); err != nil {
			t.Fatal(err)
		}
	}
	f := twoArms()
	res, err := execute(t.Context(), mustOptions(t, dir), f)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.runs) != 9 || "in the middle of "+f.runs[0] != line || !res.Runs[2].Kept || res.Runs[3].Kept {
		t.Errorf("%q was killed, then ran %v", line, f.runs)
	}
	for d, want := range files {
		if got, err := os.ReadFile(filepath.Join(d, record.RunFile)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was run again: %v", d, err)
		}
	}
	if dirs, err := record.Runs(dir); err != nil || len(dirs) != 12 {
		t.Errorf("%d runs, %v", len(dirs), err)
	}
}

func TestServed(t *testing.T) {
	var times []time.Duration
	for i := range 10 {
		times = append(times, time.Duration(10-i)*time.Second/2)
	}
	times = append(times, time.Hour) // the last runs dry
	if got := served(times); got < 1.99 || got > 2.01 {
		t.Error(got)
	}
	for _, few := range [][]time.Duration{nil, {1}, {5, 5, 5, 5, 5, 5}} {
		if got := served(few); got != 0 {
			t.Errorf("%v of %v", got, few)
		}
	}
	if got := median([]time.Duration{9, 1, 5}); got != 5 {
		t.Error(got)
	}
}
