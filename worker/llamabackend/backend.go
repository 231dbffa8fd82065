package llamabackend

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/llama"
	"github.com/cadence-slo/cadence/worker/sample"
)

// Backend implements worker.Backend.
type Backend struct {
	model   *llama.Model
	context *llama.Context
	info    worker.Info
	log     *slog.Logger

	batch    *llama.Batch
	last     []int            // row of each entry's last token
	samplers []sample.Sampler // by sequence id
	scratch  sample.Scratch
}

var _ worker.Backend = (*Backend)(nil)

// Open starts llama.cpp, if that has not happened in this process, and loads the model. It returns ErrConfig and the
// errors of package llama.
func Open(cfg Config, log *slog.Logger) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	log = log.With("component", "llamabackend")
	if err := llama.Init(log, cfg.BackendDir); err != nil {
		return nil, err
	}
	mo, co := cfg.options()
	model, err := llama.LoadModel(cfg.Path, mo)
	if err != nil {
		return nil, err
	}
	context, err := llama.NewContext(model, co)
	if err != nil {
		return nil, errors.Join(err, model.Close())
	}
	co = context.Options()
	b := &Backend{
		model: model, context: context, log: log,
		batch:    llama.NewBatch(co.BatchTokens),
		last:     make([]int, co.Sequences),
		samplers: make([]sample.Sampler, co.Sequences),
	}
	if b.info, err = describe(&cfg, model.Facts(), co); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func describe(cfg *Config, f llama.Facts, co llama.ContextOptions) (worker.Info, error) {
	i := worker.Info{
		Backend: "llamacpp", Model: cfg.Model, ContextTokens: cfg.Context, Vocab: f.Vocab,
		Sequences: co.Sequences, KVCells: co.Cells, BatchTokens: co.BatchTokens,
	}
	if i.Model == "" {
		i.Model = f.Name
	}
	if i.Model == "" {
		return i, fmt.Errorf("%w: model is empty, and the file %s has no name in it", ErrConfig, cfg.Path)
	}
	if f.ContextTokens > 0 && (i.ContextTokens == 0 || i.ContextTokens > f.ContextTokens) {
		i.ContextTokens = f.ContextTokens
	}
	if i.ContextTokens == 0 {
		i.ContextTokens = co.Cells
	}
	head, err := digest(cfg.Path)
	if err != nil {
		return i, err
	}
	i.Fingerprint = fmt.Sprintf("llamacpp-%s-%s-%d-%s", f.Architecture, f.Quantisation, f.SizeBytes, head)
	return i, nil
}

// digest tells files apart by their head (metadata, names and places of the tensors) and the first of their weights.
func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, io.LimitReader(f, 16<<20))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("llamabackend: reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)[:6]), nil
}

// Model is what the backend serves: tokenizer, chat template and facts, for anyone to use until Close.
func (b *Backend) Model() *llama.Model { return b.model }

// Info implements worker.Backend.
func (b *Backend) Info() worker.Info { return b.info }

// Start implements worker.Backend.
func (b *Backend) Start(seq batch.SeqID, s *worker.Start) error {
	if err := b.context.SeqRemove(int32(seq), 0, -1); err != nil { // empty already, unless a Drop went wrong
		return err
	}
	return b.samplers[seq].Reset(s.Sampling, s.Prompt, s.Output)
}

// Step implements worker.Backend.
func (b *Backend) Step(step *batch.Batch, rows []batch.Row) error {
	b.batch.Reset()
	for i := range step.Entries {
		e := &step.Entries[i]
		for k, token := range e.Tokens {
			row, err := b.batch.Add(token, e.Pos+int32(k), e.Sample && k == len(e.Tokens)-1, int32(e.Seq))
			if err != nil {
				return err
			}
			b.last[i] = row
		}
	}
	if err := b.context.Decode(b.batch); err != nil {
		return err
	}
	for i := range step.Entries {
		e := &step.Entries[i]
		s := &b.samplers[e.Seq]
		if !e.Prefill {
			for _, token := range e.Tokens {
				s.Accept(token)
			}
		}
		if e.Sample {
			logits, err := b.context.Logits(b.last[i])
			if err == nil {
				rows[i].Token, err = s.Sample(logits, e.Pos+int32(len(e.Tokens)), &b.scratch)
			}
			rows[i].Err = err
		}
	}
	return nil
}

// Drop implements worker.Backend.
func (b *Backend) Drop(seq batch.SeqID) {
	if err := b.context.SeqRemove(int32(seq), 0, -1); err != nil {
		b.log.Error("sequence not removed", "sequence", int(seq), "error", err)
	}
}

// AppendPiece implements worker.Backend.
func (b *Backend) AppendPiece(dst []byte, token int32) ([]byte, error) {
	return b.model.AppendPiece(dst, token, false)
}

// EOG implements worker.Backend.
func (b *Backend) EOG(token int32) bool { return b.model.IsEOG(token) }

// Close implements worker.Backend. The model is closed too.
func (b *Backend) Close() error { return errors.Join(b.context.Close(), b.model.Close()) }
