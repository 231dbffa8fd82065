package calibrate

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/cadence-slo/cadence/bench/constraint"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/llamabackend"
	"github.com/cadence-slo/cadence/worker/mock"
)

// The engines that can be opened here.
const (
	OnLlama = "llama"
	OnMock  = "mock"
)

// EngineOptions name an engine and its sizes. The tags are flags.
type EngineOptions struct {
	On          string `help:"engine: llama, or mock, which takes the time of a profile" enum:"llama,mock" default:"llama"`
	Model       string `help:"model on llama: tiny, 120m or 0.5b (random weights, made here), the name of a pulled one, or a GGUF file" default:"120m"`
	ModelDir    string `help:"directory of models; empty: the user's cache" type:"path"`
	Threads     int    `help:"threads of llama.cpp" default:"1"`
	KVTokens    int    `help:"tokens of KV cache" default:"16384" name:"kv-tokens"`
	Sequences   int    `help:"sequence ids of the engine" default:"64"`
	EngineBatch int    `help:"most tokens that the engine takes in one step" default:"512"`
	MaxBatch    int    `help:"requests that the worker runs at once" default:"32"`

	// Profile is the mock's; nil: what it takes by default.
	Profile *profile.Profile `kong:"-"`
}

// DefaultEngineOptions returns the defaults of the flags.
func DefaultEngineOptions() EngineOptions {
	return EngineOptions{On: OnLlama, Model: "120m", Threads: 1, KVTokens: 16384, Sequences: 64, EngineBatch: 512, MaxBatch: 32}
}

// Validate returns ErrConfig for the first key that is outside its range; what only the engine knows is left to it.
func (o *EngineOptions) Validate() error {
	return constraint.Check(ErrConfig,
		constraint.Of("on", o.On == OnLlama || o.On == OnMock, o.On, OnLlama+", "+OnMock),
		constraint.Of("model", o.Model != "" || o.On == OnMock, o.Model, "a name or a file"),
		constraint.Of("threads", o.Threads >= 1, o.Threads, "1 and more"),
		constraint.Of("kv-tokens", o.KVTokens >= 2*pageTokens, o.KVTokens, strconv.Itoa(2*pageTokens)+" and more"),
		constraint.Of("sequences", o.Sequences >= 1 && o.Sequences <= 256, o.Sequences, "1 to 256"),
		constraint.Of("engine-batch", o.EngineBatch >= 1, o.EngineBatch, "1 and more"),
		constraint.Of("max-batch", o.MaxBatch >= 1 && o.MaxBatch <= min(o.Sequences, o.EngineBatch), o.MaxBatch, fmt.Sprintf("1 to sequences and engine-batch (%d)", min(o.Sequences, o.EngineBatch))),
	)
}

// Engine is an open engine, and what prompts for it are made of.
type Engine struct {
	worker.Backend
	Model pipeline.Model
	IDs   workload.Vocabulary
}

// Open opens an engine. The caller closes it.
func Open(ctx context.Context, o EngineOptions, log *slog.Logger) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{}
	var err error
	if o.On == OnMock {
		cfg := mock.DefaultConfig()
		cfg.KVCells, cfg.Sequences, cfg.BatchTokens, cfg.ContextTokens, cfg.Profile = o.KVTokens, o.Sequences, o.EngineBatch, min(cfg.ContextTokens, o.KVTokens), o.Profile
		if e.Model, e.IDs, err = pipeline.MockModel(); err != nil {
			return nil, err
		}
		e.Backend, err = mock.New(cfg)
		return e, err
	}
	file, err := pipeline.FindModel(ctx, o.ModelDir, o.Model)
	if err != nil {
		return nil, err
	}
	if e.Model, e.IDs, err = pipeline.OpenModel(file); err != nil {
		return nil, err
	}
	cfg := llamabackend.DefaultConfig()
	cfg.Path, cfg.Model, cfg.Threads = file, e.Model.File, o.Threads
	cfg.Cells, cfg.Sequences, cfg.BatchTokens = o.KVTokens, o.Sequences, o.EngineBatch
	e.Backend, err = llamabackend.Open(cfg, log)
	return e, err
}

// limits are those of a worker on the engine.
func limits(o *EngineOptions, i worker.Info, chunk int) profile.Limits {
	return profile.Limits{KVTokens: i.KVCells, PageTokens: pageTokens, Sequences: i.Sequences, MaxBatch: o.MaxBatch, BatchTokens: i.BatchTokens,
		ChunkTokens: min(chunk, i.BatchTokens), ContextTokens: min(i.ContextTokens, i.KVCells)}
}
