//go:build llama && cgo

package llamabackend

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/grammar"
	"github.com/cadence-slo/cadence/worker/grammar/grammartest"
	"github.com/cadence-slo/cadence/worker/llama"
	"github.com/cadence-slo/cadence/worker/workertest"
)

// constrained are schemas with room for a random model to come to an end, most of the time.
var constrained = []string{
	grammar.Any,
	`{"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":8},"age":{"type":"integer","minimum":0,"maximum":150}},"required":["name","age"],"additionalProperties":false}`,
	`{"type":"array","items":{"enum":["red","green","blue"]},"minItems":2,"maxItems":4}`,
	`{"anyOf":[{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"integer","minimum":1,"maximum":99}},"required":["kind","r"]},{"type":"object","properties":{"kind":{"const":"none"}},"required":["kind"]}]}`,
	`{"$defs":{"node":{"type":"object","properties":{"v":{"type":"boolean"},"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/node"}]}},"required":["v","next"]}},"$ref":"#/$defs/node"}`,
	`{"type":"object","properties":{"when":{"type":"string","format":"date-time"},"id":{"type":"string","format":"uuid"}},"required":["when","id"]}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"boolean"},"c":{"type":["integer","null"],"minimum":-3,"maximum":3}}}`,
	`{"type":"number","minimum":0,"maximum":1}`,
	`{"type":"object","additionalProperties":{"type":"string","maxLength":3}}`,
	`{"type":"array","items":{"type":"array","items":{"type":"string","maxLength":4},"maxItems":2},"maxItems":3}`,
	`{"type":"string","maxLength":12}`,
}

func gbnf(t *testing.T, text string) string {
	t.Helper()
	g, err := grammar.Compile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// said is what a client sees of tokens, and whether they ended by themselves.
func said(t *testing.T, b *Backend, ids []int32) (text string, ended bool) {
	t.Helper()
	var raw []byte
	for _, id := range ids {
		if b.EOG(id) {
			return string(raw), true
		}
		var err error
		if raw, err = b.AppendPiece(raw, id); err != nil {
			t.Fatal(err)
		}
	}
	return string(raw), false
}

// Whatever the sampling, what ends is JSON that satisfies the schema, and what does not end begins JSON; requests without
// a grammar beside them say what they say alone.
func TestGrammarsHold(t *testing.T) {
	b := open(t, func(c *Config) { c.Cells = 1 << 14 })
	free := workertest.Request{Prompt: tokens(t, b, "Once"), MaxNew: 40, IgnoreEOS: true}
	alone := workertest.Generate(t, b, []workertest.Request{free})[0]
	free.Forced = alone
	var reqs []workertest.Request
	var schemas []string // of reqs
	for i, s := range constrained {
		for k, p := range []schema.Sampling{{}, {Temperature: 1}, {Temperature: 1.5, TopK: 40, TopP: 0.9, PresencePenalty: 1}} {
			p.Seed = uint64(10*i + k)
			schemas = append(schemas, s)
			reqs = append(reqs, workertest.Request{Prompt: tokens(t, b, fmt.Sprintf("Give me %d as JSON:", i)), MaxNew: 220, Sampling: p, Grammar: gbnf(t, s)})
		}
	}
	whole := 0
	for first := 0; first < len(reqs); first += 15 {
		part := slices.Clip(reqs[first:min(first+15, len(reqs))])
		out := workertest.Generate(t, b, append(part, free))
		for i := range part {
			text, ended := said(t, b, out[i])
			if !ended {
				if len(out[i]) != 220 || !grammartest.Prefix(text) {
					t.Errorf("%d tokens do not begin JSON: %q", len(out[i]), text)
				}
				continue
			}
			whole++
			if err := grammartest.Valid(schemas[first+i], text); err != nil {
				t.Errorf("%s\n%s: %v", schemas[first+i], text, err)
			}
		}
		same := 0
		for i, id := range out[len(part)] {
			if id == alone[i] {
				same++
			}
		}
		if same < 38 {
			t.Errorf("%d of 40 tokens beside grammars are as alone", same)
		}
	}
	t.Logf("%d of %d came to an end", whole, len(reqs))
	if whole < len(reqs)*2/3 {
		t.Errorf("only %d of %d came to an end", whole, len(reqs))
	}
}

// A request that is preempted, again and again, is where it was in its grammar when it goes on, whatever the chunks that bring
// it there.
func TestGrammarGoesOnAfterPreemptions(t *testing.T) {
	b := open(t, nil)
	long := []string{constrained[0], constrained[1], constrained[4], constrained[5], constrained[8], constrained[9]}
	for _, chunk := range []int{2, 3, 7, 16} {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			cfg := workertest.PlannerConfig(b)
			cfg.PageTokens, cfg.KVPages, cfg.MaxBatch, cfg.ChunkTokens, cfg.Overcommit = 4, 44, 16, chunk, 8
			cfg.PrefixCache = chunk%2 == 0
			d := workertest.NewDriver(t, b, cfg)
			var schemas []string // by request
			for i := range 4 * len(long) {
				s := long[i%len(long)]
				schemas = append(schemas, s)
				d.Add(t, workertest.Request{Prompt: tokens(t, b, fmt.Sprintf("%d as JSON:", i)), MaxNew: 160, Grammar: gbnf(t, s),
					Sampling: schema.Sampling{Temperature: 1, FrequencyPenalty: 0.5, Seed: uint64(100*chunk + i)}})
			}
			for d.Step(t) {
			}
			whole := 0
			for i, s := range schemas {
				out, err := d.Output(i)
				if err != nil {
					t.Errorf("request %d: %v", i, err)
					continue
				}
				text, ended := said(t, b, out)
				if !ended {
					if len(out) != 160 || !grammartest.Prefix(text) {
						t.Errorf("%d tokens do not begin JSON: %q", len(out), text)
					}
					continue
				}
				whole++
				if err := grammartest.Valid(s, text); err != nil {
					t.Errorf("%s\n%s: %v", s, text, err)
				}
			}
			t.Logf("%d preemptions, %d of %d came to an end", d.Preempted, whole, len(schemas))
			if d.Preempted < 8 || whole < len(schemas)/2 {
				t.Error("not the test that it should be")
			}
		})
	}
}

