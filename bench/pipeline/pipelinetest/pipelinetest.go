// Package pipelinetest makes a test binary cadence itself, so that package pipeline can start the services as children without
// anything being built or installed. It has no state but an environment variable.
package pipelinetest

import (
	"os"
	"testing"

	"github.com/cadence-slo/cadence/services"
)

// variable tells a test binary that it is a child.
const variable = "PIPELINE_TEST_CADENCE"

// Child never returns where Executable's caller has started this process: it is cadence then. It is called first in TestMain.
func Child() {
	if os.Getenv(variable) != "" {
		os.Exit(services.Main(os.Args[1:], "test", os.Stdout, os.Stderr))
	}
}

// Executable returns the path of what a test starts as cadence; it is for the duration of the test.
func Executable(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, "1")
	return exe
}
