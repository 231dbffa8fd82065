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
	Path        string `help:"GGUF file of the model" type:"path"`
	Model       string `help:"name that requests ask for; empty: the one in the file"`
	BackendDir  string `help:"folder with ggml backends (libggml-*.so), of a GPU for instance" type:"path"`
	GPULayers   int    `help:"layers to put on the GPU, where there is one" default:"0"`
	Context     int    `help:"longest prompt and output together, in tokens; 0: what the model was trained for" default:"0"`
	Cells       int    `help:"KV cells, one for each token of all sequences together" default:"8192"`
	Sequences   int    `help:"sequence ids (1 to 256): requests that the engine can hold at once" default:"32"`
	BatchTokens int    `help:"most tokens computed in one step" default:"512"`
	Threads     int    `help:"threads of a step; more than there are idle cores makes it slower by orders of magnitude" default:"1"`
}

// DefaultConfig returns the defaults of the flags, without a model.
func DefaultConfig() Config {
	return Config{Cells: 8192, Sequences: 32, BatchTokens: 512, Threads: 1}
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
