package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"pgregory.net/rapid"
)

func drawRange(t *rapid.T, key string) Range {
	r := Range{Min: rapid.IntRange(1, 40).Draw(t, key+".min")}
	r.Max = r.Min + rapid.IntRange(0, 40).Draw(t, key+".more")
	if rapid.Bool().Draw(t, key+".lognormal") {
		r.Mu, r.Sigma = rapid.Float64Range(-2, 6).Draw(t, key+".mu"), rapid.Float64Range(0, 3).Draw(t, key+".sigma")
	}
	return r
}

func drawKind(t *rapid.T, key string) Kind {
	k := Kind{
		Name: key, Share: rapid.Float64Range(0.1, 100).Draw(t, key+".share"), SharedRatio: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, key+".shared"),
		SystemPrompts: rapid.IntRange(1, 3).Draw(t, key+".systems"), SystemTokens: drawRange(t, key+".system"), TailTokens: drawRange(t, key+".tail"),
		UniqueTokens: drawRange(t, key+".unique"),
	}
	switch r := drawRange(t, key+".output"); rapid.IntRange(0, 2).Draw(t, key+".way") {
	case 0:
		k.Output.Fixed = r.Max
	case 1:
		k.Output.Tokens = &r
	default:
		k.Output = Output{Cap: &r, RealisedRatio: rapid.Float64Range(0.01, 1).Draw(t, key+".realised"), RealisedMin: rapid.IntRange(1, r.Min).Draw(t, key+".least")}
	}
	return k
}

func drawSpec(t *rapid.T) *Spec {
	s := &Spec{Name: "drawn"}
	if n := rapid.IntRange(0, 3).Draw(t, "kinds"); n == 0 {
		k := drawKind(t, "only")
		s.SharedRatio, s.SystemPrompts, s.SystemTokens, s.TailTokens, s.UniqueTokens, s.Output = k.SharedRatio, k.SystemPrompts, k.SystemTokens, k.TailTokens, k.UniqueTokens, k.Output
	} else {
		for i := range n {
			s.Kinds = append(s.Kinds, drawKind(t, fmt.Sprint("k", i)))
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "tenants") {
		name := fmt.Sprint("t", i)
		s.Tenants = append(s.Tenants, Tenant{Name: name, Share: rapid.Float64Range(0.1, 100).Draw(t, name), Weight: float64(i), Class: name})
	}
	s.SLOs = map[string]record.SLO{}
	for _, tenant := range s.senders() {
		s.SLOs[tenant.Class] = record.SLO{E2E: time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "slo"))}
	}
	return s
}

// Whatever a workload says: lengths are in their ranges, names and classes are its own, and what it says of itself is enough
// to draw the same requests again.
func TestDraws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		g, err := New(spec, vocabulary, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "reseed") {
			g = g.Reseed(rapid.Uint64().Draw(t, "other seed"))
		}
		var d drawn
		if err := json.Unmarshal(g.Describe(), &d); err != nil {
			t.Fatal(err)
		}
		again, err := d.generator(vocabulary)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := Parse(text); err != nil || !reflect.DeepEqual(parsed, spec) {
			t.Fatalf("%s is read as %+v, %v", text, parsed, err)
		}
		kinds := map[string]*Kind{}
		for _, k := range spec.mix() {
			kinds[k.Name] = &k
		}
		for range 20 {
			i := rapid.IntRange(0, 1e6).Draw(t, "i")
			r := g.Request(i)
			if !reflect.DeepEqual(r, again.Request(i)) {
				t.Fatalf("request %d of what was described differs", i)
			}
			k := kinds[r.Kind]
			if k == nil || r.Class != r.Tenant || (r.Tenant == "") != (len(spec.Tenants) == 0) {
				t.Fatalf("%+v", r)
			}
			if _, ok := spec.SLOs[r.Class]; !ok {
				t.Fatalf("class %q has no objective", r.Class)
			}
			if r.Output < 1 || r.Output > r.Cap || len(r.Prompt)+r.Output > spec.Longest() {
				t.Fatalf("%d tokens in, %d of %d out, longest %d", len(r.Prompt), r.Output, r.Cap, spec.Longest())
			}
			within := func(n int, of Range) {
				if n < of.Min || n > of.Max {
					t.Fatalf("%d, not in %+v", n, of)
				}
			}
			if (r.System < 0) != (r.SystemTokens == 0) {
				t.Fatalf("system prompt %d of %d tokens", r.System, r.SystemTokens)
			}
			if r.System >= 0 {
				within(r.SystemTokens, k.SystemTokens)
				within(len(r.Prompt)-r.SystemTokens, k.TailTokens)
			} else {
				within(len(r.Prompt), k.UniqueTokens)
			}
			switch o := k.Output; {
			case o.Cap != nil:
				within(r.Cap, *o.Cap)
			case o.Tokens != nil:
				within(r.Output, *o.Tokens)
			default:
				within(r.Output, Range{Min: o.Fixed, Max: o.Fixed})
			}
		}
	})
}

