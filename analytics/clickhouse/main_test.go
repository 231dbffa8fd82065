package clickhouse

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// parentEnv makes the test binary start an engine in the directory it names, print
// the child's process id and wait for ever: a parent to be killed.
const parentEnv = "CADENCE_CLICKHOUSE_TEST_PARENT"

func TestMain(m *testing.M) {
	MaybeChild()
	if path, ok := os.LookupEnv(parentEnv); ok {
		parent(path)
	}
	if _, err := Install(context.Background(), func(p Progress) {
		if p.Bytes == 0 {
			fmt.Fprintln(os.Stderr, "embedded ClickHouse:", p.Stage)
		}
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func parent(path string) {
	s, err := Start(context.Background(), DefaultOptions(path, slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.PID())
	<-s.Done()
	os.Exit(1)
}

// testOptions are for a fresh directory.
func testOptions(t *testing.T) Options {
	t.Helper()
	return DefaultOptions(t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(10 * time.Second) })
	return s
}

// eventually polls cond for ten seconds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after 10 s: no %s", what)
		}
	}
}
