package peer_test

import (
	"os"
	"testing"

	"github.com/cadence-slo/cadence/services"
)

// childVariable makes this test binary cadence itself, so that services can be started as children.
const childVariable = "PEER_TEST_CADENCE"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(services.Main(os.Args[1:], "test", os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// cadence returns the path of what tests start.
func cadence(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(childVariable, "1")
	return exe
}
