package sample

import (
	"bytes"
	"encoding/json"
	"image/png"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"pgregory.net/rapid"
)

// given is a Timed of given requests and times.
type given struct {
	requests []workload.Request
	at       []time.Duration
}

func (g *given) Name() string                      { return "given" }
func (g *given) Describe() json.RawMessage         { return nil }
func (g *given) SLOs() map[string]record.SLO       { return nil }
func (g *given) Request(i int) workload.Request    { return g.requests[i] }
func (g *given) Arrivals() iter.Seq[time.Duration] { return slices.Values(g.at) }

// prompt is n ids from first on.
func prompt(first int32, n int, rest ...int32) []int32 {
	var p []int32
	for i := range n {
		p = append(p, first+int32(i))
	}
	return append(p, rest...)
}

func TestTake(t *testing.T) {
	g := &given{
		requests: []workload.Request{
			{Prompt: prompt(100, 20, 1), Cap: 10, Output: 5, Kind: "a"},
			{Prompt: prompt(500, 15, 2), Cap: 20, Output: 5, Kind: "a"},
			{Prompt: prompt(100, 20, 3, 4), Cap: 30, Output: 5, Kind: "b"},          // 20 found
			{Prompt: prompt(500, 15, 3), Cap: 40, Output: 25, Kind: "b"},            // 15: too few to be called shared
			{Prompt: prompt(100, 20, 3, 4), Cap: 50, Output: 30, Kind: "b"},         // all of it but its last
			{Prompt: prompt(100, 20, 9, 9, 9, 9), Cap: 1e6, Output: 1e6, Kind: "z"}, // behind the sample
		},
		at: []time.Duration{1e9, 2e9, 2e9, 4e9, 5e9, 9e9},
	}
	r := Take(g, 5)
	if len(r.Groups) != 3 || r.Requests != 5 || r.Workload != "given" {
		t.Fatalf("%+v", r)
	}
	all, a, b := r.Groups[0], r.Groups[1], r.Groups[2]
	if all.By != "all" || a.Name != "a" || b.By != "kind" || b.Requests != 3 || a.Ratio != 0.4 {
		t.Errorf("%+v", r.Groups)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("share", all.SharedRatio, 3.0/5)
	near("share of a", a.SharedRatio, 1.0/2) // with one of another kind
	near("ceiling", all.HitCeilingRatio, (20.0+15+21)/(21+16+22+16+22))
	near("ceiling of a", a.HitCeilingRatio, 0)
	near("ceiling of b", b.HitCeilingRatio, (20.0+15+21)/(22+16+22))
	near("median cap", all.Cap.P50, 30)
	near("p95 of caps", all.Cap.P95, 48)
	near("largest cap", all.Cap.Max, 50)
	near("mean answer", all.Output.Mean, 14)
	near("rate", r.Arrivals.Rate, 1)
	near("CV", r.Arrivals.CV, math.Sqrt(0.5))
	if r.Arrivals.Span != 4*time.Second {
		t.Errorf("span %v", r.Arrivals.Span)
	}
	if r := Take(g, 100); r.Requests != 6 {
		t.Errorf("%d requests of 6", r.Requests)
	}
	if r := Take(&given{}, 5); r.Requests != 0 || r.Groups[0].Requests != 0 {
		t.Errorf("%+v", r)
	}
}

// What neighbours in order say is what comparing each prompt with every other says.
func TestSharingAgreesWithAllPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &given{}
		for i := range rapid.IntRange(1, 30).Draw(t, "n") {
			g.at = append(g.at, time.Duration(i))
			p := prompt(rapid.Int32Range(0, 2).Draw(t, "first")*1000, rapid.IntRange(1, 40).Draw(t, "length"))
			g.requests = append(g.requests, workload.Request{Prompt: append(p, rapid.SliceOfN(rapid.Int32Range(0, 1), 0, 3).Draw(t, "rest")...)})
		}
		found, tokens, shared := 0, 0, 0
		for i := range g.requests {
			most, with := 0, 0
			for j := range g.requests {
				if i != j {
					n := common(g.requests[i].Prompt, g.requests[j].Prompt)
					with = max(with, n)
					if j < i {
						most = max(most, n)
					}
				}
			}
			found += min(most, len(g.requests[i].Prompt)-1)
			tokens += len(g.requests[i].Prompt)
			if with >= sharedTokens {
				shared++
			}
		}
		all := Take(g, len(g.requests)).Groups[0]
		if math.Abs(all.HitCeilingRatio-float64(found)/float64(tokens)) > 1e-9 || math.Abs(all.SharedRatio-float64(shared)/float64(len(g.requests))) > 1e-9 {
			t.Fatalf("%+v, want %d of %d tokens and %d of %d requests", all, found, tokens, shared, len(g.requests))
		}
	})
}

// The seed shares what its description says, and a cache finds at most what was seen where it was observed: about 64 %.
func TestSeed(t *testing.T) {
	vocab, err := workload.NewVocabulary(32000, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := workload.OpenSource("seed", vocab, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := Take(s, 2000)
	all := r.Groups[0]
	if len(r.Groups) != 1 || math.Abs(all.SharedRatio-0.7) > 0.03 || math.Abs(all.HitCeilingRatio-0.64) > 0.03 || r.Arrivals != nil {
		t.Errorf("%+v", r)
	}
	var b strings.Builder
	p := &printer.Printer{W: &b}
	r.Print(p)
	for _, want := range []string{"seed: the first 2000 requests", "all, prompt", "all, answer", "ceiling of the prefix hit ratio"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
}

func TestPNG(t *testing.T) {
	g := &given{requests: []workload.Request{{Prompt: prompt(1, 9), Cap: 3, Output: 1, Kind: "a", Tenant: "x"}, {Prompt: prompt(1, 3), Cap: 3, Output: 3, Kind: "b", Tenant: "x"}}, at: []time.Duration{0, 0}}
	for _, n := range []int{1, 2} {
		b, err := Take(g, n).PNG()
		if err != nil {
			t.Fatal(err)
		}
		if im, err := png.Decode(bytes.NewReader(b)); err != nil || im.Bounds().Dx() != 1440 {
			t.Errorf("%v, %v", im.Bounds(), err)
		}
	}
	got := distribution([]float64{2, 2, 3, 7})
	want := [][2]float64{{0, 0}, {2, 0.5}, {3, 0.75}, {7, 1}}
	for i := range want {
		if len(got) != len(want) || got[i].X != want[i][0] || got[i].Y != want[i][1] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}
