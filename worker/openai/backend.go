package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrMove is returned by Apply for a move of cells that are another server's.
var ErrMove = errors.New("openai: sequences share nothing here")

// Backend implements worker.Backend.
type Backend struct {
	cfg    Config // with what the server was asked for; does not change after Open
	given  Config // as it was given
	served served // at the start
	info   worker.Info
	name   string // of the server, without secrets
	client *http.Client
	log    *slog.Logger
	eog    int32

	seqs []*stream // by sequence id; nil: none
	wait *time.Timer

	news    chan struct{} // has room for one: a stream has something to take
	permits chan struct{}
	running sync.WaitGroup // exchanges, and the look after the server's health

	ctx       context.Context // ends with Close
	stop      context.CancelFunc
	health    string                // path
	unhealthy atomic.Pointer[Fault] // nil: it is well
}

var (
	_ worker.Backend       = (*Backend)(nil)
	_ worker.Health        = (*Backend)(nil)
	_ worker.UsageReporter = (*Backend)(nil)
)

// newBackend returns a Backend that has asked nothing yet.
func newBackend(cfg Config, log *slog.Logger) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, given: cfg, name: strings.TrimSuffix(redacted(cfg.URL), "/"), log: log, news: make(chan struct{}, 1), eog: -1}
	for id := range int32(cfg.Vocab) {
		if cfg.Tokenizer.IsEOG(id) {
			b.eog = id
			break
		}
	}
	if b.eog < 0 {
		return nil, fmt.Errorf("%w: tokenizer has no token that ends an answer", ErrConfig)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: cfg.Connect, KeepAlive: 15 * time.Second}).DialContext
	t.MaxIdleConnsPerHost, t.MaxIdleConns = maxPermits, 2*maxPermits
	b.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// request is a request with the key.
func (b *Backend) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.name+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if b.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+string(b.cfg.Key))
	}
	return req, nil
}

// Info implements worker.Backend.
func (b *Backend) Info() worker.Info { return b.info }

// Start implements worker.Backend: it asks the server.
func (b *Backend) Start(seq batch.SeqID, s *worker.Start) error {
	if err := s.Sampling.Validate(); err != nil {
		return err
	}
	body, err := b.cfg.body(s)
	if err != nil {
		return err
	}
	b.drop(seq)
	ctx, stop := context.WithCancelCause(b.ctx)
	st := &stream{max: s.MaxNew, prompt: len(s.Prompt), resumed: len(s.Output), ignoreEOS: s.IgnoreEOS, eog: b.eog, stop: stop}
	b.seqs[seq] = st
	b.running.Add(1)
	go b.run(ctx, st, body)
	return nil
}

// Apply implements worker.Backend: trimming a sequence cancels its exchange.
func (b *Backend) Apply(m batch.Move) error {
	if m.Kind != batch.MoveTrim || m.Tokens != 0 {
		return fmt.Errorf("%w: move %d of %d tokens", ErrMove, m.Kind, m.Tokens)
	}
	b.drop(m.Dst)
	return nil
}

func (b *Backend) drop(seq batch.SeqID) {
	if s := b.seqs[seq]; s != nil {
		s.stop(errDropped)
		b.seqs[seq] = nil
	}
}

// Step implements worker.Backend: it waits until an entry has its token, its end or its fault, at most for Config.Poll.
// What an entry feeds is not looked at: the server has it.
func (b *Backend) Step(step *batch.Batch, rows []batch.Row) error {
	b.wait.Reset(b.cfg.Poll)
	for {
		ready := false
		for i := range step.Entries {
			e := &step.Entries[i]
			if !e.Sample {
				ready = true
				continue
			}
			if rows[i].Wait = !b.seqs[e.Seq].take(&rows[i]); !rows[i].Wait {
				ready = true
			}
		}
		if ready {
			return nil
		}
		select {
		case <-b.news:
		case <-b.wait.C:
			return nil
		case <-b.ctx.Done():
			return nil
		}
	}
}

// poke says that a stream has news.
func (b *Backend) poke() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// UpstreamModel is what the server calls the model.
func (b *Backend) UpstreamModel() string { return b.cfg.UpstreamModel }

// Usage implements worker.UsageReporter.
func (b *Backend) Usage(seq batch.SeqID) (worker.Usage, bool) {
	s := b.seqs[seq]
	if s == nil {
		return worker.Usage{}, false
	}
	return s.counts()
}

// AppendPiece implements worker.Backend.
func (b *Backend) AppendPiece(dst []byte, token int32) ([]byte, error) {
	return b.cfg.Tokenizer.AppendPiece(dst, token, false)
}

// EOG implements worker.Backend.
func (b *Backend) EOG(token int32) bool { return b.cfg.Tokenizer.IsEOG(token) }

// Close implements worker.Backend: it cancels what runs and waits for it.
func (b *Backend) Close() error {
	b.stop()
	b.running.Wait()
	b.client.CloseIdleConnections()
	return nil
}
