//go:build llama && cgo

package peer_test

import (
	"testing"

	"github.com/cadence-slo/cadence/bench/peer"
)

// The worker's prefill is compared with llama_decode alone, without any server.
func TestPrefill(t *testing.T) {
	o := peer.DefaultOptions()
	o.Model, o.ModelDir, o.Parts, o.Blocks, o.PrefillPrompts, o.PrefillTokens, o.PrefillChunk = "tiny", t.TempDir(), []string{peer.PartPrefill}, 3, 2, 100, 64
	rep, err := peer.Engine(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Measurements) != 0 || len(rep.Prefill.Worker) != 2 {
		t.Fatalf("%+v", rep)
	}
	for _, a := range append(rep.Prefill.Worker, rep.Prefill.Bare) {
		if len(a.Speed) != 3 || len(a.CPU) != 3 || len(a.Ratio.All) != 3 || a.Median <= 0 || a.CPURatio.Median <= 0 {
			t.Errorf("%+v", a)
		}
	}
}
