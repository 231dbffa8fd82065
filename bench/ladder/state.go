package ladder

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/provenance"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/gofrs/flock"
)

// StateFile is the name of a ladder's own file.
const StateFile = "ladder.json"

// LockFile is the name of the file by which a directory is kept for one process at a time.
const LockFile = "ladder.lock"

// Version of the form of ladder.json.
const Version = 1

// ErrOther is returned for a directory whose runs are of another ladder or another build; the message says what differs.
var ErrOther = errors.New("ladder: the directory belongs to another experiment")

// State is what all runs of a ladder have in common, settled before the first of them.
type State struct {
	Version    int             `json:"version"`
	Hash       string          `json:"hash"` // see Definition.Hash
	Time       time.Time       `json:"time"`
	On         string          `json:"on"`
	Definition *Definition     `json:"definition"`
	Workload   json.RawMessage `json:"workload_spec"`

	Build   string          `json:"build"`
	Sources string          `json:"source_hash"`
	Model   *pipeline.Model `json:"model,omitempty"`          // of llama
	Profile string          `json:"profile_sha256,omitempty"` // of the content, on sim and mock
	Machine Machine         `json:"machine"`

	Capacity  float64               `json:"capacity,omitempty"`      // requests/s that loads are multiples of; 0: there are rates
	AloneTTFT time.Duration         `json:"alone_ttft_ns,omitempty"` // of a request that is alone; 0: not measured
	AloneE2E  time.Duration         `json:"alone_e2e_ns,omitempty"`
	SLOs      map[string]record.SLO `json:"slos"`
}

// Machine is where it ran.
type Machine struct {
	pipeline.Machine
	Load string `json:"load_averages,omitempty"` // of the system over 1, 5 and 15 minutes when it was asked
}

func thisMachine(version string) Machine {
	m := Machine{Machine: pipeline.ThisMachine(version)}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil { // Linux
		var one, five, fifteen string
		if _, err := fmt.Sscan(string(b), &one, &five, &fifteen); err == nil {
			m.Load = one + " " + five + " " + fifteen
		}
	}
	return m
}

// Jobs are the runs, with the rates that the capacity gives them.
func (s *State) Jobs() []Job {
	jobs := s.Definition.Plan()
	for i := range jobs {
		if j := &jobs[i]; j.Load > 0 {
			j.Rate = j.Load * s.Capacity
		}
	}
	return jobs
}

// OpenState reads the state of the ladder in a directory. Without one the error is fs.ErrNotExist.
func OpenState(dir string) (*State, error) {
	b, err := os.ReadFile(filepath.Join(dir, StateFile))
	if err != nil {
		return nil, fmt.Errorf("ladder: %w", err)
	}
	s := &State{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("ladder: %s: %w", filepath.Join(dir, StateFile), err)
	}
	if s.Version != Version || s.Definition == nil {
		return nil, fmt.Errorf("%w: %s has version %d, want %d", ErrOther, filepath.Join(dir, StateFile), s.Version, Version)
	}
	return s, nil
}

// write makes the file appear with its whole content behind it.
func (s *State) write(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("ladder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("ladder: %w", err)
	}
	path := filepath.Join(dir, StateFile)
	if err := os.WriteFile(path+".tmp", append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("ladder: %w", err)
	}
	return os.Rename(path+".tmp", path)
}

// ErrUnknownBuild is returned for a directory with runs of a build that does not know its sources: whether this one is the
// same, nobody can tell.
var ErrUnknownBuild = errors.New("ladder: the sources of a build are not known")

// ErrLocked is returned for a directory in which another process runs a ladder now.
var ErrLocked = errors.New("ladder: another process runs in the directory")

// lock keeps a directory, which it makes, for this process until unlock.
func lock(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("ladder: %w", err)
	}
	l := flock.New(filepath.Join(dir, LockFile))
	ok, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("ladder: locking %s: %w", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	}
	return l.Unlock, nil
}

