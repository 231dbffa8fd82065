package analytics

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"go.uber.org/goleak"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
)

// shared is one engine for every test that does not kill it.
var shared *clickhouse.Server

func TestMain(m *testing.M) {
	clickhouse.MaybeChild()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if _, err := clickhouse.Install(ctx, nil); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "cadence-analytics-test-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if shared, err = clickhouse.Start(ctx, clickhouse.DefaultOptions(dir, slog.New(slog.DiscardHandler))); err != nil {
		return 0, err
	}
	code = m.Run()
	_ = shared.Stop(10 * time.Second)
	if err := goleak.Find(streamstest.IgnoreAckWatcher()); err != nil && code == 0 {
		return 1, err
	}
	return code, nil
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// withDatabase returns dsn with a database named after the test.
func withDatabase(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database(t)
	return u.String()
}

// database is the name of the test's database.
func database(t testing.TB) string {
	return notName.ReplaceAllString(strings.ToLower(t.Name()), "_")
}

// open opens a database of its own on the shared engine, closed at the end of the test.
func open(t testing.TB) ch.Conn {
	t.Helper()
	return openDSN(t, withDatabase(t, shared.DSN()))
}

func openDSN(t testing.TB, dsn string) ch.Conn {
	t.Helper()
	conn, err := clickhouse.Open(t.Context(), dsn, clickhouse.CreateDatabase())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		// The engine may be gone by now, with the database; if not, the next run of the
		// same test finds none.
		_ = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+database(t)+" SYNC")
		_ = conn.Close()
	})
	return conn
}

// migrated is open with the schema in place.
func migrated(t testing.TB) ch.Conn {
	t.Helper()
	conn := open(t)
	if _, err := Migrate(t.Context(), conn, quiet); err != nil {
		t.Fatal(err)
	}
	return conn
}

var quiet = slog.New(slog.DiscardHandler)

func exec(t testing.TB, conn ch.Conn, statement string) {
	t.Helper()
	if err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func scan(t testing.TB, conn ch.Conn, query string, dest ...any) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(dest...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// eventually polls cond for a minute: the tests share two cores.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after a minute: no %s", what)
		}
	}
}
