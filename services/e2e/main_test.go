package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// binary is the cadence that is tested, pythonPath and nodeModules the OpenAI clients, root the repository.
var binary, pythonPath, nodeModules, root string

func TestMain(m *testing.M) {
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// prepare builds the binary with the flags of this environment, so that it is the one that make builds.
func prepare(m *testing.M) (code int, err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return 0, err
	}
	pythonPath, nodeModules = os.Getenv("CADENCE_TEST_PYTHON"), os.Getenv("CADENCE_TEST_NODE_MODULES")
	for name, path := range map[string]string{"CADENCE_TEST_PYTHON": pythonPath, "CADENCE_TEST_NODE_MODULES": nodeModules} {
		if _, err := os.Stat(path); err != nil {
			return 0, fmt.Errorf("%s is %q (%w): run `make test`, which installs the OpenAI clients and sets it", name, path, err)
		}
	}
	if _, err := exec.LookPath("node"); err != nil {
		return 0, fmt.Errorf("the tests of OpenAI's npm client need Node.js: %w", err)
	}
	if binary = os.Getenv("CADENCE_TEST_BINARY"); binary != "" {
		if binary, err = filepath.Abs(binary); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}
	for _, name := range []string{"CGO_CPPFLAGS", "CGO_CFLAGS", "CGO_CXXFLAGS"} {
		if os.Getenv(name) == "" {
			return 0, fmt.Errorf("%s is not set, and without the Makefile's flags llama.cpp would be built again, slowly and slow: run `make test`, or name a binary in CADENCE_TEST_BINARY", name)
		}
	}
	dir, err := os.MkdirTemp("", "cadence-e2e-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary = filepath.Join(dir, "cadence")
	begin := time.Now()
	build := exec.Command("go", "build", "-tags", "llama", "-o", binary, "./services/cadence")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w\n%s", err, out)
	}
	fmt.Printf("built the binary in %v\n", time.Since(begin).Round(time.Millisecond))
	return m.Run(), nil
}

// fromEnv is a number that the environment may set.
func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text, set := os.LookupEnv(name)
	if !set {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err == nil && n < 1 {
		err = errors.New("below 1")
	}
	if err != nil {
		t.Fatalf("%s is %q, want a number from 1: %v", name, text, err)
	}
	return n
}
