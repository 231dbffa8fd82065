package ladder

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/goccy/go-yaml"
)

// ErrDefinition is returned for a ladder that cannot be run; the message names the key and the allowed values.
var ErrDefinition = errors.New("ladder: invalid definition")

// The kinds of engine that a ladder runs on.
const (
	Sim   = "sim"
	Mock  = "mock"
	Llama = "llama"
)

// Kinds lists them.
var Kinds = []string{Sim, Mock, Llama}

// Arm is one of the things that are compared.
type Arm struct {
	Name string `yaml:"name" json:"name"`
	// Args are flags of `cadence up`, written --flag=value; the simulator understands those of worker and scheduler and the
	// size of the engine.
	Args []string `yaml:"args,omitempty" json:"args,omitempty"`
	// Gateway, if not null, are flags of a second `cadence up` that stands before the first and forwards to it, so that
	// the first is measured through it. Not in the simulator.
	Gateway []string `yaml:"gateway,omitempty" json:"gateway"`
	// SpanNS is how many nanoseconds more each sequence that decodes takes for each cell of the KV cache that an engine with one pool
	// for all sequences (llama.cpp's unified cache) attends over and masks, because others fill it: a profile's table, measured on
	// an empty pool, has none of it. Only in the simulator, and only with a prefix cache that keeps answers, which fills the
	// pool once and for all, so that as many cells are attended over as were computed, up to the pool's size. ≥ 0; 0: none.
	SpanNS float64 `yaml:"span_ns,omitempty" json:"span_ns,omitempty"`
	// Replicates is how often the arm is run with nothing changed, as arms NAME-1, NAME-2, …; 0: once, as NAME.
	Replicates int `yaml:"replicates,omitempty" json:"replicates,omitempty"`
}

// Capacity says how the rate is measured that Loads are multiples of: a backlog of Requests is offered at once to Arm, and
// the middle 60 % of the completions are counted.
type Capacity struct {
	Arm      string `yaml:"arm,omitempty" json:"arm,omitempty"`           // empty: the first
	Requests int    `yaml:"requests,omitempty" json:"requests,omitempty"` // 0: 24
}

// Alone gives an objective as a multiple of what a request takes that is alone on Capacity.Arm, median of fifteen.
type Alone struct {
	TTFT float64 `yaml:"ttft,omitempty" json:"ttft,omitempty"` // 0: no such objective
	E2E  float64 `yaml:"e2e,omitempty" json:"e2e,omitempty"`
}

// Definition is a ladder: which arms, at which rates, with which seeds.
type Definition struct {
	Name  string   `yaml:"name" json:"name"`
	About string   `yaml:"about,omitempty" json:"about,omitempty"`
	On    []string `yaml:"on,omitempty" json:"on,omitempty"` // kinds of engine that it makes sense on; empty: all

	Arms []Arm `yaml:"arms" json:"arms"`
	// Blocks are the arms that are interleaved with each other, by name; empty: one block of all. Blocks run one after the
	// other, hours apart perhaps; Anchor is added to each that lacks it, so that what the machine did between them shows.
	Blocks [][]string `yaml:"blocks,omitempty" json:"blocks,omitempty"`
	Anchor string     `yaml:"anchor,omitempty" json:"anchor,omitempty"` // needed with several blocks

	// Either Rates, requests/s, or Loads, multiples of what Capacity measures.
	Rates    []float64 `yaml:"rates,omitempty,flow" json:"rates,omitempty"`
	Loads    []float64 `yaml:"loads,omitempty,flow" json:"loads,omitempty"`
	Capacity Capacity  `yaml:"capacity,omitempty" json:"capacity,omitzero"`

	// Seeds of requests and arrivals: the same for every arm, so that runs of equal rate and seed are pairs. At least 3.
	Seeds    []uint64 `yaml:"seeds,flow" json:"seeds"`
	Workload string   `yaml:"workload" json:"workload"`                     // name or file, see package workload
	Arrivals string   `yaml:"arrivals,omitempty" json:"arrivals,omitempty"` // see package arrival; empty: poisson

	// SLO replaces the workload's objectives; Alone replaces it by measurement.
	SLO   *record.SLO `yaml:"slo,omitempty" json:"slo,omitempty"`
	Alone *Alone      `yaml:"slo_alone,omitempty" json:"slo_alone,omitempty"`
	// SendSLO tells the pipeline each request's E2E objective, so that admission and scheduling can go by it.
	SendSLO bool `yaml:"send_slo,omitempty" json:"send_slo,omitempty"`

	// The arrivals of a run last for Length, or for as long as Requests of them take in the mean at the run's rate, after
	// WarmupRequests more that are warm-up.
	Length         time.Duration `yaml:"length,omitempty" json:"length_ns,omitzero"`
	Requests       int           `yaml:"requests,omitempty" json:"requests,omitempty"`
	WarmupRequests int           `yaml:"warmup_requests,omitempty" json:"warmup_requests,omitempty"`

	Warmup  time.Duration `yaml:"warmup,omitempty" json:"warmup_ns,omitempty"`  // see record.Run
	Tail    time.Duration `yaml:"tail,omitempty" json:"tail_ns,omitempty"`      // see record.Run
	Drain   time.Duration `yaml:"drain" json:"drain_ns"`                        // how long after Length answers are waited for
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout_ns,omitzero"` // the client's, per request; 0: 10 minutes

	Profile string `yaml:"profile,omitempty" json:"profile,omitempty"` // of the engine on sim and mock, see package profile; empty: mock
	Model   string `yaml:"model,omitempty" json:"model,omitempty"`     // on llama, as --model of cadence up; empty: synth:120m
	Threads int    `yaml:"threads,omitempty" json:"threads,omitempty"` // on llama; 0: 1
	// Args come before those of every arm.
	Args []string `yaml:"args,omitempty" json:"args,omitempty"`
}

