package profile

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func open(t testing.TB, name string) *Profile {
	t.Helper()
	p, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEmbedded(t *testing.T) {
	if got := strings.Join(Embedded(), " "); got != "admitctl elasticserve mock seed-laptop" {
		t.Fatal(got)
	}
	for _, name := range Embedded() {
		if p := open(t, name); p.Name != name || p.Source == "" {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, err := Open("nobody"); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), "seed-laptop") {
		t.Error(err)
	}
}

// The profiles say what their sources measured.
func TestFigures(t *testing.T) {
	seed, elastic, mock := open(t, "seed-laptop"), open(t, "elasticserve"), open(t, "mock")
	ms := func(x float64) time.Duration { return time.Duration(x * 1e6) }
	for _, c := range []struct {
		p                         *Profile
		prefill, decodes, context int
		want                      time.Duration
	}{
		{seed, 1641, 0, 1641, time.Second},
		{seed, 0, 1, 500, ms(12.3)},
		{seed, 0, 4, 2000, ms(19.5)},
		{seed, 0, 6, 2000, ms(29.2)}, // half-way between 4 and 8
		{seed, 0, 16, 2000, ms(50.9)},
		{seed, 0, 24, 2000, ms(62.9)}, // extrapolated
		{seed, 0, 0, 0, 0},
		{elastic, 256, 0, 256, ms(59.82584)},
		{elastic, 0, 1, 1, ms(41.063)},
		{elastic, 0, 32, 9999, ms(41.063)},
		{mock, 512, 0, 512, ms(138)},
		{mock, 0, 64, 999, ms(26)},
		{mock, 8, 2, 999, ms(12.5)},
	} {
		if got := c.p.Step(c.prefill, c.decodes, c.context); got != c.want {
			t.Errorf("%s, %d of prefill, %d decode: %v, want %v", c.p.Name, c.prefill, c.decodes, got, c.want)
		}
	}
	// 32 sequences, each 256 of prefill and 64 tokens: 64/32 decode steps and what one prefill adds to a step.
	request := 2*elastic.Step(0, 32, 0) + elastic.Step(256, 32, 0) - elastic.Step(0, 32, 0)
	if rate := 1 / request.Seconds(); rate < 9.5 || rate > 10.5 {
		t.Errorf("elasticserve does %.2f requests/s", rate)
	}
}

func draw(t *rapid.T) *Profile {
	ns := rapid.Float64Range(1, 1e9)
	p := &Profile{Version: Version, Name: "x", Source: "drawn", Limits: Limits{KVTokens: 1024, PageTokens: 16, Sequences: 32, MaxBatch: 16, BatchTokens: 64, ChunkTokens: 32, ContextTokens: 512}}
	p.Cost = Cost{Base: ns.Draw(t, "base"), Prefill: ns.Draw(t, "prefill"), PrefillToken: ns.Draw(t, "token"), ContextToken: ns.Draw(t, "context")}
	at, sum := 1, 0.0
	for range rapid.IntRange(0, 6).Draw(t, "points") {
		sum += ns.Draw(t, "more")
		p.Cost.Decode = append(p.Cost.Decode, Point{at, sum})
		at += rapid.IntRange(1, 9).Draw(t, "gap")
	}
	if rapid.Bool().Draw(t, "fitted") {
		p.Fit = &Fit{Steps: 3, R2: 0.5}
	}
	return p
}

// With a table that rises, more of anything never takes less time; the table's own points come back.
func TestStepIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t)
		n := rapid.IntRange(0, 200)
		a, b, c := n.Draw(t, "prefill"), n.Draw(t, "decodes"), n.Draw(t, "context")
		step := p.Step(a, b, c)
		if p.Step(a+1, b, c) < step || p.Step(a, b+1, c) < step || p.Step(a, b, c+1) < step {
			t.Fatalf("less for more than %d, %d, %d", a, b, c)
		}
		for _, d := range p.Cost.Decode {
			got, want := p.Step(0, d.Batch, 0), time.Duration(p.Cost.Base+d.Time+0.5)
			if diff := got - want; diff < -1 || diff > 1 {
				t.Fatalf("at %d: %v, want %v", d.Batch, got, want)
			}
		}
	})
}

func TestEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t)
		b, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("%+v, %v, want %+v", got, err, p)
		}
	})
}

func TestDecodeNamesTheKey(t *testing.T) {
	good, err := open(t, "seed-laptop").Encode()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string][2]string{
		"version":               {`"version": 1`, `"version": 2`},
		"name":                  {`"name": "seed-laptop"`, `"name": ""`},
		"max_batch":             {`"max_batch": 24`, `"max_batch": 0`},
		"page_tokens":           {`"page_tokens": 16`, `"page_tokens": 0`},
		"kv_pages":              {`"kv_tokens": 16384`, `"kv_tokens": 7`},
		"step.base_ns":          {`"base_ns": 0`, `"base_ns": -1`},
		"step.prefill_ns":       {`"prefill_ns": 0`, `"prefill_ns": -1`},
		"step.prefill_token_ns": {`"prefill_token_ns": 609`, `"prefill_token_ns": 609000000000`},
		"step.context_token_ns": {`"context_token_ns": 0`, `"context_token_ns": -2`},
		"step.decode[0].batch":  {`"batch": 1,`, `"batch": 2,`},
		"step.decode[2].batch":  {`"batch": 8`, `"batch": 4`},
		"step.decode[3].ns":     {`"ns": 50900000`, `"ns": -3`},
		"free":                  {`"prefill_token_ns": 609384.5216331505`, `"prefill_token_ns": 0`},
		"basement":              {`"base_ns"`, `"basement"`},
		"more behind":           {"\n}\n", "\n} {}"},
	} {
		text := strings.Replace(string(good), change[0], change[1], 1)
		if text == string(good) {
			t.Fatalf("%s: nothing to change", want)
		}
		if _, err := Decode([]byte(text)); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	bad := &Profile{Name: "x"}
	if _, err := bad.Encode(); !errors.Is(err, ErrProfile) {
		t.Error(err)
	}
}

// BenchmarkStep is what a simulated step's time costs: go test -bench Step ./predictor/profile.
func BenchmarkStep(b *testing.B) {
	p := open(b, "seed-laptop")
	b.ReportAllocs()
	n := 0
	var sum time.Duration
	for b.Loop() {
		n++
		sum += p.Step(n&255, n&31, n)
	}
	if sum == 0 {
		b.Fatal("free")
	}
}