// fits returns the key of the record in which a run that lies where a job's should is not the job's; empty: in none. spec
// describes the job's workload.
func (s *State) fits(j *Job, spec json.RawMessage, r *record.Run) string {
	length, warmup := s.Definition.Times(j.Rate)
	arrivals := s.Definition.Arrivals
	if p, err := arrival.Parse(arrivals); err == nil { // it was when the ladder was read
		arrivals = p.String()
	}
	want := record.Run{ID: j.ID, Experiment: s.Definition.Name, On: s.On, Arm: j.Arm, Load: j.Load, Rate: j.Rate, Seed: j.Seed, Arrivals: arrivals, WorkloadSpec: spec, SLOs: s.SLOs,
		Length: length, Warmup: warmup, Tail: s.Definition.Tail, Sources: s.Sources, ProfileSHA256: s.Profile, Capacity: s.Capacity}
	got := record.Run{ID: r.ID, Experiment: r.Experiment, On: r.On, Arm: r.Arm, Load: r.Load, Rate: r.Rate, Seed: r.Seed, Arrivals: r.Arrivals, WorkloadSpec: r.WorkloadSpec, SLOs: r.SLOs,
		Length: r.Length, Warmup: r.Warmup, Tail: r.Tail, Sources: r.Sources, ProfileSHA256: r.ProfileSHA256, Capacity: r.Capacity}
	return difference(&want, &got)
}

// difference returns the first key, in order of their names, in which two values are not equal as JSON: "slos.e2e_ns" is
// e2e_ns in slos. Empty: there is none.
func difference(a, b any) string {
	x, err := plain(a)
	if err != nil {
		return err.Error()
	}
	y, err := plain(b)
	if err != nil {
		return err.Error()
	}
	return unequal(x, y)
}

// plain is a value as JSON has it.
func plain(v any) (out any, err error) {
	b, err := json.Marshal(v)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber() // seeds have 64 bits
		err = d.Decode(&out)
	}
	return out, err
}

func unequal(a, b any) string {
	x, isMap := a.(map[string]any)
	y, both := b.(map[string]any)
	if !isMap || !both {
		return ""
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(x)), maps.Keys(y))
	slices.Sort(keys)
	for _, k := range keys {
		if reflect.DeepEqual(x[k], y[k]) {
			continue
		}
		name := cmp.Or(k, `""`)
		if deeper := unequal(x[k], y[k]); deeper != "" {
			return name + "." + deeper
		}
		return name
	}
	return ""
}

// resume returns the state in a directory, or nil if there is none, or ErrOther if its runs cannot stand beside those of the
// ladder that ours says, or, unless trust says that they can, ErrUnknownBuild.
func resume(dir string, ours *State, trust bool) (*State, error) {
	s, err := OpenState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if s.Hash != ours.Hash {
		return nil, fmt.Errorf("%w: %s has runs of ladder %s on %s, which was defined otherwise (%s differs); choose another directory",
			ErrOther, dir, s.Definition.Name, s.On, cmp.Or(difference(s.defined(), ours.defined()), "its form"))
	}
	if now := provenance.Sources(); s.Sources != now {
		return nil, fmt.Errorf("%w: %s has runs of the engine %s, and this one is %s; choose another directory", ErrOther, dir, s.Sources, now)
	}
	if !trust && !knownBuild(s.Sources) {
		return nil, fmt.Errorf("%w: %s and this are %q, which may be two; build with make, choose another directory, or go on with --trust-build", ErrUnknownBuild, dir, s.Sources)
	}
	return s, nil
}

// defined is what Hash is over.
func (s *State) defined() *State {
	d := *s.Definition
	d.About, d.On, d.Profile, d.Model = "", nil, "", ""
	out := &State{On: s.On, Definition: &d, Workload: s.Workload, Profile: s.Profile}
	if s.Model != nil {
		out.Model = &pipeline.Model{SHA256: s.Model.SHA256}
	}
	return out
}

// knownBuild reports whether two builds of these sources are one, see provenance.Sources.
func knownBuild(sources string) bool {
	return strings.HasPrefix(sources, "sha256:") || strings.HasPrefix(sources, "git:") && !strings.HasSuffix(sources, "+dirty")
}

// served is the rate at which a backlog is answered: the middle 60 % of the completions over the time that they take, in
// requests/s. What starts up and what runs dry is left out.
func served(completions []time.Duration) float64 {
	t := slices.Sorted(slices.Values(completions))
	first, last := len(t)/5, len(t)-1-len(t)/5
	if last <= first || t[last] <= t[first] {
		return 0
	}
	return float64(last-first) / (t[last] - t[first]).Seconds()
}

// median returns the middle one of an odd number of durations, the upper of the two middle ones otherwise; 0 of none.
func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[len(d)/2]
}
