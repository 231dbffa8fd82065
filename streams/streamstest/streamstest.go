// Package streamstest runs the real embedded server for tests.
package streamstest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/streams"
	"go.uber.org/goleak"
)

// Server is an embedded server in a temporary directory, stopped at the end of the test. It listens on a loopback
// port, so that clients reconnect over a Restart.
type Server struct {
	Dir string
	URL string
	s   *streams.Server
}

// Start starts a server and sets up every stream.
func Start(t testing.TB) *Server {
	t.Helper()
	srv := &Server{Dir: t.TempDir()}
	srv.start(t, "127.0.0.1:0")
	t.Cleanup(func() {
		if err := srv.s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := srv.Client(t).Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	return srv
}

func (s *Server) start(t testing.TB, listen string) {
	t.Helper()
	var err error
	s.s, err = streams.StartServer(streams.ServerConfig{Dir: s.Dir, Durability: streams.DurableProcess, Listen: listen}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.URL = s.s.URL()
}

// Restart stops the server and starts it again on the same directory and port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	addr := s.URL[len("nats://"):]
	if err := s.s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.start(t, addr)
}

// Client connects, and closes at the end of the test.
func (s *Server) Client(t testing.TB) *streams.Client {
	t.Helper()
	return s.ClientWith(t, streams.DefaultConfig())
}

// ClientWith connects with a configuration (its URL is replaced), and closes at the end of the test.
func (s *Server) ClientWith(t testing.TB, cfg streams.Config) *streams.Client {
	t.Helper()
	cfg.URL = s.URL
	c, err := streams.Connect(t.Context(), cfg, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// IgnoreAckWatcher lets goleak pass over a goroutine of nats.go's: it watches for the end of the connection, whose news is
// dropped if it is busy with the news before, and then stays.
func IgnoreAckWatcher() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect")
}

// Receive returns the next value of a channel, and fails the test if none comes within 30 s: nats.go gives a request that a
// dying server took along ten.
func Receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-ch:
		if !ok {
			t.Fatal("channel is closed")
		}
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing received within 30s")
	}
	panic("unreachable")
}
