package llamabackend

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/cadence-slo/cadence/schema"
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
	wishes   []wish           // by sequence id
	scratch  sample.Scratch
	times    Times
}

// Times sums what Step has spent since the beginning. What is left of it is bookkeeping.
type Times struct {
	Decode time.Duration // llama_decode, and waiting for its logits
	Sample time.Duration // choosing tokens, with what grammars and log-probabilities take
}

// Times returns them. It belongs to the goroutine that owns the Backend.
func (b *Backend) Times() Times { return b.times }

// wish is what a request wants beside tokens.
type wish struct {
	grammar  *llama.Grammar  // nil: any text will do
	logprobs int32           // as in worker.Start
	told     schema.Logprobs // of the last token
}

// close ends a wish; the zero one takes its place, but for memory.
func (w *wish) close() {
	if w.grammar != nil {
		w.grammar.Close()
	}
	w.grammar, w.logprobs = nil, 0
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
	if err := cfg.gpu(); err != nil {
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
		wishes:   make([]wish, co.Sequences),
	}
	if b.info, err = describe(&cfg, model.Facts(), co); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// gpu returns ErrConfig if layers are to be on a GPU and llama.cpp has none.
func (c *Config) gpu() error {
	if c.GPULayers == 0 {
		return nil
	}
	devices, err := llama.Devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Kind == "gpu" || d.Kind == "igpu" {
			return nil
		}
	}
	return fmt.Errorf("%w: gpu layers are %d, allowed: 0, for no GPU was found by what is linked in and in the backend folder %q", ErrConfig, c.GPULayers, c.BackendDir)
}

func describe(cfg *Config, f llama.Facts, co llama.ContextOptions) (worker.Info, error) {
	i := worker.Info{
		Backend: "llamacpp", Model: cfg.Model, ContextTokens: cfg.Context, Vocab: f.Vocab,
		Sequences: co.Sequences, KVCells: co.Cells, BatchTokens: co.BatchTokens, Sharing: true, Logprobs: true, Grammars: true,
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
	w := &b.wishes[seq]
	w.close()
	w.logprobs = s.Logprobs
	if s.Grammar != "" {
		var err error
		if w.grammar, err = llama.NewGrammar(b.model, s.Grammar); err != nil {
			return err
		}
		for i, token := range s.Output {
			if err := w.grammar.Accept(token); err != nil {
				return fmt.Errorf("output token %d: %w", i, err)
			}
		}
	}
	return b.samplers[seq].Reset(s.Sampling, s.Prompt, s.Output)
}

// Apply implements worker.Backend.
func (b *Backend) Apply(m batch.Move) error {
	dst, n := int32(m.Dst), int32(m.Tokens)
	switch m.Kind {
	case batch.MoveTrim: // it does not run any more
		b.wishes[dst].close()
		return b.context.SeqRemove(dst, n, -1)
	case batch.MoveRebase:
		return b.context.SeqRebase(int32(m.Src), dst, n)
	default:
		return b.context.SeqCopy(int32(m.Src), dst, 0, n)
	}
}

// Step implements worker.Backend.
func (b *Backend) Step(step *batch.Batch, rows []batch.Row) error {
	if err := b.decode(step.Entries); err != nil {
		return err
	}
	begin := time.Now()
	for i := range step.Entries {
		ok, err := b.finite(i)
		if err != nil {
			return err
		}
		if !ok {
			b.log.Warn("sequence came to NaN", "sequence", int(step.Entries[i].Seq))
			rows[i].Err = sample.ErrLogits
		}
	}
	computed := time.Now()
	b.times.Decode += computed.Sub(begin)
	for i := range step.Entries {
		e, row := &step.Entries[i], &rows[i]
		if row.Err == nil && !e.Prefill { // a prefill's tokens were Start's
			row.Err = b.accept(e)
		}
		b.sample(e, b.last[i], row)
	}
	b.times.Sample += time.Since(computed)
	return nil
}

// accept tells sampler and grammar what was chosen for a sequence.
func (b *Backend) accept(e *batch.Entry) error {
	for _, token := range e.Tokens {
		b.samplers[e.Seq].Accept(token)
		if g := b.wishes[e.Seq].grammar; g != nil {
			if err := g.Accept(token); err != nil {
				return err
			}
		}
	}
	return nil
}

// decode feeds the entries. Each one's last token gets logits, sampled or not: what a prefill computed wrong must be
// seen in the step that did it.
func (b *Backend) decode(entries []batch.Entry) error {
	b.batch.Reset()
	for i := range entries {
		e := &entries[i]
		for k, token := range e.Tokens {
			row, err := b.batch.Add(token, e.Pos+int32(k), k == len(e.Tokens)-1, int32(e.Seq))
			if err != nil {
				return err
			}
			b.last[i] = row
		}
	}
	defer func(begin time.Time) { b.times.Decode += time.Since(begin) }(time.Now())
	return b.context.Decode(b.batch)
}

// finite reports whether entry i of the last decode came to numbers. A hidden state with a NaN in it makes every logit
// one, so that the first tells. Attention skips the cells of others, so that it stays with its sequence.
func (b *Backend) finite(i int) (bool, error) {
	logits, err := b.context.Logits(b.last[i])
	return err == nil && logits[0] == logits[0], err
}

// sample chooses the token that follows an entry, if one is wanted.
func (b *Backend) sample(e *batch.Entry, last int, row *batch.Row) {
	if !e.Sample || row.Err != nil {
		return
	}
	logits, err := b.context.Logits(last)
	if err != nil {
		row.Err = err
		return
	}
	w := &b.wishes[e.Seq]
	var filter sample.Filter
	if w.grammar != nil {
		filter = w.grammar
	}
	row.Token, row.Err = b.samplers[e.Seq].SampleAllowed(logits, e.Pos+int32(len(e.Tokens)), &b.scratch, filter)
	if row.Err == nil && w.logprobs > 0 {
		w.told.Reset()
		sample.AppendLogprobs(&w.told, logits, row.Token, int(w.logprobs-1), &b.scratch)
		row.Logprobs = &w.told
	}
}

// AppendPiece implements worker.Backend.
func (b *Backend) AppendPiece(dst []byte, token int32) ([]byte, error) {
	return b.model.AppendPiece(dst, token, false)
}

// EOG implements worker.Backend.
func (b *Backend) EOG(token int32) bool { return b.model.IsEOG(token) }

// Close implements worker.Backend. The model is closed too.
func (b *Backend) Close() error {
	for i := range b.wishes {
		b.wishes[i].close()
	}
	return errors.Join(b.context.Close(), b.model.Close())
}
