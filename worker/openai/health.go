package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/worker"
)

// defaultPermits is how many requests run at once at a server that does not say how many it can.
const defaultPermits = 32

// Open asks the server what it is, again and again while it cannot be reached or loads its model, until ctx ends. The
// caller closes the Backend. It returns ErrConfig for settings that do not fit the server, and a *Fault.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Backend, error) {
	b, err := newBackend(cfg, log)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(min(cfg.HealthInterval, time.Second))
	defer again.Stop()
	for told := false; ; {
		cfg, is, err := b.learn(ctx, b.given)
		if err == nil {
			b.cfg, b.served = cfg, is
			if b.health = "/health"; cfg.Dialect == DialectPlain {
				b.health = "/v1/models"
			}
			break
		}
		var f *Fault
		if !errors.As(err, &f) || !(errors.Is(f, ErrUnreachable) || f.Status == http.StatusServiceUnavailable) {
			return nil, errors.Join(err, b.Close())
		}
		if !told {
			log.Warn("waiting for the upstream", "error", err)
			told = true
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err(), b.Close())
		}
	}
	c := &b.cfg
	b.seqs, b.permits = make([]*stream, c.Permits), make(chan struct{}, c.Permits)
	b.wait = time.NewTimer(c.Poll)
	cells := c.Permits * c.ContextTokens
	b.info = worker.Info{
		Backend: "openai", Model: c.Model, Fingerprint: b.served.fingerprint(), ContextTokens: c.ContextTokens,
		Sequences: c.Permits, KVCells: cells, BatchTokens: cells, Vocab: c.Vocab,
	}
	log.Info("upstream found", "upstream", b.name, "dialect", string(c.Dialect), "model", c.UpstreamModel,
		"context_tokens", c.ContextTokens, "permits", c.Permits, "key", c.Key != "")
	b.running.Add(1)
	go b.watch()
	return b, nil
}

// props is llama-server's.
type props struct {
	Slots    int `json:"total_slots"`
	Defaults struct {
		Context int `json:"n_ctx"`
	} `json:"default_generation_settings"`
	Build string `json:"build_info"`
}

// served is what a server runs, as far as it tells. While it is equal, answers come from the same model.
type served struct {
	dialect           Dialect
	build             string // llama-server's
	model             string // what the server calls it
	root              string // vLLM's: where the weights are from, for a name may be an alias
	parameters, bytes int64  // llama-server's, of the weights
	context           int    // tokens
}

// fingerprint is worker.Info's.
func (s *served) fingerprint() string {
	return strings.Join([]string{"openai", string(s.dialect), s.build, s.model}, "-")
}

// models is the list of models.
type models struct {
	Data []struct {
		ID      string   `json:"id"`
		Aliases []string `json:"aliases"`
		Owner   string   `json:"owned_by"`
		Root    string   `json:"root"`          // vLLM's: where the weights are from
		MaxLen  int      `json:"max_model_len"` // vLLM's
		Meta    struct { // llama-server's
			Vocab  int   `json:"n_vocab"`
			Params int64 `json:"n_params"`
			Size   int64 `json:"size"` // bytes
		} `json:"meta"`
	} `json:"data"`
}

// learn asks what the configuration leaves open, and returns it filled in. It changes nothing.
func (b *Backend) learn(ctx context.Context, c Config) (Config, served, error) {
	var is served
	var p props
	if c.Dialect == DialectAuto || c.Dialect == DialectLlama {
		found, err := b.get(ctx, "/props", &p)
		if err != nil {
			return c, is, err
		}
		if found && p.Slots > 0 {
			c.Dialect = DialectLlama
		}
	}
	var list models
	found, err := b.get(ctx, "/v1/models", &list)
	if err != nil {
		return c, is, err
	}
	if !found && c.UpstreamModel == "" && c.Dialect != DialectLlama {
		return c, is, fmt.Errorf("%w: upstream_model is empty and %s has no /v1/models", ErrConfig, b.name)
	}
	var names []string
	for i := range list.Data {
		m := &list.Data[i]
		names = append(names, m.ID)
		wanted := c.UpstreamModel == "" || c.UpstreamModel == m.ID || slices.Contains(m.Aliases, c.UpstreamModel)
		if wanted || i == 0 { // llama-server has one, whatever it is called
			is.model, is.root = m.ID, m.Root
			if c.Dialect == DialectLlama { // having answered /props it is not loading, when it lists a model without its size
				is.parameters, is.bytes = m.Meta.Params, m.Meta.Size
			}
		}
		if !wanted {
			continue
		}
		c.UpstreamModel = m.ID
		if c.Dialect == DialectAuto && m.Owner == "vllm" {
			c.Dialect = DialectVLLM
		}
		if c.ContextTokens == 0 {
			c.ContextTokens = m.MaxLen
		}
		// llama.cpp's ids are those of the file; others pad their vocabulary.
		if n := m.Meta.Vocab; n != 0 && n != c.Vocab {
			return c, is, fmt.Errorf("%w: tokenizer has %d tokens, the model %s of %s has %d", ErrConfig, c.Vocab, m.ID, b.name, n)
		}
		names = nil
		break
	}
	if names != nil && c.Dialect != DialectLlama {
		return c, is, fmt.Errorf("%w: upstream_model is %q, %s has %s", ErrConfig, c.UpstreamModel, b.name, strings.Join(names, ", "))
	}
	if c.Dialect == DialectAuto {
		c.Dialect = DialectPlain
	}
	if c.ContextTokens == 0 {
		c.ContextTokens = p.Defaults.Context
	}
	if c.ContextTokens < 2 {
		return c, is, fmt.Errorf("%w: context_tokens is 0 and %s does not tell it", ErrConfig, b.name)
	}
	if c.Permits == 0 {
		c.Permits = min(max(p.Slots, 0), maxPermits)
	}
	if c.Permits == 0 {
		c.Permits = defaultPermits
	}
	if !found {
		is.model = c.UpstreamModel
	}
	is.dialect, is.build, is.context = c.Dialect, p.Build, c.ContextTokens
	return c, is, nil
}

