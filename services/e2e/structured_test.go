package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/grammar/grammartest"
)

// The unmodified OpenAI client gets log-probabilities, and an answer that its schema's class takes.
func TestStructuredOutput(t *testing.T) {
	s := startUp(t, "--backend", "llama", "--model", "synth:tiny")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, pythonPath, "clients/structured.py", s.url+"/v1", s.model()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got struct {
		Train        map[string]any
		Finish       string
		Object, Text string
		Bytes        []int
		Greedy       bool
		Sorted       bool
		Mass         float64
		Tokens       int
		Same         bool
		Completion   struct {
			Tokens  []string
			Logs    []float64            `json:"token_logprobs"`
			Top     []map[string]float64 `json:"top_logprobs"`
			Offsets []int                `json:"text_offset"`
		}
		Refused struct{ Param, Message string }
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	if got.Finish != "stop" || got.Train["name"] == "" || got.Train["wagons"] == nil {
		t.Errorf("train %v, finish %s", got.Train, got.Finish)
	}
	if !strings.HasPrefix(got.Object, "{") || !grammartest.Prefix(got.Object) {
		t.Errorf("object %q", got.Object)
	}
	var spelled []byte
	for _, b := range got.Bytes {
		spelled = append(spelled, byte(b))
	}
	if strings.ToValidUTF8(string(spelled), "") != strings.ReplaceAll(got.Text, "\uFFFD", "") || got.Tokens == 0 || got.Tokens > 12 {
		t.Errorf("%d tokens spell %q, the text is %q", got.Tokens, spelled, got.Text)
	}
	if !got.Greedy || !got.Sorted || !got.Same || got.Mass <= 0 || got.Mass > 1+1e-6 {
		t.Errorf("greedy %v, sorted %v, streamed alike %v, mass %v", got.Greedy, got.Sorted, got.Same, got.Mass)
	}
	if c := got.Completion; len(c.Tokens) == 0 || len(c.Logs) != len(c.Tokens) || len(c.Top) != len(c.Tokens) || len(c.Offsets) != len(c.Tokens) || c.Offsets[0] != 0 || len(c.Top[0]) < 2 {
		t.Errorf("completion %+v", c)
	}
	if got.Refused.Param != "response_format" || !strings.Contains(got.Refused.Message, "#/pattern") {
		t.Errorf("refused %+v", got.Refused)
	}
}
