package peer

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/workload"
)

// journal is what the scripted servers were asked, in order.
type journal struct {
	mu      sync.Mutex
	prompts map[string][]string // server → prompts
	order   []string            // of servers, without repetitions
}

// scripted answers with as many tokens as asked, two in each event, and counters of a prefix cache.
func scripted(t *testing.T, name string, j *journal) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if r.URL.Path == "/metrics" {
			n := len(j.prompts[name])
			fmt.Fprintf(w, "# HELP x\n%s{pool=\"p\"} %d\n%s{pool=\"p\"} %d\n%s_more 1e9\n", "cadence_worker_prompt_tokens_total", 8*n, "cadence_worker_cached_tokens_total", 2*n, "cadence_worker_prompt_tokens_total")
			return
		}
		var body struct {
			Prompt    []int32 `json:"prompt"`
			MaxTokens int     `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		j.prompts[name] = append(j.prompts[name], fmt.Sprint(body.Prompt))
		if n := len(j.order); n == 0 || j.order[n-1] != name {
			j.order = append(j.order, name)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range body.MaxTokens / 2 {
			fmt.Fprint(w, `data: {"choices":[{"index":0,"text":"ab"}]}`+"\n\n")
		}
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", len(body.Prompt), body.MaxTokens)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// Both servers get the same requests in turns A B B A, in a closed and in an open loop.
func TestPairs(t *testing.T) {
	j := &journal{prompts: map[string][]string{}}
	a, b := scripted(t, "a", j), scripted(t, "b", j)
	o := DefaultOptions()
	o.Blocks, o.Requests, o.OpenLength, o.Timeout = 2, 6, 200*time.Millisecond, 10*time.Second
	o.Log = slog.New(slog.DiscardHandler)
	r := &engineRun{o: &o, report: &Report{}}
	var err error
	if r.ours, err = newSide("a", a.URL, "default", "", o.Timeout); err != nil {
		t.Fatal(err)
	}
	r.ours.ops = strings.TrimPrefix(a.URL, "http://")
	theirs, err := newSide("b", b.URL, "default", greedy, o.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	spec := &workload.Spec{Name: "short", UniqueTokens: workload.Range{Min: 8, Max: 8}, Output: workload.Output{Fixed: 6}}
	g, err := workload.New(spec, workload.Vocabulary{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.closed(t.Context(), g, theirs, 3)
	if err != nil {
		t.Fatal(err)
	}
	p := &m.Ours.Pooled
	if p.Requests != 12 || p.Complete != 12 || p.OutputTokens != 72 || p.PromptTokens != 96 || p.CachedTokens != 24 || p.CachedRatio != 0.25 || p.Length <= 0 {
		t.Fatalf("%+v", p)
	}
	if len(m.Theirs.Blocks) != 2 || m.Theirs.Pooled.CachedRatio != 0 || len(m.Ratios.OutputRate.All) != 2 || m.Ratios.OutputRate.Min <= 0 {
		t.Fatalf("%+v", m)
	}
	if got := strings.Join(j.order, ""); got != "aba" { // A B, B A: neighbours of one server count once
		t.Fatal(got)
	}
	slices.Sort(j.prompts["a"])
	slices.Sort(j.prompts["b"])
	if !slices.Equal(j.prompts["a"], j.prompts["b"]) || len(slices.Compact(j.prompts["a"])) != 12 {
		t.Fatalf("%d and %d prompts, or not the same or not unique", len(j.prompts["a"]), len(j.prompts["b"]))
	}
	m, err = r.open(t.Context(), g, theirs, 100)
	if err != nil {
		t.Fatal(err)
	}
	if m.Rate != 100 || m.OpenLength != 200*time.Millisecond || m.Ours.Pooled.Complete == 0 || m.Ours.Pooled.Requests != m.Theirs.Pooled.Requests {
		t.Fatalf("%+v", m)
	}
	if rate := r.openRate(m); rate <= 0 || rate > 100 {
		t.Fatal(rate)
	}
	a.Close()
	r.ours.ops = ""
	if _, err := r.closed(t.Context(), g, theirs, 1); err == nil || !strings.Contains(err.Error(), "a answered none of 6 requests") {
		t.Fatal(err)
	}
}
