package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
)

// ErrBudget is returned for a budget that cannot be judged by.
var ErrBudget = errors.New("gate: unusable budget")

// Version of the form of a budget.
const Version = 2

// Settings are what a budget holds for: runs under others cannot be compared with it.
type Settings struct {
	Workload string        `json:"workload"`
	Profile  string        `json:"profile"` // of the mock
	Rates    []float64     `json:"rates"`   // requests/s
	Seed     uint64        `json:"seed"`
	SLO      record.SLO    `json:"slo"`
	Length   time.Duration `json:"length_ns"` // of the arrivals at each rate
	Warmup   time.Duration `json:"warmup_ns"`
	Drain    time.Duration `json:"drain_ns"`
	Args     []string      `json:"args"` // of cadence up
	// Contents is SHA-256, in hexadecimal, over what Workload and Profile name: a profile that got faster would hide a
	// pipeline that got slower.
	Contents string `json:"contents_hash"`
}

// DefaultSettings are those of a new budget: 90 seconds of arrivals, half of them below the knee (about 11 requests/s) and
// half beyond it.
func DefaultSettings() Settings {
	return Settings{Workload: "seed", Profile: "mock", Rates: []float64{6, 16}, Seed: 1, SLO: record.SLO{E2E: 6 * time.Second},
		Length: 45 * time.Second, Warmup: 5 * time.Second, Drain: 30 * time.Second, Args: []string{"--scheduler-max-queue-wait=2s"}}
}

// contents is the hash of what the settings name, as it is now.
func (s *Settings) contents() (string, error) {
	p, err := profile.Open(s.Profile)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrBudget, err)
	}
	_, vocab, err := pipeline.MockModel()
	if err != nil {
		return "", err
	}
	source, err := workload.OpenSource(s.Workload, vocab, s.Seed)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrBudget, err)
	}
	return hash(p, source.Describe())
}

