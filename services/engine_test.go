package services

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/llama"
)

func testGlobals(t *testing.T) *Globals {
	return &Globals{Log: slog.New(slog.DiscardHandler), Version: "v0-test", Out: t.Output(), Err: t.Output()}
}

// The ingress must know the names of the model's control tokens, or clients could write them.
func TestEngineTellsControlNames(t *testing.T) {
	want := []string{"<|endoftext|>", "<|im_end|>", "<|im_start|>"}
	for _, backend := range backends() {
		e, err := openEngine(t.Context(), testGlobals(t), &ModelFlags{Backend: backend, Model: "synth:tiny"}, &EngineFlags{KVTokens: 1024, Sequences: 1, EngineBatch: 64, Threads: 1}, true)
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

func TestAliases(t *testing.T) {
	for _, c := range []struct {
		m    ModelFlags
		name string
		want []string
	}{
		{ModelFlags{Model: "synth:tiny"}, "synth-tiny-v1-s1", []string{"synth:tiny", "default"}},
		{ModelFlags{Model: "/models/qwen.gguf"}, "qwen", []string{"default"}},
		{ModelFlags{Model: "./qwen.gguf", Alias: "Qwen/Qwen2.5"}, "qwen", []string{"Qwen/Qwen2.5", "default"}},
		{ModelFlags{Model: "qwen", Alias: "default"}, "qwen", []string{"default"}},
		{ModelFlags{Model: "qwen", Alias: "qwen"}, "qwen", []string{"default"}},
	} {
		if got := aliases(&c.m, c.name); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.m, got, c.want)
		}
	}
}

// A size that no engine can have is told by its flag.
func TestEngineFlags(t *testing.T) {
	cli, err := parse(t, "up")
	if err != nil {
		t.Fatal(err)
	}
	if err := cli.Up.EngineFlags.validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for flag, values := range map[string][]string{
		"kv-tokens": {"0", "-1"}, "context-tokens": {"-1", "999999999"}, "sequences": {"0", "257"}, "engine-batch": {"0", "16385"},
		"threads": {"0"}, "gpu-layers": {"-1"}, "mock-prefill-rate": {"-1", "NaN"}, "mock-step": {"-1s"}, "mock-step-per-seq": {"-1s"},
		"mock-end-hazard": {"-0.1", "1"}, "backend-dir": {"/nowhere/at/all"},
	} {
		for _, v := range values {
			cli, err := parse(t, "up", "--"+flag+"="+v)
			if err != nil {
				t.Fatal(err)
			}
			err = cli.Up.EngineFlags.validate()
			if !errors.Is(err, ErrFlags) || !strings.Contains(err.Error(), " "+flag+" is ") {
				t.Errorf("--%s=%s: %v", flag, v, err)
			}
		}
	}
}

// A flag of an engine that does not run is no flag to ignore.
func TestFlagsOfAnotherEngine(t *testing.T) {
	for flag, line := range map[string]string{
		"mock-profile": "--backend=llama --mock-profile=seed-laptop", "upstream": "--backend=mock --upstream=http://h", "tokenizer": "--backend=mock --tokenizer=mock",
	} {
		cli, err := parse(t, append([]string{"up"}, strings.Fields(line)...)...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = openEngine(t.Context(), testGlobals(t), &cli.Up.ModelFlags, &cli.Up.EngineFlags, false)
		if !errors.Is(err, ErrFlags) || !strings.Contains(err.Error(), " "+flag+" is ") || !strings.Contains(err.Error(), "want backend ") {
			t.Errorf("%s: %v", line, err)
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

// The mock takes its time from an embedded profile or from a file.
func TestMockProfile(t *testing.T) {
	own, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	own.Name = "own"
	b, err := own.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file, broken := filepath.Join(t.TempDir(), "own.json"), filepath.Join(t.TempDir(), "broken.json")
	if err := errors.Join(os.WriteFile(file, b, 0o600), os.WriteFile(broken, b[1:], 0o600)); err != nil {
		t.Fatal(err)
	}
	for arg, name := range map[string]string{"elasticserve": "elasticserve", file: "own", broken: "", "nobody": ""} {
		cli, err := parse(t, "up", "--backend", "mock", "--mock-profile", arg)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := mockConfig(&cli.Up.ModelFlags, &cli.Up.EngineFlags)
		if name == "" {
			if !errors.Is(err, profile.ErrProfile) {
				t.Errorf("%s: %v", arg, err)
			}
			continue
		}
		if err != nil || cfg.Profile.Name != name {
			t.Errorf("%s: %+v, %v", arg, cfg.Profile, err)
		}
	}
}
