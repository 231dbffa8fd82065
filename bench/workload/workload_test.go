package workload

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func generator(t testing.TB, name string, seed uint64) *Generator {
	t.Helper()
	spec, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	vocab, err := NewVocabulary(32000, func(id int32) bool { return id < 3 || id == 31999 })
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(spec, vocab, seed)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestEmbedded(t *testing.T) {
	if got := strings.Join(Embedded(), " "); got != "admitctl elastic-fixed elastic-mixed elastic-pilot seed shared uniform unique" {
		t.Fatal(got)
	}
	for _, name := range Embedded() {
		if s, err := Open(name); err != nil || s.Name != name {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// The seed workload is what its description says: 70 % share one of four prompts of about 500 tokens, caps have the
// clipped lognormal's mean, answers 55 to 67 tokens of it.
func TestSeedWorkload(t *testing.T) {
	const n = 20000
	g := generator(t, "seed", 1)
	var shared, caps, outputs, sharedTokens, uniqueTokens float64
	var by [4]int
	for i := range n {
		r := g.Request(i)
		if r.Cap < 16 || r.Cap > 512 || r.Output < 4 || r.Output > r.Cap || r.Index != i {
			t.Fatalf("%+v", r)
		}
		caps += float64(r.Cap)
		outputs += float64(r.Output)
		if r.System < 0 {
			uniqueTokens += float64(len(r.Prompt))
			continue
		}
		shared++
		by[r.System]++
		sharedTokens += float64(len(r.Prompt))
		if r.SystemTokens < 480 || r.SystemTokens > 520 || len(r.Prompt) < r.SystemTokens+16 {
			t.Fatalf("%d of %d tokens shared", r.SystemTokens, len(r.Prompt))
		}
	}
	if ratio := shared / n; math.Abs(ratio-0.7) > 0.015 {
		t.Errorf("%.3f share a system prompt", ratio)
	}
	for i, k := range by {
		if ratio := float64(k) / shared; math.Abs(ratio-0.25) > 0.02 {
			t.Errorf("system prompt %d has %.3f of them", i, ratio)
		}
	}
	if mean := caps / n; mean < 130 || mean > 140 {
		t.Errorf("mean cap %.1f", mean)
	}
	if mean := outputs / n; mean < 55 || mean > 67 {
		t.Errorf("mean answer %.1f", mean)
	}
	s, u := sharedTokens/shared, uniqueTokens/(n-shared)
	if math.Abs(s/u-1) > 0.05 {
		t.Errorf("prompts of %.0f tokens that share, %.0f that do not", s, u)
	}
	t.Logf("%.3f share; cap %.1f, answer %.1f, prompts %.0f and %.0f tokens", shared/n, caps/n, outputs/n, s, u)
}

// The control has the seed's prompts, and its mean lengths at each request.
func TestUniformIsTheSeedsControl(t *testing.T) {
	const n = 20000
	seed, uniform := generator(t, "seed", 2), generator(t, "uniform", 2)
	var prompts, caps, outputs float64
	for i := range n {
		a, b := seed.Request(i), uniform.Request(i)
		if b.Cap != 133 || b.Output != 61 || b.System != a.System {
			t.Fatalf("%+v", b)
		}
		prompts += float64(len(b.Prompt)-len(a.Prompt)) / n
		caps += float64(b.Cap-a.Cap) / n
		outputs += float64(b.Output-a.Output) / n
	}
	if math.Abs(prompts) > 1 || math.Abs(caps) > 3 || math.Abs(outputs) > 1.5 {
		t.Errorf("the control's mean prompt, cap and answer differ by %.1f, %.1f and %.1f tokens", prompts, caps, outputs)
	}
}

func TestRequestsAreDeterminedBySeedAndIndex(t *testing.T) {
	a, b, other := generator(t, "seed", 7), generator(t, "seed", 7), generator(t, "seed", 8)
	same := 0
	for i := 99; i >= 0; i-- { // in any order
		x, y, z := a.Request(i), b.Request(i), other.Request(i)
		if !slices.Equal(x.Prompt, y.Prompt) || x.Cap != y.Cap || x.Output != y.Output || x.System != y.System {
			t.Fatalf("request %d differs", i)
		}
		if slices.Equal(x.Prompt[:16], z.Prompt[:16]) {
			t.Fatalf("request %d is the same under another seed", i)
		}
		if x.Cap == z.Cap {
			same++
		}
	}
	if same > 20 {
		t.Fatalf("%d of 100 caps are those of another seed", same)
	}
}

// Requests share their system prompt and nothing else, also after Reseed, which keeps the system prompts.
func TestWhatIsShared(t *testing.T) {
	g := generator(t, "shared", 3)
	heads := map[[4]int32]int{} // first tokens → system prompt
	seen := map[[4]int32]bool{}
	for _, g := range []*Generator{g, g.Reseed(4)} {
		for i := range 300 {
			r := g.Request(i)
			head, tail := [4]int32(r.Prompt), [4]int32(r.Prompt[r.SystemTokens:])
			if seen[tail] {
				t.Fatalf("request %d: its own part was seen before", i)
			}
			seen[tail] = true
			was, known := heads[head]
			if known && (was != r.System || r.System < 0) {
				t.Fatalf("request %d begins like system prompt %d, is of %d", i, was, r.System)
			}
			heads[head] = r.System
			if r.Output != 64 || r.Cap != 64 {
				t.Fatalf("%+v", r)
			}
			for _, id := range r.Prompt {
				if id < 3 || id >= 31999 {
					t.Fatalf("token id %d", id)
				}
			}
		}
	}
	u := generator(t, "unique", 3)
	for i := range 50 {
		if r := u.Request(i); len(r.Prompt) != 256 || r.Output != 64 || r.System != -1 {
			t.Fatalf("%+v", r)
		}
	}
}

func TestLongest(t *testing.T) {
	for name, want := range map[string]int{"unique": 320, "shared": 568 + 64, "seed": 584 + 236, "admitctl": 48 + 256, "elastic-mixed": 960 + 224} {
		g := generator(t, name, 1)
		spec := g.Spec()
		if got := spec.Longest(); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
		for i := range 2000 {
			if r := g.Request(i); len(r.Prompt)+r.Output > want {
				t.Fatalf("%s: request %d has %d and %d tokens", name, i, len(r.Prompt), r.Output)
			}
		}
	}
}

func TestParse(t *testing.T) {
	good := `{"name": "mine", "shared_ratio": 0, "unique_tokens": {"min": 1, "max": 2}, "output": {"fixed": 3}}`
	file := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(file); err != nil || s.UniqueTokens != (Range{Min: 1, Max: 2}) || s.Output.Fixed != 3 {
		t.Fatalf("%+v, %v", s, err)
	}
	seed, err := Text("seed")
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string]string{
		"realised_ration": strings.Replace(string(seed), "realised_ratio:", "realised_ration:", 1),
		"shared_ratio":    strings.Replace(string(seed), "shared_ratio: 0.7", "shared_ratio: 1.2", 1),
		"system_prompts":  strings.Replace(string(seed), "system_prompts: 4", "system_prompts: 0", 1),
		"tail_tokens":     strings.Replace(string(seed), "tail_tokens: {min: 16", "tail_tokens: {min: 65", 1),
		"unique_tokens":   strings.Replace(string(seed), "unique_tokens: {min: 496", "unique_tokens: {min: 0", 1),
		"realised_ratio":  strings.Replace(string(seed), "realised_ratio: 0.46", "realised_ratio: 0", 1),
		"realised_min":    strings.Replace(string(seed), "realised_min: 4", "realised_min: 17", 1),
		"output.cap":      strings.Replace(string(seed), "max: 512", "max: 8", 1),
		"output.fixed":    `{"name": "x", "shared_ratio": 0, "unique_tokens": {"min": 1, "max": 1}, "output": {}}`,
		"name is empty":   `{"shared_ratio": 0, "unique_tokens": {"min": 1, "max": 1}, "output": {"fixed": 1}}`,
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := Open("nobody"); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "seed, shared, uniform, unique") {
		t.Error(err)
	}
	if _, err := Text("nobody"); !errors.Is(err, ErrSpec) {
		t.Error(err)
	}
	if _, err := NewVocabulary(2, func(id int32) bool { return id == 0 }); !errors.Is(err, ErrSpec) {
		t.Error(err)
	}
	if _, err := New(&Spec{}, Vocabulary{1, 2}, 1); !errors.Is(err, ErrSpec) {
		t.Error(err)
	}
}

// BenchmarkRequest is what drawing a request takes: go test -bench Request ./bench/workload.
func BenchmarkRequest(b *testing.B) {
	for _, name := range []string{"seed", "elastic-mixed", "azure:testdata/azure-conv-2023.csv"} {
		b.Run(name, func(b *testing.B) {
			s, err := OpenSource(name, vocabulary, 1)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s.Request(i)
				i++
			}
		})
	}
}
