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
func loadable(t *testing.T, args ...string) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.Start(t.Context(), pipeline.Options{Executable: binary, Log: slog.New(slog.DiscardHandler),
		Args: append([]string{"--backend", "mock", "--mock-prefill-rate", "0", "--mock-step", "1ms", "--mock-step-per-seq", "0s"}, args...)})
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

// What a pool was asked for can be offered again: the same token ids, found in the prefix cache now, at the same times.
func TestReplayedRequests(t *testing.T) {
	nats := freeAddr(t)
	p := loadable(t, "--nats-listen", nats)
	dir := t.TempDir()
	offer := func(name string, args ...string) (*record.Run, []record.Request) {
		t.Helper()
		out := filepath.Join(dir, name)
		c := exec.CommandContext(t.Context(), binary, append([]string{"load", "--url", p.URL, "--no-probe", "--model", "default", "--metrics", p.Ops, "--lag-budget", "1h", "--out", out}, args...)...)
		if said, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		run, err := record.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := record.Requests(out)
		if err != nil {
			t.Fatal(err)
		}
		return run, rows
	}
	_, first := offer("first", "--workload", "unique", "--rate", "20", "--length", "2s")
	run, again := offer("again", "--workload", "requests:nats://"+nats, "--length", "0")
	if len(first) < 20 || len(again) != len(first) || run.Workload != "requests:default" || run.Arrivals != "trace" || run.CachedTokens < run.PromptTokens/2 {
		t.Fatalf("%d requests, %d again, %+v", len(first), len(again), run)
	}
	for i, r := range again {
		// Requests are stored in the order of their arrival, but for those that came together.
		if r.Outcome != record.OK || r.PromptTokens != 256 || r.OutputTokens != 64 || r.CapTokens != 64 || i > 0 && r.Intended < again[i-1].Intended {
			t.Errorf("%+v", r)
		}
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