// A request that goes on elsewhere is where it was in its grammar.
func TestGrammarGoesOn(t *testing.T) {
	b := open(t, nil)
	r := workertest.Request{Prompt: tokens(t, b, "JSON:"), MaxNew: 60, Sampling: schema.Sampling{Temperature: 1, Seed: 5},
		Grammar: gbnf(t, constrained[1]), Logprobs: 3}
	whole := workertest.Generate(t, b, []workertest.Request{r})[0]
	if _, ended := said(t, b, whole); !ended || len(whole) < 12 {
		t.Fatalf("%d tokens: not the test that it should be", len(whole))
	}
	for _, at := range []int{1, len(whole) / 2, len(whole) - 1} {
		rest := r
		rest.Output, rest.MaxNew = whole[:at], 60-at
		if got := workertest.Generate(t, b, []workertest.Request{rest})[0]; !slices.Equal(got, whole[at:]) {
			t.Errorf("from token %d: %v, want %v", at, got, whole[at:])
		}
	}
	bad := r
	bad.Output = []int32{'x'}
	d := workertest.NewDriver(t, b, workertest.PlannerConfig(b))
	d.Add(t, bad)
	for d.Step(t) {
	}
	if _, err := d.Output(0); !errors.Is(err, llama.ErrNotAllowed) {
		t.Errorf("output that is not the grammar's: %v", err)
	}
	none := r
	none.Grammar = "root ::= ("
	d.Add(t, none, r)
	for d.Step(t) {
	}
	if _, err := d.Output(1); !errors.Is(err, llama.ErrGrammar) {
		t.Errorf("no grammar: %v", err)
	}
	if got, err := d.Output(2); err != nil || !slices.Equal(got, whole) {
		t.Errorf("beside it: %v, %v", got, err)
	}
}

// Log-probabilities are those of the model's logits, before penalties and whatever the temperature.
func TestLogprobsAreTheModels(t *testing.T) {
	b := open(t, nil)
	d := workertest.NewDriver(t, b, workertest.PlannerConfig(b))
	seen := 0
	d.OnRow = func(e *batch.Entry, row, request, index int, token int32) {
		if request == 0 {
			return
		}
		seen++
		logits, err := b.context.Logits(b.last[row])
		if err != nil {
			t.Fatal(err)
		}
		top, sum := float64(slices.Max(logits)), 0.0
		for _, l := range logits {
			sum += math.Exp(float64(l) - top)
		}
		naive := func(id int32) float64 { return float64(logits[id]) - top - math.Log(sum) }
		l := &b.wishes[e.Seq].told
		if len(l.Chosen) != 1 || len(l.Top) != 5 || len(l.TopLogprobs) != 5 {
			t.Fatalf("%+v", l)
		}
		if diff := math.Abs(float64(l.Chosen[0]) - naive(token)); diff > 1e-5 {
			t.Errorf("token %d: %v, naive %v", token, l.Chosen[0], naive(token))
		}
		order := make([]int32, len(logits))
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(x, y int32) int {
			switch {
			case logits[x] > logits[y]:
				return -1
			case logits[x] < logits[y]:
				return 1
			}
			return 0
		})
		for i, id := range l.Top {
			if id != order[i] || math.Abs(float64(l.TopLogprobs[i])-naive(id)) > 1e-5 {
				t.Errorf("place %d: token %d with %v, want %d with %v", i, id, l.TopLogprobs[i], order[i], naive(order[i]))
			}
		}
	}
	prompt := tokens(t, b, "Once upon a time")
	d.Add(t,
		workertest.Request{Prompt: prompt, MaxNew: 20, IgnoreEOS: true},
		workertest.Request{Prompt: prompt, MaxNew: 20, IgnoreEOS: true, Logprobs: 6},
		workertest.Request{Prompt: prompt, MaxNew: 20, IgnoreEOS: true, Logprobs: 6, Sampling: schema.Sampling{Temperature: 1.2, RepetitionPenalty: 1.5, FrequencyPenalty: 1, Seed: 3}})
	for d.Step(t) {
	}
	if seen != 40 {
		t.Errorf("%d tokens", seen)
	}
}
