//go:build llama && cgo

package peer_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/llamaserver"
	"github.com/cadence-slo/cadence/bench/peer"
	"github.com/cadence-slo/cadence/bench/pipeline/pipelinetest"
)

// All parts run against the real llama-server, on a tiny model and with tiny sizes.
func TestEngineAgainstLlamaServer(t *testing.T) {
	if _, err := llamaserver.Find(); err != nil {
		t.Fatal(err)
	}
	o := peer.DefaultOptions()
	o.Executable, o.Version, o.Log = pipelinetest.Executable(t), "test", slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Model, o.ModelDir, o.Concurrency, o.Blocks, o.Requests, o.OutputTokens, o.PromptTokens = "tiny", t.TempDir(), []int{2}, 1, 2, 6, 40
	o.OpenRate, o.OpenLength, o.Tune, o.Analytics, o.PrefillPrompts, o.PrefillTokens, o.PrefillChunk = 20, 400*time.Millisecond, false, false, 1, 100, 64
	rep, err := peer.Engine(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Measurements) != 3 || rep.PeerVersion == "" || rep.Model.SHA256 == "" || rep.Prefill == nil || rep.Prefill.Worker[0].Ratio.Median <= 0 {
		t.Fatalf("%+v", rep)
	}
	for _, m := range rep.Measurements {
		for name, s := range map[string]*peer.Side{"ours": &m.Ours, "theirs": &m.Theirs} {
			b := &s.Pooled
			if b.Requests == 0 || b.Complete != b.Requests || b.OutputTokens != 6*b.Requests || b.OutputRate <= 0 || b.TTFT.P50 <= 0 {
				t.Errorf("%s, %s: %+v", m.Name, name, b)
			}
		}
		if m.Ours.Pooled.PromptTokens != m.Theirs.Pooled.PromptTokens {
			t.Errorf("%s: %d and %d prompt tokens", m.Name, m.Ours.Pooled.PromptTokens, m.Theirs.Pooled.PromptTokens)
		}
	}
	if err := rep.Write(t.Output()); err != nil {
		t.Fatal(err)
	}
}