// Kinds and tenants have their shares, each whatever the other is.
func TestShares(t *testing.T) {
	const n = 20000
	of := func(name string, key func(*Request) string) map[string]float64 {
		g, out := generator(t, name, 11), map[string]float64{}
		for i := range n {
			r := g.Request(i)
			out[key(&r)] += 100.0 / n
		}
		return out
	}
	near := func(got, want map[string]float64) {
		t.Helper()
		for k, p := range want { // five standard deviations
			if math.Abs(got[k]-p) > 5*math.Sqrt(p*(100-p)/n) {
				t.Errorf("%s has %.2f %% of the requests, want %v", k, got[k], p)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	near(of("admitctl", func(r *Request) string { return r.Kind }), map[string]float64{"short": 70, "long": 30})
	near(of("elastic-mixed", func(r *Request) string { return r.Tenant + " " + r.Class }), map[string]float64{"gold gold": 20, "standard standard": 50, "batch batch": 30})
}

// A change of the mixture leaves what requests of a kind are like alone, and so do tenants.
func TestMixturesHaveDrawsOfTheirOwn(t *testing.T) {
	pilot, mixed := generator(t, "elastic-pilot", 9), generator(t, "elastic-mixed", 9)
	for i := range 200 {
		a, b := pilot.Request(i), mixed.Request(i)
		b.Tenant, b.Class = "", ""
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("request %d: %d and %d tokens", i, len(a.Prompt), len(b.Prompt))
		}
	}
}

func TestInvalidMixtures(t *testing.T) {
	text := func(name string) string {
		b, err := Text(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	admitctl, mixed := text("admitctl"), text("elastic-mixed")
	for _, c := range []struct{ in, old, new, want string }{
		{admitctl, "name: short", "name: ''", "kinds[0].name is empty"},
		{admitctl, "name: short", "name: long", "kinds[1].name is long, as that of another"},
		{admitctl, "share: 30", "share: 0", "kinds[1].share (of long) is 0"},
		{admitctl, "share: 30", "share: .inf", "kinds[1].share (of long) is +Inf"},
		{admitctl, "share: 30", "share: .nan", "kinds[1].share (of long) is NaN"},
		{admitctl, "share: 30", "shares: 30", "shares"},
		{admitctl, "{fixed: 256}", "{fixed: -1}", "kinds[1].output.fixed is -1"},
		{admitctl, "{fixed: 256}", "{fixed: 1, tokens: {min: 1, max: 2}}", "kinds[1].output has more than one"},
		{admitctl, "{fixed: 256}", "{tokens: {min: 3, max: 2}}", "kinds[1].output.tokens is 3 to 2"},
		{admitctl, "{fixed: 256}", "{tokens: {min: 1, max: 2, sigma: -1}}", "kinds[1].output.tokens has mu 0 and sigma -1"},
		{admitctl, "{fixed: 256}", "{fixed: 1, realised_ratio: 0.5}", "kinds[1].output.realised_ratio"},
		{admitctl, "share: 30", "share: 30\n    shared_ratio: 0.5", "kinds[1].system_prompts is 0"},
		{admitctl, "share: 30", "share: 30\n    class: slow", `requests are of class "slow", which slos does not have`},
		{admitctl, "kinds:", "unique_tokens: {min: 1, max: 1}\nkinds:", "with kinds, the keys of prompts and output belong to each of them"},
		{mixed, "name: gold", "name: batch", "tenants[2].name is batch, as that of another"},
		{mixed, "share: 20", "share: -20", "tenants[0].share (of gold) is -20"},
		{mixed, "weight: 4", "weight: -4", "tenants[0].weight (of gold) is -4"},
		{mixed, "class: gold", "class: golden", `requests are of class "golden", which slos does not have`},
		{mixed, "class: gold #", "#", `requests are of class "", which slos does not have`},
		{mixed, "  batch: {", "  nobody: {ttft: 1s}\n  batch: {", `slos has class "nobody", but requests are only of "batch, gold, standard"`},
		{mixed, "{ttft: 600ms, e2e: 5s}", "{ttft: -600ms}", `slos of class "gold" are ttft -600ms`},
		{mixed, "{ttft: 600ms, e2e: 5s}", "{}", "not all 0"},
		{mixed, "{ttft: 600ms, e2e: 5s}", "{itl: 5s}", "itl"},
	} {
		changed := strings.Replace(c.in, c.old, c.new, 1)
		if changed == c.in {
			t.Errorf("%s is not there", c.old)
		}
		if _, err := Parse([]byte(changed)); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
	if _, err := Parse([]byte(`{"name": "x", "unique": 1}`)); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "unique") {
		t.Error(err)
	}
}