// Parse reads a definition in YAML and validates it. Keys that are not known are errors.
func Parse(b []byte) (*Definition, error) {
	d := &Definition{}
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDefinition, err)
	}
	d.fill()
	return d, d.Validate()
}

// Open reads the ladder of a name that is embedded here, or of a file.
func Open(nameOrPath string) (*Definition, error) {
	b, err := embedded.ReadFile("defs/" + nameOrPath + ".yaml")
	if err != nil {
		if b, err = os.ReadFile(nameOrPath); err != nil {
			return nil, fmt.Errorf("%w: %q is none of %s, and no file: %w", ErrDefinition, nameOrPath, strings.Join(Embedded(), ", "), err)
		}
	}
	d, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOrPath, err)
	}
	return d, nil
}

// fill sets what is empty to its default and spells replicates out.
func (d *Definition) fill() {
	var arms []Arm
	for _, a := range d.Arms {
		if a.Replicates <= 0 {
			arms = append(arms, a)
			continue
		}
		n := a.Replicates
		a.Replicates = 0
		name := a.Name
		for i := range n {
			a.Name = fmt.Sprintf("%s-%d", name, i+1)
			arms = append(arms, a)
		}
	}
	d.Arms = arms
	if len(d.Blocks) == 0 {
		d.Blocks = [][]string{nil}
		for i := range d.Arms {
			d.Blocks[0] = append(d.Blocks[0], d.Arms[i].Name)
		}
	}
	for i, b := range d.Blocks {
		if d.Anchor != "" && !slices.Contains(b, d.Anchor) {
			d.Blocks[i] = append(slices.Clone(b), d.Anchor)
		}
	}
	if len(d.On) == 0 {
		d.On = Kinds
	}
	if d.Arrivals == "" {
		d.Arrivals = "poisson"
	}
	if d.Capacity.Arm == "" && len(d.Arms) > 0 {
		d.Capacity.Arm = d.Arms[0].Name
	}
	if d.Capacity.Requests == 0 {
		d.Capacity.Requests = 24
	}
	if d.Timeout == 0 {
		d.Timeout = 10 * time.Minute
	}
	if d.Profile == "" {
		d.Profile = "mock"
	}
	if d.Model == "" {
		d.Model = "synth:120m"
	}
	if d.Threads == 0 {
		d.Threads = 1
	}
}

