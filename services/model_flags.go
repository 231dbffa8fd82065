package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/llama"
	"github.com/cadence-slo/cadence/worker/mock"
	"github.com/cadence-slo/cadence/worker/modelfile"
)

// The engines.
const (
	backendLlama  = "llama"
	backendMock   = "mock"
	backendOpenAI = "openai"
)

// ErrFlags is returned for flags that are missing or contradict each other; the message names them.
var ErrFlags = errors.New("services: unusable flags")

// ModelFlags choose engine and model. Every process that tokenizes or generates needs the same ones.
type ModelFlags struct {
	Backend   string `help:"engine: llama (llama.cpp), openai (another server: see --upstream) or mock (a stated cost model, text from a hash)" enum:"llama,openai,mock" default:"llama"`
	Model     string `help:"model: a GGUF file, the name of a pulled one, or synth:tiny, synth:120m, synth:0.5b (random weights, made here)" default:"synth:tiny"`
	Tokenizer string `help:"with --backend openai: the model whose tokenizer and chat template are those of the other server's, named as in --model, or mock; empty: --model. Its weights are not loaded"`
	ModelDir  string `help:"directory of pulled and made models; empty: the user's cache" type:"path"`
	Alias     string `help:"another name under which clients may ask for the model"`
}

// file names the model whose file is needed.
func (m *ModelFlags) file() string {
	if m.Backend == backendOpenAI && m.Tokenizer != "" {
		return m.Tokenizer
	}
	return m.Model
}

// find returns the path of the model's file; synthetic models are made if absent.
func (m *ModelFlags) find(ctx context.Context, report func(done, total int64)) (string, error) {
	return modelfile.Find(ctx, m.ModelDir, m.file(), report)
}

// EngineFlags size the engine.
type EngineFlags struct {
	ContextTokens int     `help:"longest prompt + output of a request; 0: what the model was trained for, within kv-tokens" default:"0"`
	KVTokens      int     `help:"tokens that all requests hold together in the KV cache; llama rounds up to a multiple of 256, and only whole pages are used" default:"16384" name:"kv-tokens"`
	Sequences     int     `help:"sequence ids of the engine: those that no running request needs hold cached prefixes (at most 256)" default:"64"`
	EngineBatch   int     `help:"most tokens that the engine takes in one step" default:"512"`
	Threads       int     `help:"threads of llama.cpp; more than one can collapse on shared cores" default:"1"`
	GPULayers     int     `help:"layers offloaded to a GPU; needs one, and its back end in backend-dir" default:"0" name:"gpu-layers"`
	BackendDir    string  `help:"folder of ggml back ends (libggml-*.so), for a GPU" type:"path"`
	Mock          MockCmd `embed:"" prefix:"mock-"`
	UpstreamFlags
}

// MockCmd sets the mock's cost model.
type MockCmd struct {
	PrefillRate        float64       `help:"mock: prefill, tokens/s; 0 is free" default:"4000"`
	Step               time.Duration `help:"mock: a step" default:"10ms"`
	StepPerSeq         time.Duration `help:"mock: more of a step for each sequence that decodes" default:"250us"`
	Profile            string        `help:"mock: a profile that says how long a step takes, instead of the three above: seed-laptop, elasticserve, mock, or a file of cadence calibrate. Sizes stay flags" placeholder:"NAME|FILE"`
	EndHazard          float64       `help:"mock: probability that a token ends the answer" default:"0"`
	AttemptIndependent bool          `help:"mock: every attempt of a request continues in the same way"`
}

// mockConfig is the mock engine that the flags describe.
func mockConfig(m *ModelFlags, e *EngineFlags) (mock.Config, error) {
	c := mock.DefaultConfig()
	if e.ContextTokens > 0 {
		c.ContextTokens = e.ContextTokens
	}
	c.KVCells, c.Sequences, c.BatchTokens = e.KVTokens, e.Sequences, e.EngineBatch
	c.StepBase, c.StepSequence, c.PrefillRate = e.Mock.Step, e.Mock.StepPerSeq, e.Mock.PrefillRate
	c.EndHazard, c.AttemptIndependent = e.Mock.EndHazard, e.Mock.AttemptIndependent
	if e.Mock.Profile == "" {
		return c, nil
	}
	var err error
	c.Profile, err = openProfile(e.Mock.Profile)
	return c, err
}

// openProfile returns an embedded profile, or that in a file.
func openProfile(nameOrPath string) (*profile.Profile, error) {
	if slices.Contains(profile.Embedded(), nameOrPath) {
		return profile.Open(nameOrPath)
	}
	b, err := os.ReadFile(nameOrPath)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is none of %s, and no file: %w", profile.ErrProfile, nameOrPath, strings.Join(profile.Embedded(), ", "), err)
	}
	p, err := profile.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOrPath, err)
	}
	return p, nil
}

// fit returns ErrFlags for flags that another engine reads than the one that runs.
func (e *EngineFlags) fit(m *ModelFlags) error {
	for _, k := range []struct{ flag, value, backend string }{
		{"mock-profile", e.Mock.Profile, backendMock},
		{"upstream", e.Upstream, backendOpenAI},
		{"tokenizer", m.Tokenizer, backendOpenAI},
	} {
		if k.value != "" && m.Backend != k.backend {
			return fmt.Errorf("%w: %s is %s and backend is %s, want backend %s, or no %s", ErrFlags, k.flag, k.value, m.Backend, k.backend, k.flag)
		}
	}
	return nil
}

// validate returns ErrFlags, naming the flag and what it may be; what only an engine knows of its own limits is left to it.
func (e *EngineFlags) validate() error {
	for _, k := range []struct {
		flag    string
		ok      bool
		value   any
		allowed string
	}{
		{"kv-tokens", e.KVTokens >= 1, e.KVTokens, "1 and more"},
		{"context-tokens", e.ContextTokens >= 0 && e.ContextTokens <= e.KVTokens, e.ContextTokens, fmt.Sprintf("0 to kv-tokens (%d)", e.KVTokens)},
		{"sequences", e.Sequences >= 1 && e.Sequences <= llama.MaxSequences, e.Sequences, fmt.Sprintf("1 to %d", llama.MaxSequences)},
		{"engine-batch", e.EngineBatch >= 1 && e.EngineBatch <= e.KVTokens, e.EngineBatch, fmt.Sprintf("1 to kv-tokens (%d)", e.KVTokens)},
		{"threads", e.Threads >= 1, e.Threads, "1 and more"},
		{"gpu-layers", e.GPULayers >= 0, e.GPULayers, "0 and more"},
		{"mock-prefill-rate", e.Mock.PrefillRate >= 0, e.Mock.PrefillRate, "0 (free) and more"},
		{"mock-step", e.Mock.Step >= 0, e.Mock.Step, "0 and more"},
		{"mock-step-per-seq", e.Mock.StepPerSeq >= 0, e.Mock.StepPerSeq, "0 and more"},
		{"mock-end-hazard", e.Mock.EndHazard >= 0 && e.Mock.EndHazard < 1, e.Mock.EndHazard, "0 to less than 1"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, want %s", ErrFlags, k.flag, k.value, k.allowed)
		}
	}
	if e.BackendDir != "" {
		if st, err := os.Stat(e.BackendDir); err != nil || !st.IsDir() {
			return fmt.Errorf("%w: backend-dir is %s, want a folder that exists", ErrFlags, e.BackendDir)
		}
	}
	return nil
}
