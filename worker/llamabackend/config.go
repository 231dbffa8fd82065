package llamabackend

import (
	"errors"
	"fmt"

	"github.com/cadence-slo/cadence/worker/llama"
)

// ErrConfig is returned for a configuration that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("llamabackend: invalid configuration")

// Config says which model to serve, and how.
type Config struct {
	Path        string // GGUF file of the model
	Model       string // name that requests ask for; empty: the one in the file
	BackendDir  string // folder with ggml backends (libggml-*.so), of a GPU for instance; empty: those linked in
	GPULayers   int    // layers to put on the GPU; above 0 it must be there
	Context     int    // longest prompt and output together, in tokens; 0: what the model was trained for
	Cells       int    // KV cells, one for each token of all sequences together
	Sequences   int    // sequence ids: requests that the engine can hold at once, in [1, 256]
	BatchTokens int    // most tokens computed in one step
	Threads     int    // of a step; more than there are idle cores makes it slower by orders of magnitude
}

// DefaultConfig suits a small model, which is still to be named: 8,192 cells, 64 sequences, one thread.
func DefaultConfig() Config {
	return Config{Cells: 8192, Sequences: 64, BatchTokens: 512, Threads: 1}
}

// Validate returns ErrConfig, naming the first key that is outside its range.
func (c *Config) Validate() error {
	if c.Path == "" {
		return fmt.Errorf("%w: path is empty, allowed: a GGUF file", ErrConfig)
	}
	if c.Context < 0 || c.Context == 1 {
		return fmt.Errorf("%w: context is %d, allowed: 0 (the model's), 2 and more", ErrConfig, c.Context)
	}
	model, context := c.options()
	if err := model.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := context.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func (c *Config) options() (llama.ModelOptions, llama.ContextOptions) {
	m := llama.DefaultModelOptions()
	m.GPULayers = c.GPULayers
	return m, llama.ContextOptions{
		Cells: c.Cells, Sequences: c.Sequences, BatchTokens: c.BatchTokens, MicroBatchTokens: c.BatchTokens,
		Threads: c.Threads, BatchThreads: c.Threads,
	}
}
