package services

import (
	"errors"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/analytics/sql"
	"github.com/cadence-slo/cadence/ingress"
	"github.com/cadence-slo/cadence/streams"
)

func parseUp(t *testing.T, args ...string) *UpCmd {
	t.Helper()
	cli, err := parse(t, append([]string{"up", "--data-dir", t.TempDir()}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &cli.Up
}

// In one process there is one pool, and it need only be named once.
func TestUpHasOnePool(t *testing.T) {
	up := parseUp(t, "--pool", "gold")
	if err := up.validate(); err != nil || up.Worker.Pool != "gold" || up.Scheduler.Pool != "gold" {
		t.Errorf("%v, worker %s, scheduler %s", err, up.Worker.Pool, up.Scheduler.Pool)
	}
	if err := parseUp(t, "--pool", "gold", "--worker-pool", "gold", "--scheduler-pool", "gold").validate(); err != nil {
		t.Error(err)
	}
	for _, flag := range []string{"worker-pool", "scheduler-pool"} {
		err := parseUp(t, "--pool", "gold", "--"+flag, "silver").validate()
		if !errors.Is(err, ErrFlags) || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "silver") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// What the banner says can be done.
func TestBanner(t *testing.T) {
	srv, err := streams.StartServer(streams.ServerConfig{Dir: t.TempDir(), Durability: "process", Listen: "127.0.0.1:0"}, testGlobals(t).Log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	}()
	e := &engine{model: ingress.Model{Name: "small"}}
	banner := func(address string, args ...string) string {
		var b strings.Builder
		parseUp(t, args...).banner(&b, address, e, srv)
		return b.String()
	}
	text := banner("[::]:9000")
	for _, want := range []string{"Listening on http://127.0.0.1:9000\n", "small (llama): random weights", srv.URL(), "curl -N http://127.0.0.1:9000/v1/chat/completions", `"model":"default"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "Authorization") {
		t.Errorf("a key, where none is needed:\n%s", text)
	}
	_, command, ok := strings.Cut(text, "analytics  cadence ")
	command, _, _ = strings.Cut(command, "\n")
	cli, err := parse(t, strings.Fields(command)...)
	if !ok || err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	if _, err := sql.Lookup(cli.Query.Query); err != nil {
		t.Error(err)
	}
	if cli.Query.DataDir == defaultDataDir() {
		t.Error("the query would look at another directory")
	}

	text = banner("10.0.0.1:443", "--no-analytics", "--backend", "mock", "--tls-cert", "c", "--tls-key", "k", "--api-keys", "gold:hush")
	if !strings.Contains(text, "https://10.0.0.1:443/v1") || strings.Contains(text, "cadence query") || !strings.Contains(text, "text from a hash") {
		t.Error(text)
	}
	if !strings.Contains(text, "Authorization: Bearer KEY") || strings.Contains(text, "hush") {
		t.Error(text)
	}
}
