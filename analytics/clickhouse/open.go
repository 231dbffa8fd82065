package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

var (
	// ErrDSN is wrapped by errors about the text of a DSN. It never repeats a password.
	ErrDSN = errors.New("clickhouse: invalid DSN")
	// ErrUnreachable is wrapped when no server answers.
	ErrUnreachable = errors.New("clickhouse: server does not answer")
)

// codeUnknownDatabase is the server's code for a database that does not exist.
const codeUnknownDatabase = 81

// Pinned returns the settings that every connection sends. The caller owns the map.
func Pinned() ch.Settings {
	return ch.Settings{
		// Batches are made in Go: an insert that returns is stored, and its
		// deduplication token counts.
		"async_insert": 0,
		// A profile with another zone must not move a stored or a printed time.
		"session_timezone": "UTC",
	}
}

// Options of a connection are few on purpose: what is not here belongs in the DSN.
type openOptions struct{ createDatabase bool }

// OpenOption changes what Open does.
type OpenOption func(*openOptions)

// CreateDatabase makes Open create the DSN's database if it does not exist.
func CreateDatabase() OpenOption { return func(o *openOptions) { o.createDatabase = true } }

// Open connects to dsn and checks that a server answers. The forms are
//
//	http://user:password@host:8123/database
//	https://user:password@host:8443/database
//	clickhouse://user:password@host:9000/database
//
// with clickhouse-go's parameters (more hosts in alt_hosts); the database defaults to "cadence". The connection
// is a pool, safe for concurrent use, and survives a restart of the server. Close it
// before the engine is stopped.
//
// Errors wrap ErrDSN, ErrUnreachable, or the server's *clickhouse.Exception.
func Open(ctx context.Context, dsn string, opts ...OpenOption) (ch.Conn, error) {
	var oo openOptions
	for _, opt := range opts {
		opt(&oo)
	}
	o, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if oo.createDatabase {
		if err := createDatabase(ctx, *o); err != nil {
			return nil, err
		}
	}
	return dial(ctx, o)
}

// idleTimeout is below the server's keep_alive_timeout of 30 s: a request must not
// meet a connection that the server is closing.
const idleTimeout = 20 * time.Second

func dial(ctx context.Context, o *ch.Options) (ch.Conn, error) {
	var first firstTransports
	o.TransportFunc = func(transport *http.Transport) (http.RoundTripper, error) {
		transport.IdleConnTimeout = idleTimeout
		first.add(transport)
		return transport, nil
	}
	conn, err := ch.Open(o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDSN, err)
	}
	err = conn.Ping(ctx)
	transports := first.end()
	if err != nil {
		_ = conn.Close()
		// clickhouse-go forgets the connection of a refused handshake, and an open one
		// delays the end of an embedded engine by seconds.
		for _, transport := range transports {
			transport.CloseIdleConnections()
		}
		addr := strings.Join(o.Addr, ",")
		if exception := (*ch.Exception)(nil); errors.As(err, &exception) {
			return nil, fmt.Errorf("clickhouse: %s: %w", addr, exception)
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, addr, err)
	}
	return conn, nil
}

// firstTransports collects what a pool opens until end is called: the pool goes on
// opening transports for as long as it lives.
type firstTransports struct {
	mu    sync.Mutex
	ended bool
	all   []*http.Transport
}

func (f *firstTransports) add(t *http.Transport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.all = append(f.all, t)
	}
}

func (f *firstTransports) end() []*http.Transport {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.all
	f.ended, f.all = true, nil
	return all
}

// createDatabase connects without a database, as one that does not exist refuses.
func createDatabase(ctx context.Context, o ch.Options) error {
	name := o.Auth.Database
	o.Auth.Database = ""
	o.MaxOpenConns, o.MaxIdleConns = 1, 1
	conn, err := dial(ctx, &o)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx = ch.Context(ctx, ch.WithParameters(ch.Parameters{"name": name}))
	if err := conn.Exec(ctx, "CREATE DATABASE IF NOT EXISTS {name:Identifier}"); err != nil {
		return fmt.Errorf("clickhouse: database %q: %w", name, err)
	}
	return nil
}

// IsUnknownDatabase reports whether err says that the DSN's database does not exist.
func IsUnknownDatabase(err error) bool {
	exception := (*ch.Exception)(nil)
	return errors.As(err, &exception) && exception.Code == codeUnknownDatabase
}

// parseDSN completes dsn with the defaults and the pinned settings.
func parseDSN(dsn string) (*ch.Options, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		// The error of url.Parse repeats its input, password and all.
		return nil, fmt.Errorf("%w: not a URL; want http://, https:// or clickhouse:// user:password@host:port/database, percent-encoded", ErrDSN)
	}
	query := u.Query()
	ports := map[string]string{"http": "8123", "https": "8443", "clickhouse": "9000"}
	if u.Scheme == "clickhouse" && query.Get("secure") == "true" {
		ports["clickhouse"] = "9440"
	}
	port, ok := ports[u.Scheme]
	if !ok {
		return nil, fmt.Errorf("%w: scheme is %q, want http, https or clickhouse", ErrDSN, u.Scheme)
	}
	if u.Host == "" {
		return nil, fmt.Errorf("%w: no host", ErrDSN)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), port)
	}
	if u.Scheme == "https" && !query.Has("secure") {
		query.Set("secure", "true")
		u.RawQuery = query.Encode()
	}
	o, err := ch.ParseDSN(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDSN, err)
	}
	if o.Auth.Database == "" {
		o.Auth.Database = Database
	}
	if o.Settings == nil {
		o.Settings = ch.Settings{}
	}
	for name, value := range Pinned() {
		o.Settings[name] = value
	}
	if o.Compression == nil {
		o.Compression = &ch.Compression{Method: ch.CompressionLZ4}
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.MaxIdleConns == 0 {
		o.MaxIdleConns = 4
	}
	return o, nil
}
