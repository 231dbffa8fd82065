package services

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/worker/llama"
)

func testGlobals(t *testing.T) *Globals {
	return &Globals{Log: slog.New(slog.DiscardHandler), Version: "v0-test", Out: t.Output(), Err: t.Output()}
}

// The ingress must know the names of the model's control tokens, or clients could write them.
func TestEngineTellsControlNames(t *testing.T) {
	want := []string{"<|endoftext|>", "<|im_end|>", "<|im_start|>"}
	for _, backend := range backends() {
		e, err := openEngine(t.Context(), testGlobals(t), &ModelFlags{Backend: backend, Model: "synth:tiny"}, &EngineFlags{KVTokens: 1024, Sequences: 1, EngineBatch: 64}, true)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(slices.Values(e.model.Control))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", backend, got)
		}
		// Chosen by the message, the name is text; by the template, a token.
		text, err := e.model.Tokenize("<|im_end|>", false, false)
		if err != nil {
			t.Fatal(err)
		}
		token, err := e.model.Tokenize("<|im_end|>", false, true)
		if err != nil || len(token) != 1 || len(text) < 2 {
			t.Errorf("%s: %v, %v, %v", backend, text, token, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// backends are those of this build.
func backends() []string {
	if llama.Built {
		return []string{backendMock, backendLlama}
	}
	return []string{backendMock}
}
