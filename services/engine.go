package services

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/ingress"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/grammar"
	"github.com/cadence-slo/cadence/worker/llama"
	"github.com/cadence-slo/cadence/worker/llamabackend"
	"github.com/cadence-slo/cadence/worker/mock"
)

// engine is a loaded model: what generates, what the ingress must know of it, or both.
type engine struct {
	backend worker.Backend // nil with vocabOnly
	model   ingress.Model
	weights *llama.Model // nil for the mock
	owned   bool         // the backend closes weights
}

func (e *engine) Close() error {
	var err error
	if e.backend != nil {
		err = e.backend.Close()
	}
	if e.weights != nil && !e.owned {
		err = errors.Join(err, e.weights.Close())
	}
	return err
}

// openEngine loads what the flags name; vocabOnly leaves the weights on disk.
func openEngine(ctx context.Context, g *Globals, m *ModelFlags, e *EngineFlags, vocabOnly bool) (*engine, error) {
	if err := errors.Join(e.validate(), e.fit(m)); err != nil {
		return nil, err
	}
	switch {
	case m.Backend == backendMock:
		return openMock(m, e, vocabOnly)
	case m.Backend == backendOpenAI && !vocabOnly:
		return openUpstream(ctx, g, m, e)
	case m.Backend == backendOpenAI && m.Tokenizer == backendMock:
		out, err := openMock(m, e, true)
		if err == nil {
			out.model.Speller = nil // as below
			out.callAlso(e.UpstreamModel)
		}
		return out, err
	}
	report, finish := progress(g.Err, "making "+m.file())
	path, err := m.find(ctx, report)
	finish()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	out := &engine{}
	if vocabOnly {
		err = out.openVocab(g, path)
	} else {
		err = out.openWeights(g, path, e)
	}
	if err != nil {
		return nil, err
	}
	f := out.weights.Facts()
	g.Log.Info("model loaded", "path", path, "parameters", f.Parameters, "vocab_only", vocabOnly, "took_ms", time.Since(begin).Milliseconds())
	out.model = ingress.Model{
		Name: servedName(path), Tokenizer: out.weights, ChatTemplate: f.ChatTemplate, BOS: f.BOSText, EOS: f.EOSText,
		ContextTokens: contextTokens(e, f.ContextTokens), VocabTokens: f.Vocab, Created: time.Now(),
	}
	if m.Backend != backendOpenAI { // another server is not asked for either
		out.model.Speller, out.model.Grammar = out.weights, grammar.Compile
	}
	if out.model.Control, err = controlNames(out.weights, f.Vocab, out.weights.IsControl); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	out.model.Aliases = aliases(m, out.model.Name)
	if m.Backend == backendOpenAI {
		out.callAlso(e.UpstreamModel)
	}
	return out, nil
}

// speller tells the text of a token, with special also that of a control token.
type speller interface {
	AppendPiece(dst []byte, token int32, special bool) ([]byte, error)
}

// controlNames are the texts of a vocabulary's control tokens.
func controlNames(t speller, vocab int, isControl func(int32) bool) ([]string, error) {
	var names []string
	for id := range int32(vocab) {
		if !isControl(id) {
			continue
		}
		name, err := t.AppendPiece(nil, id, true)
		if err != nil {
			return nil, err
		}
		names = append(names, string(name))
	}
	return names, nil
}

// openVocab loads tokenizer and metadata.
func (out *engine) openVocab(g *Globals, path string) error {
	if err := llama.Init(g.Log, ""); err != nil {
		return err
	}
	opts := llama.DefaultModelOptions()
	opts.VocabOnly = true
	var err error
	out.weights, err = llama.LoadModel(path, opts)
	return err
}

// openWeights loads all of a model and makes its KV cache. The backend owns the model.
func (out *engine) openWeights(g *Globals, path string, e *EngineFlags) error {
	c := llamabackend.DefaultConfig()
	c.Path, c.Model, c.BackendDir, c.GPULayers = path, servedName(path), e.BackendDir, e.GPULayers
	c.Context, c.Cells, c.Sequences, c.BatchTokens, c.Threads = e.ContextTokens, e.KVTokens, e.Sequences, e.EngineBatch, e.Threads
	b, err := llamabackend.Open(c, g.Log)
	if err != nil {
		return err
	}
	out.backend, out.weights, out.owned = b, b.Model(), true
	return nil
}

func openMock(m *ModelFlags, e *EngineFlags, vocabOnly bool) (*engine, error) {
	cfg, err := mockConfig(m, e)
	if err != nil {
		return nil, err
	}
	out := &engine{model: ingress.Model{
		Name: cfg.Model, Tokenizer: mock.Tokenizer{}, ChatTemplate: mock.ChatTemplate,
		ContextTokens: cfg.ContextTokens, VocabTokens: mock.Vocab, Created: time.Now(),
	}}
	if m.Backend == backendMock {
		out.model.Speller = mock.Tokenizer{} // it keeps to no grammar
	}
	out.model.Aliases = aliases(m, cfg.Model)
	out.model.Control, err = controlNames(mock.Tokenizer{}, mock.Vocab, func(id int32) bool { return mock.EndOfText <= id && id <= mock.TurnEnd })
	if err != nil || vocabOnly {
		return out, err
	}
	b, err := mock.New(cfg)
	if err != nil {
		return nil, err
	}
	out.backend = b
	return out, nil
}

// servedName is what clients call a model: its file's name without extension.
func servedName(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// contextTokens is the longest prompt + output: what is asked for, within what the model and the cache can hold.
func contextTokens(e *EngineFlags, trained int) int {
	n := e.KVTokens
	if trained > 0 {
		n = min(n, trained)
	}
	if e.ContextTokens > 0 {
		n = min(n, e.ContextTokens)
	}
	return n
}

// aliases are the other names: the one given, and "default", which every client can know.
func aliases(m *ModelFlags, name string) []string {
	var out []string
	asked := m.Model
	if m.Backend == backendOpenAI && m.Tokenizer != "" { // the model is the upstream's
		asked = ""
	}
	if strings.ContainsAny(asked, `/\`) { // a path says nothing to clients
		asked = ""
	}
	for _, a := range []string{m.Alias, asked, "default"} {
		if a != "" && a != name && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
