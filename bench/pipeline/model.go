package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/worker/gguf"
	"github.com/cadence-slo/cadence/worker/llama"
	"github.com/cadence-slo/cadence/worker/mock"
	"github.com/cadence-slo/cadence/worker/modelfile"
	"github.com/klauspost/cpuid/v2"
)

// Machine is where something was measured, and by what.
type Machine struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Go      string `json:"go"`
	Version string `json:"cadence"` // of this program
}

// ThisMachine describes where this process runs.
func ThisMachine(version string) Machine {
	return Machine{CPU: cpuid.CPU.BrandName, Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), Version: version}
}

func (m *Machine) String() string {
	return fmt.Sprintf("cadence %s; %s, %d cores, %s/%s, %s", m.Version, m.CPU, m.Cores, m.OS, m.Arch, m.Go)
}

// Model is what was served.
type Model struct {
	File         string `json:"file"`
	SHA256       string `json:"sha256"` // of the file
	SizeBytes    int64  `json:"size_bytes"`
	Architecture string `json:"architecture"`
	Quantisation string `json:"quantisation"`
	Parameters   uint64 `json:"parameters"`
}

func (m *Model) String() string {
	return fmt.Sprintf("%s (%s, %s, %.0f M parameters, sha256 %.12s)", m.File, m.Architecture, m.Quantisation, float64(m.Parameters)/1e6, m.SHA256)
}

// FindModel resolves a model's name to its file; 120m and the like are short for the synthetic ones. dir is that of models;
// empty: the user's cache.
func FindModel(ctx context.Context, dir, name string) (string, error) {
	if slices.Contains(gguf.Presets(), name) {
		name = "synth:" + name
	}
	return modelfile.Find(ctx, dir, name, nil)
}

// OpenModel reads what must be known of a GGUF file: the token ids that prompts may have, and what the report says. Its
// weights stay on disk.
func OpenModel(path string) (_ Model, _ workload.Vocabulary, err error) {
	if err := llama.Init(nil, ""); err != nil {
		return Model{}, nil, err
	}
	opts := llama.DefaultModelOptions()
	opts.VocabOnly = true
	m, err := llama.LoadModel(path, opts)
	if err != nil {
		return Model{}, nil, err
	}
	f := m.Facts()
	vocab, err := workload.NewVocabulary(f.Vocab, func(id int32) bool { return m.IsControl(id) || m.IsEOG(id) })
	if closed := m.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return Model{}, nil, err
	}
	out := Model{File: filepath.Base(path), Architecture: f.Architecture, Quantisation: f.Quantisation, Parameters: f.Parameters}
	out.SHA256, out.SizeBytes, err = hash(path)
	return out, vocab, err
}

func hash(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, fmt.Errorf("pipeline: reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// MockModel is the mock engine's. Prompts are of words only.
func MockModel() (Model, workload.Vocabulary, error) {
	vocab, err := workload.NewVocabulary(mock.Vocab, func(id int32) bool { return id <= mock.TurnEnd })
	return Model{File: "mock", Architecture: "mock"}, vocab, err
}