func hash(p *profile.Profile, workload json.RawMessage) (string, error) {
	b, err := json.Marshal(struct {
		Profile  *profile.Profile
		Workload json.RawMessage
	}{p, workload})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrBudget, err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Validate returns ErrBudget for the first key that is outside its range.
func (s *Settings) Validate() error {
	switch {
	case s.Workload == "" || s.Profile == "":
		return fmt.Errorf("%w: workload and profile are needed", ErrBudget)
	case len(s.Rates) == 0 || slices.ContainsFunc(s.Rates, func(r float64) bool { return !(r > 0 && r <= 1e6) }):
		return fmt.Errorf("%w: rates are %v, allowed: one or more, above 0", ErrBudget, s.Rates)
	case s.Warmup < 0 || s.Length <= s.Warmup:
		return fmt.Errorf("%w: length is %v and warmup %v, allowed: 0 ≤ warmup < length", ErrBudget, s.Length, s.Warmup)
	case s.Drain <= 0:
		return fmt.Errorf("%w: drain is %v, allowed: more than 0", ErrBudget, s.Drain)
	case s.SLO == record.SLO{}:
		return fmt.Errorf("%w: slo is empty: everything would be good", ErrBudget)
	}
	return nil
}

// Point is what is expected at one rate: the medians of the runs that it was made of.
type Point struct {
	Sample
	// How far the runs were apart, most - least, as a part of the median; of failed, which is a part itself, the difference.
	Noise map[string]float64 `json:"noise_ratio"`
}

// Budget is what is expected.
type Budget struct {
	Version  int       `json:"version"`
	Time     time.Time `json:"time"`
	Sources  string    `json:"source_hash"` // of the engine that it was measured with
	Runs     int       `json:"runs"`        // that it was made of
	Settings Settings  `json:"settings"`
	Points   []Point   `json:"points"` // one for each of the rates, in their order
}

// Open reads a budget.
func Open(path string) (*Budget, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBudget, err)
	}
	out := &Budget{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBudget, path, err)
	}
	if out.Version != Version {
		return nil, fmt.Errorf("%w: %s has version %d, want %d", ErrBudget, path, out.Version, Version)
	}
	if err := out.Settings.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(out.Points) != len(out.Settings.Rates) {
		return nil, fmt.Errorf("%w: %s has %d points for %d rates", ErrBudget, path, len(out.Points), len(out.Settings.Rates))
	}
	if err := out.firm(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// MinRuns is how many runs a budget is made of at least.
const MinRuns = 3

// firm returns ErrBudget if what it was made of is too little, or differs by more than half of what a change may: then it is
// chance that decides.
func (b *Budget) firm() error {
	if b.Runs < MinRuns {
		return fmt.Errorf("%w: it is of %d runs, allowed: %d and more", ErrBudget, b.Runs, MinRuns)
	}
	for i := range b.Points {
		for k := range metrics {
			m := &metrics[k]
			noise, ok := b.Points[i].Noise[m.name]
			if !ok || noise > m.worse/2 {
				return fmt.Errorf("%w: %s differs by %.2f %% between runs at %g requests/s, allowed: %.2f %%; a quiet machine is needed", ErrBudget, m.name, 100*noise, b.Points[i].Rate, 100*m.worse/2)
			}
		}
	}
	return nil
}

// At returns the budget of some of its rates, or ErrBudget for one that it has not.
func (b *Budget) At(rates []float64) (*Budget, error) {
	out := *b
	out.Points, out.Settings.Rates = nil, rates
	for _, rate := range rates {
		i := slices.Index(b.Settings.Rates, rate)
		if i < 0 {
			return nil, fmt.Errorf("%w: it has no rate %g, allowed: %v", ErrBudget, rate, b.Settings.Rates)
		}
		out.Points = append(out.Points, b.Points[i])
	}
	return &out, nil
}

// Write writes a budget.
func (b *Budget) Write(path string) error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBudget, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// budgetOf makes a budget of several passes, each with a sample for every rate, or returns ErrBudget if one of them is
// invalid, or if they are too few or too far apart.
func budgetOf(s *Settings, passes [][]Sample) (*Budget, error) {
	b := &Budget{Version: Version, Runs: len(passes), Settings: *s}
	for i, rate := range s.Rates {
		var samples []Sample
		for _, pass := range passes {
			if len(pass) != len(s.Rates) {
				return nil, fmt.Errorf("%w: a pass of %d runs for %d rates", ErrBudget, len(pass), len(s.Rates))
			}
			p := pass[i]
			if !p.usable() {
				return nil, fmt.Errorf("%w: a run at %g requests/s is invalid: %v %s, canary %.1f steps/s, %d requests", ErrBudget, rate, p.Invalid, p.Broken, p.Canary, p.Requests)
			}
			samples = append(samples, p)
		}
		b.Points = append(b.Points, pointOf(rate, samples))
	}
	if err := b.firm(); err != nil {
		return nil, err
	}
	return b, nil
}

// pointOf takes the median of every figure by itself.
func pointOf(rate float64, samples []Sample) Point {
	p := Point{Sample: Sample{Rate: rate}, Noise: map[string]float64{}}
	of := func(get func(*Sample) float64) (median, least, most float64) {
		v := make([]float64, len(samples))
		for i := range samples {
			v[i] = get(&samples[i])
		}
		slices.Sort(v)
		return stat.Quantile(v, 0.5), v[0], v[len(v)-1]
	}
	values := make([]float64, len(metrics))
	for i := range metrics {
		median, least, most := of(metrics[i].of)
		noise := most - least
		if !metrics[i].added && noise != 0 {
			noise /= median
		}
		values[i], p.Noise[metrics[i].name] = median, math.Round(noise*1e4)/1e4
	}
	p.Goodput, p.TTFT99, p.E2E99, p.Failed = values[0], time.Duration(values[1]), time.Duration(values[2]), values[3]
	requests, _, _ := of(func(s *Sample) float64 { return float64(s.Requests) })
	lag, _, _ := of(func(s *Sample) float64 { return float64(s.LagMax) })
	p.Canary, _, _ = of(func(s *Sample) float64 { return s.Canary })
	p.Requests, p.LagMax = int(requests), time.Duration(lag)
	return p
}
