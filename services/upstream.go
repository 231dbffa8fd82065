package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/worker/openai"
)

// UpstreamFlags say what server runs the engine, with --backend openai.
type UpstreamFlags struct {
	Upstream           string        `help:"openai: address of the server: http(s)://host[:port][/prefix], with or without /v1"`
	UpstreamKeyFile    string        `help:"openai: file with the server's API key" type:"path"`
	UpstreamModel      string        `help:"openai: what the server calls the model; empty: its first"`
	UpstreamDialect    string        `help:"openai: the server's additions to OpenAI's API: llama (llama-server), vllm, plain (none), or auto (found out)" enum:"auto,llama,vllm,plain" default:"auto"`
	UpstreamPrompt     string        `help:"openai: send prompts as token ids, or as text to servers that take no ids" enum:"ids,text" default:"ids"`
	UpstreamFirstToken time.Duration `help:"openai: a request without a token after this long has failed" default:"120s"`
	UpstreamStall      time.Duration `help:"openai: a stream without a token for this long has failed" default:"60s"`
	Permits            int           `help:"openai: requests that run at once at the server; 0: as many as it says, or 32" default:"0"`
}

// config is how the flags use a server with the model's tokenizer.
func (u *UpstreamFlags) config(e *EngineFlags) (openai.Config, error) {
	c := openai.DefaultConfig()
	c.URL, c.UpstreamModel, c.ContextTokens, c.Permits = upstreamRoot(u.Upstream), u.UpstreamModel, e.ContextTokens, u.Permits
	c.FirstToken, c.Stall, c.PromptText = u.UpstreamFirstToken, u.UpstreamStall, u.UpstreamPrompt == "text"
	if u.UpstreamDialect != "auto" {
		c.Dialect = openai.Dialect(u.UpstreamDialect)
	}
	if u.Upstream == "" {
		return c, fmt.Errorf("%w: upstream is empty: the openai backend needs the address of a server", ErrFlags)
	}
	if u.UpstreamKeyFile != "" {
		key, err := os.ReadFile(u.UpstreamKeyFile)
		if err != nil {
			return c, fmt.Errorf("%w: upstream-key-file: %w", ErrFlags, err)
		}
		if c.Key = openai.Secret(strings.TrimSpace(string(key))); c.Key == "" {
			return c, fmt.Errorf("%w: upstream-key-file is %s, which is empty", ErrFlags, u.UpstreamKeyFile)
		}
	}
	return c, nil
}

// upstreamRoot is a server's address without the /v1 that OpenAI's clients want in it.
func upstreamRoot(address string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(address, "/"), "/v1"), "/")
}

// callAlso lets clients ask for a model by the name that an upstream has for it; of a file, the name that it would have here.
func (e *engine) callAlso(name string) {
	if filepath.Ext(name) == ".gguf" {
		name = servedName(name)
	}
	if m := &e.model; name != "" && name != m.Name && !slices.Contains(m.Aliases, name) {
		m.Aliases = append([]string{name}, m.Aliases...)
	}
}

// openUpstream opens a tokenizer, and stands in front of another server.
func openUpstream(ctx context.Context, g *Globals, m *ModelFlags, e *EngineFlags) (*engine, error) {
	cfg, err := e.config(e)
	if err != nil {
		return nil, err
	}
	out, err := openEngine(ctx, g, m, e, true)
	if err != nil {
		return nil, err
	}
	var ok bool
	if cfg.Tokenizer, ok = out.model.Tokenizer.(openai.Tokenizer); !ok {
		return nil, errors.Join(fmt.Errorf("%w: tokenizer %s cannot spell tokens", ErrFlags, m.file()), out.Close())
	}
	cfg.Model, cfg.Vocab = out.model.Name, out.model.VocabTokens
	b, err := openai.Open(ctx, cfg, g.Log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("upstream: %w", err), out.Close())
	}
	out.backend = b
	out.callAlso(b.UpstreamModel())
	out.model.ContextTokens = b.Info().ContextTokens
	return out, nil
}
