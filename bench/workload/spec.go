package workload

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/goccy/go-yaml"
)

// ErrSpec is returned for a workload that cannot be made; the message names the key and the allowed values.
var ErrSpec = errors.New("workload: invalid description")

// maxTokens bounds every length of a description.
const maxTokens = 1 << 20

// Range is a whole number drawn uniformly from [Min, Max].
type Range struct {
	Min int `yaml:"min" json:"min"`
	Max int `yaml:"max" json:"max"`
}

// Cap is a lognormal number of tokens, rounded and clipped to [Min, Max].
type Cap struct {
	Mu    float64 `yaml:"mu" json:"mu"`       // mean of the logarithm
	Sigma float64 `yaml:"sigma" json:"sigma"` // its standard deviation, ≥ 0
	Min   int     `yaml:"min" json:"min"`
	Max   int     `yaml:"max" json:"max"`
}

// Output says how long answers are: either Fixed, or drawn from Cap and then shortened.
type Output struct {
	Fixed int  `yaml:"fixed,omitempty" json:"fixed,omitempty"` // tokens of every answer; 0: drawn from Cap
	Cap   *Cap `yaml:"cap,omitempty" json:"cap,omitempty"`     // what a client would send as max_tokens
	// RealisedRatio, in (0, 1], is the length of an answer as a part of its cap; RealisedMin is the least, ≥ 1.
	RealisedRatio float64 `yaml:"realised_ratio,omitempty" json:"realised_ratio,omitempty"`
	RealisedMin   int     `yaml:"realised_min,omitempty" json:"realised_min,omitempty"`
}

// Spec describes the requests of a workload.
type Spec struct {
	Name string `yaml:"name" json:"name"`
	// SharedRatio, in [0, 1], is the part of the requests that begin with one of the system prompts, each with the same
	// probability.
	SharedRatio   float64 `yaml:"shared_ratio" json:"shared_ratio"`
	SystemPrompts int     `yaml:"system_prompts" json:"system_prompts"` // how many there are; ≥ 1 if any request shares
	SystemTokens  Range   `yaml:"system_tokens" json:"system_tokens"`   // length of each, drawn once
	TailTokens    Range   `yaml:"tail_tokens" json:"tail_tokens"`       // behind a system prompt, unique
	UniqueTokens  Range   `yaml:"unique_tokens" json:"unique_tokens"`   // of a prompt that shares nothing
	Output        Output  `yaml:"output" json:"output"`
	// SLOs are the objectives by class; "" is the class of requests that have none.
	SLOs map[string]record.SLO `yaml:"slos,omitempty" json:"slos,omitempty"`
}

//go:embed *.yaml
var embedded embed.FS

// Embedded returns the names of the workloads that come with the package, in order of their names.
func Embedded() []string {
	files, err := fs.Glob(embedded, "*.yaml")
	if err != nil {
		return nil // the pattern is right
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, path.Ext(f))
	}
	return files
}

// Text returns the file of an embedded workload, comments included, or an error that wraps ErrSpec.
func Text(name string) ([]byte, error) {
	b, err := embedded.ReadFile(name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("%w: no workload is called %q; there are %s", ErrSpec, name, strings.Join(Embedded(), ", "))
	}
	return b, nil
}

// Open reads a workload: the name of an embedded one, or the path of a file.
func Open(nameOrPath string) (*Spec, error) {
	b, err := embedded.ReadFile(nameOrPath + ".yaml")
	if err != nil {
		if b, err = os.ReadFile(nameOrPath); err != nil {
			return nil, fmt.Errorf("%w: %q is none of %s, and no file: %w", ErrSpec, nameOrPath, strings.Join(Embedded(), ", "), err)
		}
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOrPath, err)
	}
	return s, nil
}

// Parse reads a description in YAML or JSON and validates it. Keys that are not known are errors.
func Parse(b []byte) (*Spec, error) {
	s := &Spec{}
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// Validate returns ErrSpec for the first key that is outside its range.
func (s *Spec) Validate() error {
	if s.Name == "" {
		return fmt.Errorf("%w: name is empty", ErrSpec)
	}
	if !(s.SharedRatio >= 0 && s.SharedRatio <= 1) {
		return fmt.Errorf("%w: shared_ratio is %v, allowed: 0 to 1", ErrSpec, s.SharedRatio)
	}
	if s.SharedRatio > 0 {
		if s.SystemPrompts < 1 || s.SystemPrompts > 1<<16 {
			return fmt.Errorf("%w: system_prompts is %d, allowed: 1 to %d", ErrSpec, s.SystemPrompts, 1<<16)
		}
		if err := errors.Join(s.SystemTokens.validate("system_tokens", 1), s.TailTokens.validate("tail_tokens", 1)); err != nil {
			return err
		}
	}
	if s.SharedRatio < 1 {
		if err := s.UniqueTokens.validate("unique_tokens", 1); err != nil {
			return err
		}
	}
	return s.Output.validate()
}

func (r Range) validate(key string, least int) error {
	if r.Min < least || r.Max < r.Min || r.Max > maxTokens {
		return fmt.Errorf("%w: %s is %d to %d, allowed: %d ≤ min ≤ max ≤ %d", ErrSpec, key, r.Min, r.Max, least, maxTokens)
	}
	return nil
}

func (o *Output) validate() error {
	if o.Cap == nil {
		if o.Fixed < 1 || o.Fixed > maxTokens {
			return fmt.Errorf("%w: output.fixed is %d, allowed without output.cap: 1 to %d", ErrSpec, o.Fixed, maxTokens)
		}
		if o.RealisedRatio != 0 || o.RealisedMin != 0 {
			return fmt.Errorf("%w: output.realised_ratio and output.realised_min say nothing without output.cap", ErrSpec)
		}
		return nil
	}
	c := o.Cap
	switch {
	case o.Fixed != 0:
		return fmt.Errorf("%w: output has both fixed and cap", ErrSpec)
	case !(c.Sigma >= 0 && c.Sigma <= 10) || !(c.Mu >= -20 && c.Mu <= 20):
		return fmt.Errorf("%w: output.cap has mu %v and sigma %v, allowed: -20 to 20 and 0 to 10", ErrSpec, c.Mu, c.Sigma)
	case !(o.RealisedRatio > 0 && o.RealisedRatio <= 1):
		return fmt.Errorf("%w: output.realised_ratio is %v, allowed: more than 0 to 1", ErrSpec, o.RealisedRatio)
	case o.RealisedMin < 1 || o.RealisedMin > c.Min:
		return fmt.Errorf("%w: output.realised_min is %d, allowed: 1 to output.cap.min (%d)", ErrSpec, o.RealisedMin, c.Min)
	}
	return Range{c.Min, c.Max}.validate("output.cap", 1)
}

// Longest is the most tokens that prompt and answer of one request have together.
func (s *Spec) Longest() int {
	prompt := 0
	if s.SharedRatio > 0 {
		prompt = s.SystemTokens.Max + s.TailTokens.Max
	}
	if s.SharedRatio < 1 {
		prompt = max(prompt, s.UniqueTokens.Max)
	}
	if s.Output.Cap == nil {
		return prompt + s.Output.Fixed
	}
	return prompt + s.Output.realised(s.Output.Cap.Max)
}
