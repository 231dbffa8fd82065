//go:build llama && cgo

package llamabackend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/gguf"
	"github.com/cadence-slo/cadence/worker/sample"
	"github.com/cadence-slo/cadence/worker/text"
	"github.com/cadence-slo/cadence/worker/workertest"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	discard   = slog.New(slog.DiscardHandler)
	modelFile string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "llamabackend-*")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		modelFile = filepath.Join(dir, "tiny.gguf")
		spec, err := gguf.Preset("tiny")
		if err == nil {
			_, err = gguf.SynthFile(context.Background(), modelFile, spec, 1, nil)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func open(t testing.TB, set func(*Config)) *Backend {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Path, cfg.Cells, cfg.Context = modelFile, 2048, 512
	if set != nil {
		set(&cfg)
	}
	b, err := Open(cfg, discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestConformance(t *testing.T) {
	var b *Backend
	workertest.Run(t, workertest.Suite{
		New:   func(t testing.TB) worker.Backend { b = open(t, nil); return b },
		Logit: func(_ worker.Backend, row int, token int32) float32 { return logit(t, b, row, token) },
	})
}

func logit(t *testing.T, b *Backend, row int, token int32) float32 {
	t.Helper()
	logits, err := b.context.Logits(b.last[row])
	if err != nil {
		t.Fatal(err)
	}
	return logits[token]
}

func TestMetamorphic(t *testing.T) {
	var b *Backend
	workertest.Metamorphic(t, workertest.Suite{
		New: func(t testing.TB) worker.Backend {
			b = open(t, func(c *Config) { c.Cells, c.Context, c.BatchTokens = 12_288, 1024, 1024 })
			return b
		},
		Logit: func(_ worker.Backend, row int, token int32) float32 { return logit(t, b, row, token) },
	})
}

func tokens(t testing.TB, b *Backend, text string) []int32 {
	t.Helper()
	ids, err := b.Model().Tokenize(text, true, false)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// poisoned is the test's model with NaN in the embedding of one token.
func poisoned(t *testing.T, token int32) string {
	t.Helper()
	head, err := gguf.InspectFile(modelFile)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(modelFile)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(head.Tensors, func(x gguf.Tensor) bool { return x.Name == "token_embd.weight" })
	if i < 0 || head.Tensors[i].Type != gguf.Q8_0 {
		t.Fatal("no Q8_0 embeddings in the model")
	}
	elements, bytes := head.Tensors[i].Type.Block()
	blocks := head.Tensors[i].Shape[0] / elements
	at := head.Tensors[i].Offset + uint64(token)*blocks*bytes
	for k := range blocks {
		binary.LittleEndian.PutUint16(data[at+k*bytes:], 0x7e00) // the block's scale, a half-precision NaN
	}
	path := filepath.Join(t.TempDir(), "poisoned.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A sequence that computes NaN fails alone: not those beside it, and not those that use its cells later.
func TestNaNFailsOneRequest(t *testing.T) {
	const poison = 77
	b := open(t, func(c *Config) { c.Path = poisoned(t, poison) })
	var reqs []workertest.Request
	for i := range 6 {
		reqs = append(reqs, workertest.Request{Prompt: []int32{1, 2, 3, 4, int32(100 + i)}, MaxNew: 12, IgnoreEOS: true})
	}
	for i := range reqs {
		reqs[i].Forced = workertest.Generate(t, b, reqs[i:i+1])[0]
	}
	bad := workertest.Request{Prompt: []int32{5, poison, 6}, MaxNew: 12, IgnoreEOS: true}
	d := workertest.NewDriver(t, b, workertest.PlannerConfig(b))
	same := 0
	for round := range 3 { // the cells of the first round's bad one are used again
		d.Add(t, bad)
		d.Add(t, reqs...)
		for d.Step(t) {
		}
		first := round * (len(reqs) + 1)
		if _, err := d.Output(first); !errors.Is(err, sample.ErrLogits) {
			t.Errorf("round %d: the bad request: %v", round, err)
		}
		for i := range reqs {
			out, err := d.Output(first + 1 + i)
			if err != nil || len(out) != 12 {
				t.Fatalf("round %d: request %d beside it: %d tokens, %v", round, i, len(out), err)
			}
			for k := range out {
				if out[k] == reqs[i].Forced[k] {
					same++
				}
			}
		}
	}
	t.Logf("%d of %d tokens beside it agree", same, 3*6*12)
	if same < 3*6*12*98/100 {
		t.Errorf("%d of %d tokens beside it agree", same, 3*6*12)
	}
}

func TestInfo(t *testing.T) {
	b := open(t, func(c *Config) { c.Context, c.Cells = 0, 1000 })
	i := b.Info()
	f := b.Model().Facts()
	if i.Backend != "llamacpp" || i.Model != f.Name || i.Model == "" || i.ContextTokens != f.ContextTokens || i.KVCells != 1024 || i.Vocab != f.Vocab {
		t.Errorf("%+v of %+v", i, f)
	}
	other := open(t, func(c *Config) { c.Path, c.Model = poisoned(t, 3), "other" }).Info()
	if other.Fingerprint == i.Fingerprint || other.Model != "other" {
		t.Errorf("two files: %+v, %+v", i, other)
	}
}

// Without a GPU nothing pretends that there is one.
func TestNoGPU(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Path, cfg.GPULayers = "none.gguf", 99
	if _, err := Open(cfg, discard); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "gpu layers are 99, allowed: 0") {
		t.Errorf("%v", err)
	}
}

// The whole worker on the real engine: dispatch, tokens, text, events.
func TestWorkerServesModel(t *testing.T) {
	b := open(t, nil)
	srv := streamstest.Start(t)
	client := srv.Client(t)
	cfg := worker.DefaultConfig()
	cfg.Pool = "p"
	w, err := worker.New(cfg, srv.Client(t), b, discard, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan schema.WorkerID, 8)
	ended := make(chan schema.Event, 8)
	tail, _, err := client.TailEvents(t.Context(), 0, []schema.Type{schema.WorkerUp, schema.Finished, schema.Failed}, func(e *schema.Stored, _ uint64) {
		if e.Type == schema.WorkerUp {
			up <- e.Worker
		} else {
			ended <- e.Event
		}
	}, func(_ uint64, _ []byte, err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Stop()
	chunks := make(chan *schema.Chunk, 1024)
	if _, err := client.SubscribeChunks("i1", func(c *schema.Chunk) { chunks <- c }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()

	id, err := schema.NewID(time.Now(), zeroes{})
	if err != nil {
		t.Fatal(err)
	}
	req := &schema.Request{ID: schema.RequestID(id), Pool: "p", Model: b.Info().Model, Tenant: "t", Ingress: "i1", Kind: schema.KindCompletion,
		Received: 1, Prompt: tokens(t, b, "Hello, world"), MaxTokens: 40, IgnoreEOS: true, Sampling: schema.Sampling{Temperature: 1, Seed: 3}}
	body, err := schema.Encode(req)
	if err != nil {
		t.Fatal(err)
	}
	dctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	reply, err := client.Dispatch(dctx, streamstest.Receive(t, up), &schema.Dispatch{Pool: "p", Items: []schema.DispatchItem{{Attempt: 1, Request: body}}})
	if err != nil || reply.Verdicts[0] != schema.VerdictAccepted {
		t.Fatalf("%+v, %v", reply, err)
	}
	var ids []int32
	said := ""
	for finish := (*schema.Finish)(nil); finish == nil; {
		c := streamstest.Receive(t, chunks)
		if int(c.Index) != len(ids) || c.Error != nil {
			t.Fatalf("chunk %+v after %d tokens", c, len(ids))
		}
		ids, said, finish = append(ids, c.IDs...), said+c.Text, c.Finish
	}
	if e := streamstest.Receive(t, ended); e.Type != schema.Finished || e.OutputTokens != 40 || len(ids) != 40 {
		t.Errorf("%d tokens, %+v", len(ids), e)
	}
	var raw []byte
	for _, id := range ids {
		if raw, err = b.AppendPiece(raw, id); err != nil {
			t.Fatal(err)
		}
	}
	var whole text.Stream
	want, _ := whole.Append(nil, raw)
	if want = whole.Flush(want); string(want) != said || said == "" {
		t.Errorf("text %q, want %q", said, want)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// zeroes is randomness that a test does not need.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A decode step of the planner and the real engine, tiny model.
//
//	go test -tags llama -run xxx -bench Decode -benchtime 200x ./worker/llamabackend
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{1, 8, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := open(b, func(c *Config) { c.Cells, c.Context = 1<<15, 1<<13 })
			d := workertest.NewDriver(b, m, workertest.PlannerConfig(m))
			for range n {
				d.Add(b, workertest.Request{Prompt: make([]int32, 16), MaxNew: min(1000, b.N+20), IgnoreEOS: true})
			}
			for range 10 {
				d.Step(b)
			}
			b.ResetTimer()
			for range b.N {
				d.Step(b)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
