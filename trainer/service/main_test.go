package service

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"go.uber.org/goleak"
)

// shared is one engine for every test.
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
	dir, err := os.MkdirTemp("", "cadence-trainer-test-")
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