// get reads JSON. It reports whether the server has the path, and returns a *Fault.
func (b *Backend) get(ctx context.Context, path string, v any) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.HealthTimeout)
	defer cancel()
	req, err := b.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false, &Fault{Upstream: b.name, Err: fmt.Errorf("%w: %w", ErrUnreachable, err)}
	}
	res, err := b.client.Do(req)
	if err != nil {
		return false, &Fault{Upstream: b.name, Err: fmt.Errorf("%w: %w", ErrUnreachable, err)}
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusMethodNotAllowed || res.StatusCode == http.StatusNotImplemented:
		return false, nil
	case res.StatusCode != http.StatusOK:
		f := refused(res)
		f.Upstream = b.name
		return false, f
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err == nil && v != nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return false, &Fault{Upstream: b.name, Status: res.StatusCode, Err: fmt.Errorf("%w: %s: %w", ErrProtocol, path, err)}
	}
	return true, nil
}

// Healthy returns nil while the server is well, and otherwise a *Fault that wraps ErrUnhealthy. Anyone may call it.
func (b *Backend) Healthy() error {
	if f := b.unhealthy.Load(); f != nil {
		return f
	}
	return nil
}

// watch asks for the server's health until Close.
func (b *Backend) watch() {
	defer b.running.Done()
	tick := time.NewTicker(b.cfg.HealthInterval)
	defer tick.Stop()
	for failures := 0; ; {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
		}
		err := b.well(b.ctx, failures > 0 || b.unhealthy.Load() != nil)
		if b.ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
			if b.unhealthy.Swap(nil) != nil {
				b.log.Info("upstream is well again", "upstream", b.name)
			}
			continue
		}
		if failures++; failures >= b.cfg.HealthFailures || errors.Is(err, ErrChanged) {
			b.fell(err)
		}
	}
}

// check asks at once, after an exchange that looks as if the server were gone; one bad answer is enough then.
func (b *Backend) check(ctx context.Context) error {
	err := b.well(ctx, true)
	if err != nil && ctx.Err() == nil {
		b.fell(err)
		b.poke()
	}
	return err
}

// well asks for the server's health and, if it may have been away, for what it runs now: it may be another process. The
// error is a *Fault or wraps ErrChanged.
func (b *Backend) well(ctx context.Context, away bool) error {
	if _, err := b.get(ctx, b.health, nil); err != nil || !away {
		return err
	}
	c := b.given
	c.UpstreamModel = b.cfg.UpstreamModel // there may be others now, but ours must be there
	_, is, err := b.learn(ctx, c)
	switch {
	case errors.Is(err, ErrConfig):
		return fmt.Errorf("%w: %w", ErrChanged, err)
	case err != nil:
		return err
	case is != b.served:
		return fmt.Errorf("%w: it was %s, it is %s", ErrChanged, words(fmt.Sprintf("%+v", b.served)), words(fmt.Sprintf("%+v", is)))
	}
	return nil
}

// fell notes that the server is not well.
func (b *Backend) fell(err error) {
	f := &Fault{Upstream: b.name, Err: fmt.Errorf("%w: %w", ErrUnhealthy, err)}
	var known *Fault
	if errors.As(err, &known) {
		f.Status, f.RetryAfter, f.Message = known.Status, known.RetryAfter, known.Message
		f.Err = fmt.Errorf("%w: %w", ErrUnhealthy, known.Err)
	}
	before := b.unhealthy.Swap(f)
	if before == nil || errors.Is(f, ErrChanged) && !errors.Is(before, ErrChanged) {
		b.log.Warn("upstream is not well", "error", f)
	}
}
