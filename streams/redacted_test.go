package streams_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/streams"
)

// What a URL holds of secrets is neither logged nor in errors.
func TestSecretsOfURLsAreNotTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, url := range []string{
		"nats://user:hush@127.0.0.1:1", "nats://hush@127.0.0.1:1", "nats://a:1, nats://user:hu@hush@127.0.0.1:1",
		"http://user:hush@n:1", "user:hush@n:1", "nats://user:hush@n:port",
	} {
		cfg := streams.DefaultConfig()
		cfg.URL = url
		var log strings.Builder
		_, err := streams.Connect(ctx, cfg, nil, slog.New(slog.NewTextHandler(&log, nil)), nil)
		if err == nil {
			t.Fatal("connected to nobody")
		}
		if told := log.String() + err.Error(); strings.Contains(told, "hush") || !strings.Contains(told, "xxxxx") {
			t.Errorf("%s: %s", url, told)
		}
	}
}
