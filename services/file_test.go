package services

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// parse reads a command line as Main does, without running it.
func parse(t *testing.T, args ...string) (*CLI, error) {
	t.Helper()
	var cli CLI
	cli.Bench.Overhead.Executable = "cadence" // as Main sets it
	k, err := parser(&cli, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Parse(args)
	return &cli, err
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsComeBeforeEnvironmentBeforeFile(t *testing.T) {
	file := writeFile(t, "cadence.yaml", "listen: 127.0.0.1:1\nmax_open: 11\nkeep-alive: 3s\nworker: {grace: 7s}\n")
	t.Setenv("CADENCE_LISTEN", "127.0.0.1:2")
	t.Setenv("CADENCE_MAX_OPEN", "12")
	cli, err := parse(t, "up", "--config", file, "--listen", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if cli.Up.Listen != "127.0.0.1:3" {
		t.Errorf("listen is %q: the flag comes first", cli.Up.Listen)
	}
	if cli.Up.MaxOpen != 12 {
		t.Errorf("max-open is %d: the environment comes before the file", cli.Up.MaxOpen)
	}
	if cli.Up.KeepAlive != 3*time.Second || cli.Up.Worker.Grace != 7*time.Second {
		t.Errorf("keep-alive is %v, worker-grace %v: the file comes before defaults", cli.Up.KeepAlive, cli.Up.Worker.Grace)
	}
	if cli.Up.MaxConnections != 16384 {
		t.Errorf("max-connections is %d, want the default", cli.Up.MaxConnections)
	}
}

func TestFileIsNamedByTheEnvironment(t *testing.T) {
	t.Setenv("CADENCE_CONFIG", writeFile(t, "cadence.yaml", "nats: {url: nats://n:4222}\napi-keys: [gold:a, batch:b]\ntls_cert: /c\ntls_key: /k\n"))
	cli, err := parse(t, "ingress")
	if err != nil {
		t.Fatal(err)
	}
	if cli.Ingress.Nats.URL != "nats://n:4222" || !slices.Equal(cli.Ingress.APIKeys, []string{"gold:a", "batch:b"}) {
		t.Errorf("%q, %q", cli.Ingress.Nats.URL, cli.Ingress.APIKeys)
	}
}

// One file may serve every command: what only others know is no mistake.
func TestFileMayHaveOtherCommandsKeys(t *testing.T) {
	if _, err := parse(t, "scheduler", "--config", writeFile(t, "cadence.yaml", "nats-url: nats://n:1\nkv-tokens: 4096\n")); err != nil {
		t.Error(err)
	}
}

func TestWrongFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown keys":  {"lissten: :1\nnats: {urll: x}\n", "unknown key lissten, nats-urll"},
		"no value":      {"listen:\n", "listen has no value"},
		"two spellings": {"nats_url: nats://a:1\nnats: {url: nats://b:1}\n", "nats-url is given twice"},
		"no YAML":       {"listen: [", "invalid configuration file"},
		"no mapping":    {"- listen\n", "invalid configuration file"},
	} {
		_, err := parse(t, "up", "--config", writeFile(t, "cadence.yaml", c.text))
		if !errors.Is(err, ErrConfigFile) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for text, want := range map[string]string{"backend: vllm\n": "--backend", "max-open: many\n": "--max-open"} {
		if _, err := parse(t, "up", "--config", writeFile(t, "cadence.yaml", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s named", text, err, want)
		}
	}
	if _, err := parse(t, "up", "--config", filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestEmptyFile(t *testing.T) {
	if _, err := parse(t, "up", "--config", writeFile(t, "cadence.yaml", "# nothing yet\n")); err != nil {
		t.Error(err)
	}
}
