package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrUnavailable is returned when the server could not be reached or did not answer in time: the same call may
	// succeed later, and repeating a publish never stores it twice.
	ErrUnavailable = errors.New("streams: server unavailable")
	// ErrFull is returned when a store's limit or the disk is reached.
	ErrFull = errors.New("streams: store is full")
	// ErrTooLarge is returned for a message above the server's payload limit.
	ErrTooLarge = errors.New("streams: message too large")
	// ErrFenced is returned for an append of a scheduler whose epoch is over.
	ErrFenced = errors.New("streams: epoch is over")
	// ErrNoListener is returned when nobody serves the subject of a request: the asked process is gone.
	ErrNoListener = errors.New("streams: nobody listens")
)

// ackTimeout is how long a pipelined publish waits before it is sent again: a dying server takes some along unanswered.
const ackTimeout = 2 * time.Second

// Client is one service's connection.
type Client struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	cfg Config
	log *slog.Logger
	// remembered is for how long the server surely knows the id of a message that was sent.
	remembered time.Duration
}

// Connect connects to the embedded server if one is given, else to cfg.URL, retrying until ctx ends. onReconnect, if
// not nil, runs after each reconnection: core messages may have been missed.
func Connect(ctx context.Context, cfg Config, embedded *Server, log *slog.Logger, onReconnect func()) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if embedded == nil && cfg.URL == "" {
		return nil, fmt.Errorf("%w: url is empty and there is no embedded server", ErrConfig)
	}
	log = log.With("component", "streams")
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.ReconnectBufSize(64 << 20),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(3),
		nats.Timeout(2 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("reconnected", "url", nc.ConnectedUrlRedacted())
			if onReconnect != nil {
				onReconnect()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			log.Error("asynchronous error", "subject", subject, "error", err)
		}),
	}
	if cfg.Creds != "" {
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	}
	if cfg.User != "" {
		opts = append(opts, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.Token != "" {
		opts = append(opts, nats.Token(cfg.Token))
	}
	if cfg.CA != "" {
		opts = append(opts, nats.RootCAs(cfg.CA))
	}
	if cfg.Cert != "" {
		opts = append(opts, nats.ClientCert(cfg.Cert, cfg.Key))
	}
	url := cfg.URL
	if embedded != nil {
		opts, url = append(opts, embedded.InProcess()), ""
	}
	for {
		nc, err := nats.Connect(url, opts...)
		if err == nil {
			js, err := jetstream.New(nc,
				jetstream.WithDefaultTimeout(cfg.Timeout),
				jetstream.WithPublishAsyncMaxPending(1024),
				jetstream.WithPublishAsyncTimeout(min(cfg.Timeout, ackTimeout)))
			if err != nil {
				nc.Close()
				return nil, fmt.Errorf("streams: jetstream: %w", err)
			}
			return &Client{nc: nc, js: js, cfg: cfg, log: log, remembered: eventsDuplicates / 2}, nil
		}
		if errors.Is(err, nats.ErrAuthorization) {
			return nil, fmt.Errorf("streams: connecting to %s: %w", redacted(url), err)
		}
		log.Warn("waiting for the server", "url", redacted(url), "error", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: connecting to %s: %w", ErrUnavailable, redacted(url), err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// Close sends what is buffered and closes the connection; subscriptions end.
func (c *Client) Close() {
	if err := c.nc.FlushTimeout(c.cfg.Timeout); err != nil {
		c.log.Warn("flush before close", "error", err)
	}
	c.nc.Close()
}

// Connected reports whether the server is reachable now.
func (c *Client) Connected() bool { return c.nc.IsConnected() }

// JetStream gives raw access, for readers with needs of their own (the projector's position, exports).
func (c *Client) JetStream() jetstream.JetStream { return c.js }

// Setup makes every stream that is missing and updates the configuration of the others. It may be repeated and run
// by several services at once. It never deletes data: an existing stream's limits and replicas are raised if
// need be, never lowered.
func (c *Client) Setup(ctx context.Context) error {
	if got := c.nc.MaxPayload(); got < MaxPayload {
		c.log.Warn("server's max_payload is below ours: large prompts will be refused", "server_bytes", got, "want_bytes", MaxPayload)
	}
	for _, want := range Catalog(c.cfg.Limits, c.cfg.Replicas) {
		if err := c.setup(ctx, want); err != nil {
			return fmt.Errorf("streams: setting up %s: %w", want.Name, err)
		}
	}
	return nil
}

func (c *Client) setup(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = c.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another service was faster, with other limits
			return c.setup(ctx, want)
		}
		return err
	}
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	if have.Storage != want.Storage || have.Retention != want.Retention {
		return fmt.Errorf("%w: the existing stream has storage %v and retention %v, want %v and %v", ErrConfig, have.Storage, have.Retention, want.Storage, want.Retention)
	}
	want.MaxAge = atLeast(want.MaxAge, have.MaxAge)
	want.MaxBytes = atLeast(want.MaxBytes, have.MaxBytes)
	if have.Replicas > want.Replicas { // one service that was not told must not thin out a cluster
		want.Replicas, want.PersistMode = have.Replicas, have.PersistMode
	}
	if _, err = c.js.UpdateStream(ctx, want); err != nil {
		return err
	}
	return nil
}

// atLeast returns the larger limit; no limit (≤ 0) is the largest.
func atLeast[T ~int64](want, have T) T {
	if have <= 0 {
		return have
	}
	return max(want, have)
}

// publishError maps what the server or the client library says to this package's sentinels.
func publishError(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.As(err, &api):
		switch api.ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence, 10164: // 10164: wrong last sequence, atomic batch
			return fmt.Errorf("%w: %w", ErrFenced, err)
		case 10054: // message size exceeds maximum allowed
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		case 10077, 10047, 10023, 10028: // store failed, storage or memory resources exceeded
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