// armName keeps names fit for directories, tables and flags.
var armName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]{0,39}$`)

// Validate returns ErrDefinition for the first key that is outside its range.
func (d *Definition) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrDefinition}, args...)...)
	}
	var names []string
	for i := range d.Arms {
		a := &d.Arms[i]
		switch {
		case !armName.MatchString(a.Name):
			return bad("arms has the name %q, allowed: 1 to 40 of [a-z0-9.+-], not beginning with a sign", a.Name)
		case slices.Contains(names, a.Name):
			return bad("arms has %q twice", a.Name)
		case !(a.SpanNS >= 0 && a.SpanNS <= 1e6):
			return bad("arm %s has a span_ns of %v, allowed: 0 (none) to 1e6", a.Name, a.SpanNS)
		}
		names = append(names, a.Name)
	}
	for _, k := range d.On {
		if !slices.Contains(Kinds, k) {
			return bad("on has %q, allowed: %s", k, strings.Join(Kinds, ", "))
		}
	}
	if _, err := arrival.Parse(d.Arrivals); err != nil {
		return bad("arrivals: %w", err)
	}
	switch {
	case !armName.MatchString(d.Name):
		return bad("name is %q, allowed: 1 to 40 of [a-z0-9.+-], not beginning with a sign", d.Name)
	case len(d.Arms) == 0:
		return bad("arms is empty")
	case d.Anchor != "" && !slices.Contains(names, d.Anchor):
		return bad("anchor is %q, allowed: %s", d.Anchor, strings.Join(names, ", "))
	case len(d.Blocks) > 1 && d.Anchor == "":
		return bad("%d blocks have no anchor by which they could be compared", len(d.Blocks))
	case !slices.Contains(names, d.Capacity.Arm):
		return bad("capacity.arm is %q, allowed: %s", d.Capacity.Arm, strings.Join(names, ", "))
	case d.Capacity.Requests < 5:
		return bad("capacity.requests is %d, allowed: 5 and more", d.Capacity.Requests)
	case (len(d.Rates) > 0) == (len(d.Loads) > 0):
		return bad("there are %d rates and %d loads, wanted is one kind", len(d.Rates), len(d.Loads))
	case len(d.Seeds) < 3:
		return bad("%d seeds, at least 3 are needed: one or two say nothing about the spread", len(d.Seeds))
	case d.Workload == "":
		return bad("workload is empty")
	case d.SLO != nil && d.Alone != nil:
		return bad("slo and slo_alone contradict each other")
	case d.SLO != nil && (d.SLO.TTFT < 0 || d.SLO.TPOT < 0 || d.SLO.E2E < 0):
		return bad("slo has a negative time")
	case d.Alone != nil && (d.Alone.TTFT < 0 || d.Alone.E2E < 0 || d.Alone.TTFT+d.Alone.E2E == 0):
		return bad("slo_alone has ttft %v and e2e %v, allowed: 0 (none) and more, not both 0", d.Alone.TTFT, d.Alone.E2E)
	case d.Length < 0 || d.Requests < 0 || (d.Length > 0) == (d.Requests > 0):
		return bad("length is %v and requests is %d, wanted is one of them, more than 0", d.Length, d.Requests)
	case d.WarmupRequests < 0 || d.WarmupRequests > 0 && d.Requests == 0:
		return bad("warmup_requests is %d, allowed: 0 and more, with requests", d.WarmupRequests)
	case d.Requests > 0 && d.Warmup+d.Tail != 0:
		return bad("warmup is %v and tail is %v, allowed with requests: 0", d.Warmup, d.Tail)
	case d.Length > 0 && (d.Warmup < 0 || d.Tail < 0 || d.Warmup+d.Tail >= d.Length):
		return bad("warmup is %v and tail is %v, allowed: together less than length (%v)", d.Warmup, d.Tail, d.Length)
	case d.Drain < 0:
		return bad("drain is %v, allowed: 0 and more", d.Drain)
	case d.Timeout <= 0:
		return bad("timeout is %v, allowed: more than 0", d.Timeout)
	case d.Threads < 1:
		return bad("threads is %d, allowed: 1 and more", d.Threads)
	}
	return errors.Join(d.validateBlocks(names), distinct("seeds", d.Seeds), positive("rates", d.Rates), positive("loads", d.Loads))
}

// validateBlocks returns ErrDefinition unless every arm but the anchor is in exactly one block.
func (d *Definition) validateBlocks(names []string) error {
	seen := map[string]int{}
	for i, b := range d.Blocks {
		for _, name := range b {
			if !slices.Contains(names, name) {
				return fmt.Errorf("%w: blocks has %q, allowed: %s", ErrDefinition, name, strings.Join(names, ", "))
			}
			if at, ok := seen[name]; ok && (name != d.Anchor || at == i) {
				return fmt.Errorf("%w: blocks has %q twice", ErrDefinition, name)
			}
			seen[name] = i
		}
	}
	for _, name := range names {
		if _, ok := seen[name]; !ok {
			return fmt.Errorf("%w: no block has the arm %q", ErrDefinition, name)
		}
	}
	return nil
}

func positive(key string, values []float64) error {
	for _, v := range values {
		if !(v > 0) {
			return fmt.Errorf("%w: %s has %v, allowed: more than 0", ErrDefinition, key, v)
		}
	}
	return distinct(key, values)
}

func distinct[T comparable](key string, values []T) error {
	for i, v := range values {
		if slices.Contains(values[:i], v) {
			return fmt.Errorf("%w: %s has %v twice", ErrDefinition, key, v)
		}
	}
	return nil
}

// Times returns how long the arrivals of a run at a rate last, and how much of that is warm-up.
func (d *Definition) Times(rate float64) (length, warmup time.Duration) {
	if d.Requests == 0 {
		return d.Length, d.Warmup
	}
	of := func(n int) time.Duration { return time.Duration(float64(n) / rate * float64(time.Second)) }
	return of(d.WarmupRequests + d.Requests), of(d.WarmupRequests)
}

// Arm returns the arm of a name, which must be one of d's, with the arguments of all arms before its own.
func (d *Definition) Arm(name string) Arm {
	i := slices.IndexFunc(d.Arms, func(a Arm) bool { return a.Name == name })
	a := d.Arms[i]
	a.Args = slices.Concat(d.Args, a.Args)
	return a
}

// Hash tells whether runs belong together: SHA-256, in hexadecimal, over the definition, the kind of engine, what the
// workload's file says, and engine, the SHA-256 of the profile or the model that is served, which counts in place of its name or
// path. About is not part of it.
func (d *Definition) Hash(on string, workload json.RawMessage, engine string) (string, error) {
	c := *d
	c.About, c.On, c.Profile, c.Model = "", []string{on}, "", ""
	b, err := json.Marshal(struct {
		Definition Definition      `json:"definition"`
		Workload   json.RawMessage `json:"workload"`
		Engine     string          `json:"engine"`
	}{c, workload, engine})
	if err != nil {
		return "", fmt.Errorf("ladder: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
