package llamaserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/process"
)

// script makes a stand-in for the binary: what matters here is what the child says, not how it infers.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "llama-server")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" = --version ] && { echo 'version: 7 (abc)'; exit 0; }\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HOME", cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", "")
	t.Setenv(EnvBinary, "")
	if _, err := Find(); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "make llama-server") {
		t.Errorf("nowhere: %v", err)
	}
	for i, name := range []string{"llama-server-bbb", "llama-server-aaa"} {
		dir := filepath.Join(cache, "cadence", name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "llama-server")
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1e9+i), 0)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
		if got, err := Find(); err != nil || got != path {
			t.Errorf("cache: %s, %v", got, err)
		}
	}
	t.Setenv(EnvBinary, filepath.Join(cache, "none"))
	if _, err := Find(); !errors.Is(err, ErrMissing) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a variable that names nothing: %v", err)
	}
}

// A child that ends before it listens, or never does, is told with its last words, and is gone.
func TestStartFails(t *testing.T) {
	_, err := Start(t.Context(), Options{Binary: script(t, "echo 'cannot load model'; exit 3"), Model: "m"})
	if !errors.Is(err, process.ErrExited) || !strings.Contains(err.Error(), "cannot load model") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = Start(ctx, Options{Binary: script(t, "echo 'still loading'; exec sleep 60"), Model: "m"})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still loading") {
		t.Errorf("got %v", err)
	}
}

func TestArguments(t *testing.T) {
	got := strings.Join(arguments(&Options{Model: "m", Threads: 1, Slots: 2, Context: 3, ExtraArgs: []string{"--x"}}), " ")
	if want := "--model m --host 127.0.0.1 --port 0 --threads 1 --parallel 2 --ctx-size 3 --x"; got != want {
		t.Errorf("got %s", got)
	}
}
