//go:build !llama || !cgo

package llamabackend_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/cadence-slo/cadence/worker/llama"
	"github.com/cadence-slo/cadence/worker/llamabackend"
)

func TestOpenNamesWhatIsMissing(t *testing.T) {
	cfg := llamabackend.DefaultConfig()
	if _, err := llamabackend.Open(cfg, slog.New(slog.DiscardHandler)); !errors.Is(err, llamabackend.ErrConfig) {
		t.Errorf("no model: %v", err)
	}
	cfg.Path = "x.gguf"
	if _, err := llamabackend.Open(cfg, slog.New(slog.DiscardHandler)); !errors.Is(err, llama.ErrNotBuilt) {
		t.Errorf("no llama.cpp: %v", err)
	}
	cfg.Sequences = 257
	if err := cfg.Validate(); !errors.Is(err, llamabackend.ErrConfig) {
		t.Errorf("257 sequences: %v", err)
	}
}
