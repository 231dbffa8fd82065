package enginecore

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/google/pprof/profile"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamstest.IgnoreAckWatcher()) }

// Both arms on the mock: figures add up, files are written, nothing is left running.
func TestProfile(t *testing.T) {
	o := DefaultOptions()
	o.On, o.Cores, o.Blocks, o.Length, o.Warmup = "mock", Naive, 2, 500*time.Millisecond, 200*time.Millisecond
	o.KVTokens, o.Out = 8192, t.TempDir()
	r, err := Profile(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(t.Output()); err != nil {
		t.Fatal(err)
	}
	if len(r.Arms) != 2 || r.Arms[0].Name != Fast || r.Arms[1].Name != Naive || len(r.FastOverNaive) != 2 {
		t.Fatalf("arms: %+v", r)
	}
	for _, a := range r.Arms {
		w := a.Wall
		if s := w.Decode + w.Sampling + w.Step + w.Moves + w.Start + w.Text + w.KV + w.Radix + w.Rest; math.Abs(s-1) > 0.01 {
			t.Errorf("%s: the parts of an iteration add up to %.3f", a.Name, s)
		}
		if a.Steps == 0 || a.MeanBatch < 1 || a.TokensPerSecond[0] <= 0 || w.KV <= 0 || w.Radix <= 0 || w.CoreCalls <= 0 {
			t.Errorf("%+v", a)
		}
		if len(a.Files) != 2 {
			t.Fatalf("files %v", a.Files)
		}
		for _, f := range a.Files {
			if st, err := os.Stat(f); err != nil || st.Size() == 0 || filepath.Dir(f) != o.Out {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
	if fast, naive := r.Arms[0].Wall, r.Arms[1].Wall; naive.KV+naive.Radix <= fast.KV+fast.Radix {
		t.Errorf("naive pages and prefix tree take %.3f of an iteration, fast ones %.3f", naive.KV+naive.Radix, fast.KV+fast.Radix)
	}
}

func TestOptions(t *testing.T) {
	o := DefaultOptions()
	o.KVTokens = 256
	if _, err := Profile(t.Context(), o); !errors.Is(err, ErrConfig) {
		t.Errorf("%v", err)
	}
}

// sampled is a profile of stacks, the outermost function first, each with its CPU time.
func sampled(stacks map[string]time.Duration) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples"}, {Type: "cpu"}}}
	functions := map[string]*profile.Location{}
	for stack, cpu := range stacks {
		s := &profile.Sample{Value: []int64{1, int64(cpu)}}
		for name := range strings.SplitSeq(stack, ";") {
			if functions[name] == nil {
				functions[name] = &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}}
			}
			s.Location = append([]*profile.Location{functions[name]}, s.Location...)
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

// Time in C counts for the Go function that called it, time in the runtime for whom it works.
func TestSpent(t *testing.T) {
	step := engineLoop + ";" + backendStep + ";" + module + "worker/llamabackend.(*Backend).Step;"
	c := spent(sampled(map[string]time.Duration{
		step + module + "worker/llama.(*Context).Decode;runtime.cgocall":                                           900,
		step + module + "worker/sample.(*Sampler).Sample;runtime.memmove":                                          50,
		engineLoop + ";" + module + "worker/batch.(*Planner).Plan":                                                 20,
		engineLoop + ";" + module + "worker/batch.(*Planner).Plan;" + module + "worker/kv/kvtest.(*Paged).Reserve": 20,
		engineLoop + ";" + module + "worker/batch.(*Planner).Plan;" + module + "worker/radix.(*Tree).Match":        10,
		"github.com/nats-io/nats-server/v2/server.(*client).readLoop;syscall.Read":                                 1000,
	}), 4000)
	want := map[string]float64{decode: 0.9, sampling: 0.05, planning: 0.02, "kv": 0.02, "radix": 0.01}
	for _, s := range c.Loop {
		if math.Abs(s.Ratio-want[s.Name]) > 1e-9 {
			t.Errorf("%s is %g of the engine loop, want %g", s.Name, s.Ratio, want[s.Name])
		}
		delete(want, s.Name)
	}
	if len(want) > 0 || math.Abs(c.EngineLoop-0.5) > 1e-9 || c.Coverage != 0.5 || len(c.Outside) != 3 || c.Outside[2] != (Share{"radix", 0.2}) || c.Samples != 6 {
		t.Errorf("%+v; not seen: %v", c, want)
	}
}

func TestFlame(t *testing.T) {
	var b strings.Builder
	if err := flame(&b, sampled(map[string]time.Duration{"main;a<b>": 3 * time.Second, "main;c": time.Second}), "a & b"); err != nil {
		t.Fatal(err)
	}
	titles := []string{}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "title" {
			var text string
			if err := d.DecodeElement(&text, &e); err != nil {
				t.Fatal(err)
			}
			titles = append(titles, text)
		}
	}
	got, want := strings.Join(titles, "\n"), "all: 4s, 100.00 %\nmain: 4s, 100.00 %\na<b>: 3s, 75.00 %\nc: 1s, 25.00 %"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
