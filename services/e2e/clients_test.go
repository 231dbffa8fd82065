package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"
)

// The unmodified OpenAI clients stream a chat from a model of llama.cpp, to its end and with the usage.
func TestOpenAIClients(t *testing.T) {
	s := startUp(t, "--backend", "llama", "--model", "synth:tiny")
	model := s.model()
	type answer struct {
		Text   string
		Finish string `json:"finish_reason"`
		Usage  struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Total      int `json:"total_tokens"`
		}
		Chunks int
	}
	var answers []answer
	for _, command := range [][]string{{pythonPath, "clients/chat.py"}, {"node", "clients/chat.mjs"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, command[0], append(command[1:], s.url+"/v1", model, "Tell me about trains.")...)
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		var a answer
		if err := json.Unmarshal(out, &a); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		t.Logf("%v: %d chunks, usage %+v, finish %s, in %v", command, a.Chunks, a.Usage, a.Finish, time.Since(begin).Round(time.Millisecond))
		ended := a.Finish == "length" && a.Usage.Completion == 24 || a.Finish == "stop" && a.Usage.Completion > 0
		if a.Chunks < 3 || !ended || a.Usage.Prompt < 5 || a.Usage.Total != a.Usage.Prompt+a.Usage.Completion {
			t.Errorf("%v: %+v", command, a)
		}
		answers = append(answers, a)
	}
	if answers[0].Text != answers[1].Text || answers[0].Usage != answers[1].Usage {
		t.Errorf("greedy answers differ: %+v", answers)
	}
}
