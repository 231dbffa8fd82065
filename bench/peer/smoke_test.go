package peer_test

import (
	"os"
	"testing"

	"github.com/cadence-slo/cadence/bench/pipeline/pipelinetest"
)

func TestMain(m *testing.M) {
	pipelinetest.Child()
	os.Exit(m.Run())
}
