package peer

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/workload"
)

func TestOptionsNameTheKey(t *testing.T) {
	o := DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(*Options){
		"threads":       func(o *Options) { o.Threads = 0 },
		"parts":         func(o *Options) { o.Parts = []string{"all"} },
		"concurrency":   func(o *Options) { o.Concurrency = []int{4, 0} },
		"output-tokens": func(o *Options) { o.OutputTokens = 1 },
		"prefill-chunk": func(o *Options) { o.PrefillChunk = o.EngineBatch + 1 },
		"open-length":   func(o *Options) { o.OpenLength = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestQuickIsStillValid(t *testing.T) {
	o := DefaultOptions()
	o.quick()
	if err := o.Validate(); err != nil || !slices.Equal(o.Concurrency, []int{1, 4}) {
		t.Fatal(o.Concurrency, err)
	}
}

func TestRequestBody(t *testing.T) {
	r := request(&workload.Request{Index: 7, Prompt: []int32{3, 0, 151642}, Output: 5, Cap: 9}, "default", "b", greedy)
	var body struct {
		Model     string  `json:"model"`
		Prompt    []int32 `json:"prompt"`
		MaxTokens int     `json:"max_tokens"`
		IgnoreEOS bool    `json:"ignore_eos"`
		Stream    bool    `json:"stream"`
		TopK      int     `json:"top_k"`
		Options   struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatalf("%v in %s", err, r.Body)
	}
	if body.Model != "default" || !slices.Equal(body.Prompt, []int32{3, 0, 151642}) || body.MaxTokens != 5 || !body.IgnoreEOS || !body.Stream || body.TopK != 1 || !body.Options.Usage || r.ClientID != "b-7" {
		t.Fatalf("%+v, %s", body, r.ClientID)
	}
}

func record(ttft time.Duration, gaps []time.Duration, prompt, output, cached int) *load.Record {
	r := &load.Record{Outcome: load.OK, TTFT: ttft, E2E: ttft, Gaps: gaps, Usage: &load.Usage{PromptTokens: prompt, CompletionTokens: output, CachedTokens: cached}}
	for _, g := range gaps {
		r.E2E += g
	}
	return r
}

func TestSummary(t *testing.T) {
	const m = time.Millisecond
	s := sample{length: 2 * time.Second, records: []*load.Record{
		record(100*m, []time.Duration{10 * m, 10 * m}, 200, 3, 0),
		record(200*m, []time.Duration{20 * m, 20 * m}, 200, 5, 100), // two tokens an event
		record(400*m, []time.Duration{30 * m, 30 * m}, 200, 3, 50),
		{Outcome: load.Refused, Reason: "queue_full", TTFT: -1},
		{Outcome: load.Truncated, TTFT: 5 * m, Usage: &load.Usage{PromptTokens: 9, CompletionTokens: 9}},
	}}
	b := summarize(s)
	if b.Requests != 5 || b.Complete != 3 || b.PromptTokens != 600 || b.OutputTokens != 11 || b.CachedTokens != 150 || b.CachedRatio != 0.25 {
		t.Fatalf("%+v", b)
	}
	if b.OutputRate != 5.5 || b.PromptRate != 300 || b.PrefillRate != 1000 {
		t.Fatalf("%+v", b)
	}
	if b.TTFT != (Quantiles{200 * m, 400 * m}) || b.ITL != (Quantiles{10 * m, 30 * m}) || b.TPOT != (Quantiles{10 * m, 30 * m}) || b.E2E != (Quantiles{240 * m, 460 * m}) {
		t.Fatalf("%+v", b)
	}
	if b.Reasons["refused: queue_full"] != 1 || b.Reasons["truncated"] != 1 || len(b.Reasons) != 2 {
		t.Fatalf("%v", b.Reasons)
	}
	twice := summarize(s, s)
	if twice.OutputRate != b.OutputRate || twice.Complete != 6 || twice.TTFT != b.TTFT {
		t.Fatalf("%+v", twice)
	}
	if none := summarize(); none.OutputRate != 0 || none.TTFT != (Quantiles{}) {
		t.Fatalf("%+v", none)
	}
}

func TestRatios(t *testing.T) {
	r := ratioOf([]float64{2, 3, 0, 8}, []float64{1, 2, 5, 2})
	if r.Median != 2 || r.Min != 1.5 || r.Max != 4 || !slices.Equal(r.All, []float64{2, 1.5, 4}) {
		t.Fatalf("%+v", r)
	}
	if r := ratioOf(nil, []float64{1}); r.Median != 0 || len(r.All) != 0 {
		t.Fatalf("%+v", r)
	}
	if m := medianOf([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Fatal(m)
	}
	q := ratios([]Block{{OutputRate: 10, TTFT: Quantiles{P50: 5, P99: 50}}}, []Block{{OutputRate: 5, TTFT: Quantiles{P50: 10, P99: 25}}})
	if q.OutputRate.Median != 2 || q.TTFTP50.Median != 0.5 || q.TTFTP99.Median != 2 || q.ITLP50.Median != 0 {
		t.Fatalf("%+v", q)
	}
	order := ""
	for n := range 8 {
		if oursFirst(n) {
			order += "AB"
		} else {
			order += "BA"
		}
	}
	if order != "ABBAABBAABBAABBA" {
		t.Fatal(order)
	}
	if oursFirst(-1) == oursFirst(0) { // the pair that warms up is part of the order
		t.Fatal("-1")
	}
}

func TestTuning(t *testing.T) {
	args := changes[0].apply([]string{"--kv-unified"})
	args = changes[1].apply(args)
	if got := strings.Join(args, " "); got != "--no-kv-unified --flash-attn off" {
		t.Fatal(got)
	}
}

func TestReportsWrite(t *testing.T) {
	b := Block{Requests: 8, Complete: 7, OutputRate: 123.4, TTFT: Quantiles{P50: 5 * time.Millisecond}, Reasons: map[string]int{"timeout": 1}}
	r := Report{Machine: pipeline.Machine{CPU: "a CPU", Version: "v1"}, Model: pipeline.Model{File: "m.gguf", SHA256: strings.Repeat("ab", 32)}, PeerVersion: "42", Quick: true, Stopped: true,
		Measurements: []Measurement{{Name: "unique, 4 at a time", PeerArgs: []string{"--port", "0", "--kv-unified", "--cache-ram", "0"}, Ours: Side{Pooled: b, Blocks: []Block{b}}, Theirs: Side{Pooled: b, Blocks: []Block{b}},
			Ratios: ratios([]Block{b}, []Block{b})}},
		Prefill: &PrefillReport{Worker: []PrefillArm{{Name: "worker", Ratio: Ratio{Median: 0.987}}}}}
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a CPU", "v1", "sha256 abababababab", "llama-server 42", "--kv-unified --cache-ram 0", "123.4", "5.00 ms", "1.000", "0.987", "timeout:1", "mean nothing", "Stopped before its end"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
}
