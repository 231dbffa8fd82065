package workload

import (
	"bytes"
	"embed"
	"encoding/json"
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

// Spec describes the requests of a workload. Either the keys of its only kind stand in it, or Kinds has several.
type Spec struct {
	Name string `yaml:"name" json:"name"`

	// SharedRatio, in [0, 1], is the part of the requests that begin with one of the system prompts, each with the same
	// probability.
	SharedRatio   float64 `yaml:"shared_ratio" json:"shared_ratio,omitzero"`
	SystemPrompts int     `yaml:"system_prompts" json:"system_prompts,omitzero"` // how many there are; ≥ 1 if any request shares
	SystemTokens  Range   `yaml:"system_tokens" json:"system_tokens,omitzero"`   // length of each, drawn once
	TailTokens    Range   `yaml:"tail_tokens" json:"tail_tokens,omitzero"`       // behind a system prompt, unique
	UniqueTokens  Range   `yaml:"unique_tokens" json:"unique_tokens,omitzero"`   // of a prompt that shares nothing
	Output        Output  `yaml:"output" json:"output,omitzero"`

	Kinds   []Kind   `yaml:"kinds,omitempty" json:"kinds,omitempty"`
	Tenants []Tenant `yaml:"tenants,omitempty" json:"tenants,omitempty"` // empty: requests have none
	// SLOs are the objectives by class; "" is the class of requests that have none. Empty: the workload declares none.
	SLOs map[string]record.SLO `yaml:"slos,omitempty" json:"slos,omitempty"`
}

// Kind is one of several sorts of requests. Its prompts share nothing with those of other kinds.
type Kind struct {
	Name  string  `yaml:"name" json:"name"`
	Share float64 `yaml:"share" json:"share"` // > 0; its part of the requests is this by the sum over all kinds
	// Class is the key of SLOs for requests of the kind; empty: the tenant's.
	Class string `yaml:"class,omitempty" json:"class,omitempty"`

	// As in Spec.
	SharedRatio   float64 `yaml:"shared_ratio" json:"shared_ratio,omitzero"`
	SystemPrompts int     `yaml:"system_prompts" json:"system_prompts,omitzero"`
	SystemTokens  Range   `yaml:"system_tokens" json:"system_tokens,omitzero"`
	TailTokens    Range   `yaml:"tail_tokens" json:"tail_tokens,omitzero"`
	UniqueTokens  Range   `yaml:"unique_tokens" json:"unique_tokens,omitzero"`
	Output        Output  `yaml:"output" json:"output"`
}

// Tenant is one of those who send the requests, whatever their kind.
type Tenant struct {
	Name   string  `yaml:"name" json:"name"`
	Share  float64 `yaml:"share" json:"share"`                       // > 0; its part of the requests is this by the sum over all tenants
	Weight float64 `yaml:"weight,omitempty" json:"weight,omitempty"` // its part of a fair scheduler, relative to the others'; 0: 1
	Class  string  `yaml:"class,omitempty" json:"class,omitempty"`   // key of SLOs; empty: none
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

// About returns what the comment at the head of an embedded workload says in its first sentence, or an error that wraps
// ErrSpec.
func About(name string) (string, error) {
	b, err := Text(name)
	if err != nil {
		return "", err
	}
	var words []string
	for line := range strings.Lines(string(b)) {
		text, comment := strings.CutPrefix(line, "#")
		if !comment {
			break
		}
		words = append(words, strings.Fields(text)...)
	}
	sentence, _, _ := strings.Cut(strings.Join(words, " ")+" ", ". ")
	return strings.TrimSpace(sentence), nil
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
	var err error
	if json.Valid(b) {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		err = d.Decode(s)
	} else {
		err = yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(s)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// mix returns the kinds, at least one. One without a name is the spec's only one.
func (s *Spec) mix() []Kind {
	if len(s.Kinds) > 0 {
		return s.Kinds
	}
	return []Kind{{
		Share: 1, SharedRatio: s.SharedRatio, SystemPrompts: s.SystemPrompts, SystemTokens: s.SystemTokens, TailTokens: s.TailTokens,
		UniqueTokens: s.UniqueTokens, Output: s.Output,
	}}
}

// senders returns the tenants, at least one. One without a name is nobody.
func (s *Spec) senders() []Tenant {
	if len(s.Tenants) > 0 {
		return s.Tenants
	}
	return []Tenant{{Share: 1}}
}

// class is that of a request of kind k from t.
func class(k *Kind, t *Tenant) string {
	if k.Class != "" {
		return k.Class
	}
	return t.Class
}

// Longest is the most tokens that prompt and answer of one request have together.
func (s *Spec) Longest() int {
	longest := 0
	for _, k := range s.mix() {
		prompt := 0
		if k.SharedRatio > 0 {
			prompt = k.SystemTokens.Max + k.TailTokens.Max
		}
		if k.SharedRatio < 1 {
			prompt = max(prompt, k.UniqueTokens.Max)
		}
		longest = max(longest, prompt+k.Output.longest())
	}
	return longest
}
