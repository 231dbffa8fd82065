package load

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
)

func TestForms(t *testing.T) {
	q := &workload.Request{Index: 4, Prompt: []int32{0, 105, 105, 9}, System: 1, SystemTokens: 3, Cap: 20, Output: 7, Tenant: "acme", Class: "gold"}
	gold := map[string]record.SLO{"gold": {E2E: 1500 * time.Millisecond}}
	for _, c := range []struct {
		form         Form
		path, prompt string // as JSON
		max          float64
	}{
		{Form{Endpoint: Completions, Model: "a\"b\x01"}, "/v1/completions", `[0,105,105,9]`, 7},
		{Form{Endpoint: Completions, Text: true, Capped: true, Name: "run"}, "/v1/completions", `"ba baba baba cu"`, 20},
		{Form{Endpoint: Chat, Deadlines: gold, Extra: `,"top_k":1`}, "/v1/chat/completions",
			`[{"content":"ba baba baba","role":"system"},{"content":"cu","role":"user"}]`, 7},
	} {
		r := c.form.Request(q)
		var body map[string]any
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatalf("%s: %v", r.Body, err)
		}
		prompt := body["prompt"]
		if c.form.Endpoint == Chat {
			prompt = body["messages"]
		}
		text, err := json.Marshal(prompt)
		if err != nil || r.Path != c.path || string(text) != c.prompt || body["max_tokens"] != c.max || body["stream"] != true || body["model"] != c.form.Model ||
			(body["ignore_eos"] == true) == c.form.Capped || (body["top_k"] != nil) != (c.form.Extra != "") || r.Header["X-Tenant"] != "acme" {
			t.Errorf("%s %s %v", r.Path, r.Body, r.Header)
		}
		if want := map[bool]string{true: "1500"}[c.form.Deadlines != nil]; r.Header["X-SLO-E2E-Ms"] != want {
			t.Errorf("%v", r.Header)
		}
		if want := map[bool]string{true: "run-4"}[c.form.Name != ""]; r.ClientID != want {
			t.Errorf("%q", r.ClientID)
		}
	}
	every := &Form{Endpoint: Completions, Deadlines: map[string]record.SLO{"": {E2E: time.Second}}}
	if r := every.Request(q); r.Header["X-SLO-E2E-Ms"] != "1000" {
		t.Errorf("of a class without an objective of its own: %v", r.Header)
	}
	for class, want := range map[string]string{"": "", "gold": "", "guaranteed": "guaranteed", "best-effort": "best-effort"} {
		if r := (&Form{Endpoint: Completions}).Request(&workload.Request{Prompt: []int32{1}, Class: class}); r.Header["X-SLO-Class"] != want || want == "" && r.Header != nil {
			t.Errorf("%q: %v", class, r.Header)
		}
	}
}

// Every id has a word of its own, made of letters.
func TestWords(t *testing.T) {
	seen := map[string]int32{}
	for id := range int32(200000) {
		w := Word(id)
		if other, twice := seen[w]; twice {
			t.Fatalf("%q is of %d and %d", w, other, id)
		}
		if seen[w] = id; strings.Trim(w, consonants+vowels) != "" || len(w)%2 != 0 {
			t.Fatalf("%q", w)
		}
	}
}
