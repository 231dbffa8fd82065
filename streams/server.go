package streams

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ErrLocked is returned when another server uses the store directory: two would both acknowledge and lose messages.
var ErrLocked = errors.New("streams: store directory is in use by another server")

// ServerConfig configures the embedded server.
type ServerConfig struct {
	// Dir holds the streams; made if absent.
	Dir        string     `help:"directory of the embedded NATS server's streams" type:"path"`
	Durability Durability `help:"what an acknowledged publish survives: process (kill -9) or power (a power cut)" enum:"process,power" default:"process"`
	// Listen is host:port for other processes to connect; empty takes connections of this process only.
	Listen string `help:"address on which the embedded NATS server takes other processes' connections; empty: none"`
	// User and Password are asked of connections from other processes, if set.
	User     string `kong:"-"`
	Password string `kong:"-"`
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *ServerConfig) Validate() error {
	if c.Dir == "" {
		return fmt.Errorf("%w: dir is empty, want a directory", ErrConfig)
	}
	switch c.Durability {
	case DurableProcess, DurablePower:
	default:
		return fmt.Errorf("%w: durability is %q, want process or power", ErrConfig, c.Durability)
	}
	if c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			return fmt.Errorf("%w: listen is %q, want host:port: %w", ErrConfig, c.Listen, err)
		}
	}
	return nil
}

const maxStore = 1 << 40

// Server is an embedded NATS server with JetStream. It owns its store directory's lock until Stop.
type Server struct {
	ns   *server.Server
	lock *flock.Flock

	full    *atomic.Bool // a write found no space
	stop    chan struct{}
	guarded sync.WaitGroup
}

// StartServer starts an embedded server and returns when it takes connections. It returns ErrLocked if the directory
// is in use.
func StartServer(c ServerConfig, log *slog.Logger) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("streams: making the store directory: %w", err)
	}
	lock, err := lockDir(c.Dir)
	if err != nil {
		return nil, err
	}
	opts := &server.Options{
		ServerName: "cadence",
		JetStream:  true,
		StoreDir:   c.Dir,
		SyncAlways: c.Durability == DurablePower,
		MaxPayload: MaxPayload,
		// The streams' own limits bound what is stored: the server would derive one from the free disk, and refuse to open
		// the streams that it holds already once that has become less than their limits.
		JetStreamMaxStore: maxStore,
		MaxPending:        256 << 20,
		NoSigs:            true,
		NoLog:             true,
		DontListen:        c.Listen == "",
		Username:          c.User,
		Password:          c.Password,
	}
	if c.Listen != "" {
		host, port, _ := net.SplitHostPort(c.Listen)
		opts.Host = host
		if opts.Port, err = strconv.Atoi(port); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: listen is %q: %w", ErrConfig, c.Listen, err), lock.Unlock())
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("streams: embedded server: %w", err), lock.Unlock())
	}
	full := new(atomic.Bool)
	ns.SetLoggerV2(serverLog{log.With("component", "nats"), full}, false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		ns.Shutdown()
		return nil, errors.Join(fmt.Errorf("streams: embedded server not ready after 10s (is %s taken?)", c.Listen), lock.Unlock())
	}
	s := &Server{ns: ns, lock: lock, full: full, stop: make(chan struct{})}
	s.guarded.Go(func() { s.guard(c.Dir, log.With("component", "nats")) })
	return s, nil
}

func lockDir(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, "lock"))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("streams: locking %s: %w", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	}
	return lock, nil
}

// CheckUnlocked returns ErrLocked if a server uses the store directory now.
func CheckUnlocked(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	return lock.Unlock()
}

// URL is where other processes connect; empty if the server does not listen.
func (s *Server) URL() string {
	if s.ns.Addr() == nil {
		return ""
	}
	return s.ns.ClientURL()
}

// InProcess is the option that connects without a socket.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s.ns) }

// Stop closes every connection, flushes the streams and releases the directory.
func (s *Server) Stop() error {
	close(s.stop)
	s.guarded.Wait()
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
	if err := s.lock.Unlock(); err != nil {
		return fmt.Errorf("streams: unlocking the store directory: %w", err)
	}
	return nil
}

// serverLog hands the server's own messages to slog, and notes when one tells of a full disk.
type serverLog struct {
	log  *slog.Logger
	full *atomic.Bool
}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug("notice", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Warnf(f string, v ...any)   { l.log.Warn("warning", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Fatalf(f string, v ...any)  { l.log.Error("fatal", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Errorf(f string, v ...any) {
	for _, x := range v {
		if err, ok := x.(error); ok && errors.Is(err, syscall.ENOSPC) {
			l.full.Store(true)
		}
	}
	l.log.Error("error", "text", fmt.Sprintf(f, v...))
}
func (l serverLog) Debugf(f string, v ...any) { l.log.Debug("debug", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Tracef(string, ...any)     {}
