package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cadence-slo/cadence/bench/workload"
)

// ErrServer is returned for a server that cannot be measured as it was asked to; the message says why.
var ErrServer = errors.New("load: the server does not answer")

// Models asks a server for the names of its models.
func Models(ctx context.Context, cfg *ClientConfig) ([]string, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(cfg.Timeout, 30*time.Second))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.URL+"/v1/models", http.NoBody)
	if err != nil {
		return nil, err
	}
	if cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+cfg.APIKey)
	}
	transport := &http.Transport{TLSClientConfig: cfg.TLS, DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrServer, err)
	}
	defer res.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: GET /v1/models: %s", ErrServer, res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxBody)).Decode(&list); err != nil {
		return nil, fmt.Errorf("%w: GET /v1/models: %w", ErrServer, err)
	}
	var out []string
	for _, m := range list.Data {
		out = append(out, m.ID)
	}
	return out, nil
}

// Probe sends one short request of the form, and with ids that the server does not take one more as text. It returns the form
// that is taken, or ErrServer for a server that cannot be reached or wants neither. A server that is too busy for it is
// believed to take the form.
func Probe(ctx context.Context, c *Client, form *Form, vocab workload.Vocabulary) (*Form, error) {
	q := &workload.Request{Prompt: vocab[:min(4, len(vocab))], System: -1, Cap: 1, Output: 1}
	out := *form
	out.Name = ""
	r := c.Do(ctx, out.Request(q))
	if r.Outcome == HTTPError && (r.Status == 400 || r.Status == 422) && out.Endpoint == Completions && !out.Text {
		out.Text = true
		r = c.Do(ctx, out.Request(q))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch {
	case r.Outcome == OK, r.Outcome == Refused, r.Status == 429, r.Status == 503:
		out.Name = form.Name
		return &out, nil
	case r.Status != 0:
		return nil, fmt.Errorf("%w: a first request ended with %s, status %d: %s", ErrServer, r.Outcome, r.Status, r.Err)
	default:
		return nil, fmt.Errorf("%w: %s", ErrServer, r.Err)
	}
}
