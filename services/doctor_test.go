package services

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/streams"
)

// diagnose runs the doctor and returns its findings by check.
func diagnose(t *testing.T, args ...string) (status int, found map[string]finding) {
	t.Helper()
	status, out, errOut := run(append([]string{"doctor", "--json"}, args...)...)
	var list []finding
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v in %s%s", err, out, errOut)
	}
	found = map[string]finding{}
	for _, f := range list {
		found[f.Check] = f
	}
	return status, found
}

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestDoctorOfAHealthyMachine(t *testing.T) {
	srv, err := streams.StartServer(streams.ServerConfig{Dir: t.TempDir(), Durability: "process", Listen: "127.0.0.1:0"}, testGlobals(t).Log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	}()
	_, found := diagnose(t, "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--backend", "mock", "--nats-url", srv.URL())
	for _, check := range []string{"version", "port", "data directory", "model", "NATS"} {
		if f := found[check]; f.Status == "fail" || f.Detail == "" || f.Status == "ok" && f.Fix != "" {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if !strings.Contains(found["version"].Detail, "v0-test") {
		t.Errorf("%+v", found["version"])
	}
}

func TestDoctorOfASickMachine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	status, found := diagnose(t, "--listen", taken.Addr().String(), "--data-dir", file, "--model", "nope", "--model-dir", t.TempDir(),
		"--nats-url", "nats://user:hush@"+nobody(t), "--clickhouse-url", "http://user:hush@"+nobody(t))
	if status != 1 {
		t.Errorf("status %d", status)
	}
	for check, fix := range map[string]string{
		"port": "stop what listens", "data directory": "--data-dir", "model": "cadence model pull", "NATS": "--nats-url", "ClickHouse": "--clickhouse-url",
	} {
		f := found[check]
		if f.Status != "fail" || !strings.Contains(f.Fix, fix) {
			t.Errorf("%s: %+v, want a fix with %q", check, f, fix)
		}
		if strings.Contains(f.Detail, "hush") {
			t.Errorf("%s tells the password: %s", check, f.Detail)
		}
	}
	_, found = diagnose(t, "--listen", "nowhere", "--data-dir", t.TempDir(), "--backend", "mock")
	if f := found["port"]; f.Status != "fail" || strings.Contains(f.Fix, "stop") {
		t.Errorf("%+v", f)
	}
}

// A directory that another process serves is told of before `cadence up` stumbles over it.
func TestDoctorSeesARunningServer(t *testing.T) {
	dir := t.TempDir()
	srv, err := streams.StartServer(streams.ServerConfig{Dir: filepath.Join(dir, "nats"), Durability: "process"}, testGlobals(t).Log)
	if err != nil {
		t.Fatal(err)
	}
	_, found := diagnose(t, "--listen", "127.0.0.1:0", "--data-dir", dir, "--backend", "mock")
	if f := found["NATS"]; f.Status != "warn" || f.Fix == "" {
		t.Errorf("%+v", f)
	}
	if err := srv.Stop(); err != nil {
		t.Error(err)
	}
	_, found = diagnose(t, "--listen", "127.0.0.1:0", "--data-dir", dir, "--backend", "mock")
	if f := found["NATS"]; f.Status != "ok" {
		t.Errorf("%+v", f)
	}
}

func TestDoctorsTable(t *testing.T) {
	_, out, _ := run("doctor", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--backend", "mock")
	for _, word := range []string{"WHAT TO DO", "data directory", "the mock engine needs none"} {
		if !strings.Contains(out, word) {
			t.Errorf("no %q in\n%s", word, out)
		}
	}
}
