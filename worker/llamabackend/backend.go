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
	fed      [][]int32        // what each sequence's cells hold, by sequence id, cached prefixes included
	inStep   []bool           // by sequence id
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
		fed:      make([][]int32, co.Sequences),
		inStep:   make([]bool, co.Sequences),
		samplers: make([]sample.Sampler, co.Sequences),
		wishes:   make([]wish, co.Sequences),
	}
	if b.info, err = describe(&cfg, model.Facts(), co); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
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
		b.fed[dst] = b.fed[dst][:min(m.Tokens, len(b.fed[dst]))]
		return b.context.SeqRemove(dst, n, -1)
	case batch.MoveRebase:
		if err := b.context.SeqRebase(int32(m.Src), dst, n); err != nil {
			return err
		}
	case batch.MoveCopy:
		if err := b.context.SeqCopy(int32(m.Src), dst, 0, n); err != nil {
			return err
		}
		b.fed[dst] = append(b.fed[dst][:0], b.fed[m.Src][:m.Tokens]...)
	}
	return nil
}

// Step implements worker.Backend.
func (b *Backend) Step(step *batch.Batch, rows []batch.Row) error {
	if err := b.decode(step.Entries); err != nil {
		return err
	}
	poisoned, begin := false, time.Now()
	for i := range step.Entries {
		ok, err := b.finite(i)
		if err != nil {
			return err
		}
		poisoned = poisoned || !ok
	}
	computed := time.Now()
	b.times.Decode += computed.Sub(begin)
	for i := range step.Entries {
		if e := &step.Entries[i]; !e.Prefill { // a prefill's tokens were Start's
			rows[i].Err = b.accept(e)
		}
	}
	if poisoned {
		if err := b.isolate(step, rows); err != nil {
			return err
		}
	} else {
		for i := range step.Entries {
			b.sample(&step.Entries[i], b.last[i], &rows[i])
		}
		b.times.Sample += time.Since(computed)
	}
	for i := range step.Entries {
		if e := &step.Entries[i]; rows[i].Err == nil {
			b.fed[e.Seq] = append(b.fed[e.Seq][:e.Pos], e.Tokens...)
		}
	}
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
// one, so that the first tells.
func (b *Backend) finite(i int) (bool, error) {
	logits, err := b.context.Logits(b.last[i])
	return err == nil && logits[0] == logits[0], err
}

// isolate finds who is to blame for a NaN and lets the others go on. All sequences share one cache, and attention
// multiplies what it masks by zero, which a NaN survives, also in a cell that nobody uses any more: the cache is
// emptied, zeroed and computed again from what was fed, one sequence after the other; who still comes to NaN fails, and
// it begins again without it.
func (b *Backend) isolate(step *batch.Batch, rows []batch.Row) error {
	for bad := 0; bad >= 0; {
		b.context.Zero()
		var err error
		if bad, err = b.rebuild(step, rows); err != nil {
			return fmt.Errorf("%w: computing the cache again: %w", worker.ErrBackend, err)
		}
		if bad >= 0 {
			seq := step.Entries[bad].Seq
			b.log.Warn("sequence came to NaN", "sequence", int(seq))
			rows[bad].Err = sample.ErrLogits // what it held before this step came to numbers, and others may hold it, too
		}
	}
	return nil
}

// rebuild fills the empty cache and answers the step's entries, those without an error. It returns the first that came
// to NaN, or -1.
func (b *Backend) rebuild(step *batch.Batch, rows []batch.Row) (bad int, err error) {
	clear(b.inStep)
	for i := range step.Entries {
		b.inStep[step.Entries[i].Seq] = true
	}
	done := make([]batch.SeqID, 0, len(b.fed))
	for seq := range b.fed {
		if !b.inStep[seq] && len(b.fed[seq]) > 0 {
			if err := b.restore(batch.SeqID(seq), b.fed[seq], done); err != nil {
				return 0, err
			}
			done = append(done, batch.SeqID(seq))
		}
	}
	for i := range step.Entries {
		e := &step.Entries[i]
		if err := b.restore(e.Seq, b.fed[e.Seq][:e.Pos], done); err != nil {
			return 0, err
		}
		done = append(done, e.Seq)
		if rows[i].Err != nil {
			continue
		}
		if err := b.feed(e.Seq, e.Pos, e.Tokens); err != nil {
			return 0, err
		}
		ok, err := b.finite(0)
		if err != nil {
			return 0, err
		}
		if !ok {
			return i, nil
		}
		b.sample(e, b.last[0], &rows[i])
	}
	return -1, nil
}

// restore gives an empty sequence its tokens again: what it has in common with one of done from there, so that no more
// cells are used than before, the rest computed.
func (b *Backend) restore(seq batch.SeqID, tokens []int32, done []batch.SeqID) error {
	src, most := batch.SeqID(-1), 0
	for _, other := range done {
		n := 0
		for fed := b.fed[other]; n < len(tokens) && n < len(fed) && tokens[n] == fed[n]; n++ {
		}
		if n > most {
			src, most = other, n
		}
	}
	if most > 0 {
		if err := b.context.SeqCopy(int32(src), int32(seq), 0, int32(most)); err != nil {
			return err
		}
	}
	return b.feed(seq, int32(most), tokens[most:])
}

// feed computes tokens of one sequence, in as many batches as it takes.
func (b *Backend) feed(seq batch.SeqID, pos int32, tokens []int32) error {
	for len(tokens) > 0 {
		n := min(len(tokens), b.batch.Cap())
		if err := b.decode([]batch.Entry{{Seq: seq, Pos: pos, Tokens: tokens[:n]}}); err != nil {
			return err
		}
		tokens, pos = tokens[n:], pos+int32(n)
	}
	return nil
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
