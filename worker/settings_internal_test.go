package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What a user asks for beyond what the engine has is refused by its key.
func TestFits(t *testing.T) {
	engine := Info{ContextTokens: 4096, Sequences: 64, KVCells: 16384, BatchTokens: 512, Sharing: true}
	for name, c := range map[string]struct {
		change func(*Config)
		says   string // empty: it fits
	}{
		"the defaults":           {func(*Config) {}, ""},
		"the most":               {func(c *Config) { c.MaxBatch, c.BatchTokens = 64, 512 }, ""},
		"more than sequences":    {func(c *Config) { c.MaxBatch = 65 }, "max_batch is 65, allowed: 0 to 64"},
		"static, beyond that":    {func(c *Config) { c.Mode, c.MaxBatch = "static", 65 }, "max_batch is 65, allowed: 0 to 64"},
		"fifo needs one":         {func(c *Config) { c.Mode, c.MaxBatch = "fifo", 65 }, ""},
		"more than the engine's": {func(c *Config) { c.BatchTokens = 513 }, "batch_tokens is 513, allowed: 0 to 512"},
		"more than a step":       {func(c *Config) { c.MaxBatch, c.BatchTokens = 33, 32 }, "max_batch is 33, allowed: 0 to 32"},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		err := cfg.Fits(engine)
		if (c.says == "") != (err == nil) || err != nil && !(errors.Is(err, ErrConfig) && strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
		if plan := cfg.Planner(engine); err == nil && plan.Validate() != nil {
			t.Errorf("%s: %v", name, plan.Validate())
		}
	}
}

// The settings as they took effect are logged once and are the labels of a metric; each that did not has a warning.
func TestSettingsAreTold(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Mode, cfg.MaxBatch, cfg.KV, cfg.ChunkTokens, cfg.ITLTarget, cfg.KVOvercommit = "fifo", 8, "contiguous", 512, 25*time.Millisecond, 1.5
	plan := cfg.Planner(Info{ContextTokens: 4096, Sequences: 64, KVCells: 16384, BatchTokens: 256, Sharing: true})
	inEffect := settings(&cfg, &plan)
	var log bytes.Buffer
	logSettings(slog.New(slog.NewTextHandler(&log, nil)), &cfg, &plan, inEffect)
	want := "mode=fifo prefill_order=decode-first max_batch=1 batch_tokens=256 chunk_tokens=256 itl_target=25ms kv=contiguous page_tokens=16 " +
		"kv_overcommit=1.5 prefix_cache=false cache_output=false prefix_sharing=tenant"
	for _, line := range []string{
		`msg="worker settings" ` + want, "key=prefix_cache asked=true in_effect=false", "key=max_batch asked=8 in_effect=1", "key=chunk_tokens asked=512 in_effect=256",
	} {
		if strings.Count(log.String(), line) != 1 {
			t.Errorf("%s is not in\n%s", line, &log)
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 3 {
		t.Errorf("%d warnings", n)
	}

	registry := prometheus.NewPedanticRegistry()
	if _, err := newMetrics(registry, inEffect, newBook("p", 10, 10, plan), func() *engine { return &engine{} }); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "cadence_worker_info" {
			continue
		}
		var got []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			got = append(got, l.GetName()+"="+l.GetValue())
		}
		if len(f.GetMetric()) != 1 || f.GetMetric()[0].GetGauge().GetValue() != 1 || len(got) != len(inEffect) || !strings.Contains(strings.Join(got, " "), "max_batch=1 mode=fifo") {
			t.Errorf("%v", f)
		}
		return
	}
	t.Error("there is no cadence_worker_info")
}
