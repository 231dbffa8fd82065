package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/process"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
)

// loadable is a pipeline over a mock engine that is fast enough for any test machine.
func loadable(t *testing.T) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.Start(t.Context(), pipeline.Options{Executable: binary, Log: slog.New(slog.DiscardHandler),
		Args: []string{"--backend", "mock", "--mock-prefill-rate", "0", "--mock-step", "1ms", "--mock-step-per-seq", "0s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// `cadence load` against `cadence up`: prompts of token ids, answers of the length that the workload says, every token in the
// books, and what the workers count agrees.
func TestLoad(t *testing.T) {
	p := loadable(t)
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "load", "--url", p.URL, "--workload", "shared", "--rate", "20", "--length", "3s", "--drain", "60s", "--slo", "e2e=1m",
		"--lag-budget", "1h", "--send-slo", "--metrics", p.Ops, "--out", dir, "--json").Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got struct {
		Run     record.Run
		Summary stat.Summary
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	s := got.Summary
	if s.Offered < 30 || s.Good != s.Offered || got.Run.Model == "" || got.Run.Workload != "shared" {
		t.Errorf("%s", out)
	}
	rows, err := record.Requests(dir)
	if err != nil || len(rows) != s.Offered {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	prompt := int64(0)
	for _, r := range rows {
		if r.OutputTokens != 64 || len(r.ITL) != 63 || r.CapTokens != 64 || r.ID == "" || r.TTFT <= 0 || r.E2E < r.TTFT || r.Lag <= 0 {
			t.Fatalf("%+v", r)
		}
		prompt += int64(r.PromptTokens)
	}
	// Most of the prompts begin with one of four that are shared.
	if r := got.Run; r.PromptTokens != prompt || r.CachedTokens < prompt/4 || r.Preemptions < 0 {
		t.Errorf("the workers counted %d, %d of them in the cache; the books say %d", r.PromptTokens, r.CachedTokens, prompt)
	}
}

// Ctrl-C ends `cadence load` with a complete record of what was sent.
func TestInterruptedLoad(t *testing.T) {
	p := loadable(t)
	dir := filepath.Join(t.TempDir(), "run")
	c, err := process.Start(process.Options{Name: "cadence load", Path: binary,
		Args: []string{"load", "--url", p.URL, "--rate", "50", "--length", "1h", "--lag-budget", "1h", "--out", dir, "--workload", "unique"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, startWithin, "some answers", func() error {
		now, err := pipeline.ReadCounters(t.Context(), p.Ops)
		if err == nil && now.Prompt < 20*256 {
			err = fmt.Errorf("%d tokens of prompts", now.Prompt)
		}
		return err
	})
	if err := c.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-time.After(startWithin):
		t.Fatalf("it goes on:\n%s", c.Output())
	}
	run, err := record.Open(dir)
	if err != nil || c.ExitCode() != 0 || !run.Partial || !run.Valid() || run.Wall >= time.Hour {
		t.Fatalf("code %d, %+v, %v\n%s", c.ExitCode(), run, err, c.Output())
	}
	rows, err := record.Requests(dir)
	if err != nil || len(rows) < 20 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	for i, r := range rows {
		if r.Index != i || r.Outcome != record.OK && r.Outcome != record.Censored {
			t.Errorf("%d: %+v", i, r)
		}
	}
}
