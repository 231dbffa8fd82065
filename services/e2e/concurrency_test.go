package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/worker/mock"
)

// all sends requests at once and returns their records in order.
func all(ctx context.Context, c *load.Client, requests []*load.Request) []*load.Record {
	records := make([]*load.Record, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { records[i] = c.Do(ctx, r) })
	}
	wg.Wait()
	return records
}

// The text of each of 200 concurrent streams is that of the same request run alone, and what the mock's definition says.
func TestConcurrentStreamsAreIndependent(t *testing.T) {
	const n = 200
	s := startUp(t, "--backend", "mock", "--mock-step", "1ms", "--mock-step-per-seq", "20us", "--mock-prefill-rate", "0", "--sequences", "64")
	c := s.client()
	jobs := makeJobs(n, 8, 24)
	requests := make([]*load.Request, n)
	alone := make([]*load.Record, n)
	for i, j := range jobs {
		requests[i] = j.request(t, fmt.Sprintf("stream-%d", i))
		alone[i] = c.Do(t.Context(), requests[i])
		if err := j.complete(alone[i]); err != nil {
			t.Fatalf("alone, %d: %v", i, err)
		}
		if want := j.answer(t, mock.FreeConfig(), j.tokens); alone[i].Text != want {
			t.Fatalf("alone, %d: %s", i, firstDifference(alone[i].Text, want))
		}
	}
	for i, r := range all(t.Context(), c, requests) {
		if err := jobs[i].complete(r); err != nil {
			t.Errorf("%d: %v", i, err)
		} else if r.Text != alone[i].Text {
			t.Errorf("%d: %s", i, firstDifference(r.Text, alone[i].Text))
		}
	}
}

// Streams of llama.cpp, 32 at a time, complete, and say what the same requests say alone. Batches of other sizes round
// differently, so that a near-tie may fall the other way; from there on an answer is another. Tokens are compared up
// to and with the first that differs.
func TestConcurrentStreamsOnLlama(t *testing.T) {
	const n, tokens = 32, 32
	s := startUp(t, "--backend", "llama", "--model", "synth:tiny", "--sequences", fmt.Sprint(n))
	c, log, model := s.client(), s.log(), s.model()
	requests := make([]*load.Request, n)
	for i := range requests {
		body, err := json.Marshal(map[string]any{
			"model": model, "messages": []map[string]string{{"role": "user", "content": fmt.Sprintf("Number %d: say something about the number %d.", i, i*i)}},
			"max_tokens": tokens, "temperature": 0, "ignore_eos": true, "stream": true, "stream_options": map[string]any{"include_usage": true},
		})
		if err != nil {
			t.Fatal(err)
		}
		requests[i] = &load.Request{Path: "/v1/chat/completions", Body: body, ClientID: fmt.Sprintf("llama-%d", i)}
	}
	alone := make([]*load.Record, n)
	for i, r := range requests {
		alone[i] = c.Do(t.Context(), r)
	}
	together := all(t.Context(), c, requests)
	ingress := map[string]schema.IngressID{}
	var events []*schema.Stored
	eventually(t, 10*time.Second, "events", func() (err error) { events, err = log.read(); return err })
	for _, e := range events {
		if e.Type == schema.Received {
			ingress[string(e.Request)] = e.Ingress
		}
	}
	compared, equal, differing, cached := 0, 0, 0, 0
	for i := range n {
		for _, r := range []*load.Record{alone[i], together[i]} {
			if r.Outcome != load.OK || r.Usage == nil || r.Usage.CompletionTokens != tokens {
				t.Fatalf("%d: %+v", i, r)
			}
		}
		cached += together[i].Usage.CachedTokens
		a, b := tokensOf(t, log.c, ingress, alone[i]), tokensOf(t, log.c, ingress, together[i])
		for k := range a {
			compared++
			if a[k] != b[k] {
				differing++
				t.Logf("request %d differs from token %d on: %d, alone %d", i, k, b[k], a[k])
				break
			}
			equal++
		}
		if same := fmt.Sprint(a) == fmt.Sprint(b); same && alone[i].Text != together[i].Text {
			t.Errorf("request %d: equal tokens, other text: %s", i, firstDifference(together[i].Text, alone[i].Text))
		}
	}
	if cached == 0 {
		t.Error("no usage tells of cached tokens, though every prompt came twice")
	}
	t.Logf("%d of %d tokens agree, %d of %d answers differ somewhere", equal, compared, differing, n)
	if float64(equal) < 0.99*float64(compared) {
		t.Errorf("%d of %d tokens agree, want 99 %%", equal, compared)
	}
}

// tokensOf returns the ids of an undisturbed answer's tokens, as TOKENS holds them.
func tokensOf(t testing.TB, c *streams.Client, ingress map[string]schema.IngressID, r *load.Record) []int32 {
	t.Helper()
	chunks, err := c.Chunks(context.Background(), ingress[r.RequestID], schema.RequestID(r.RequestID))
	if err != nil {
		t.Fatalf("tokens of %s: %v", r.RequestID, err)
	}
	var ids []int32
	for _, chunk := range chunks {
		if int(chunk.Index) != len(ids) || chunk.Attempt != 1 {
			t.Fatalf("tokens of %s: attempt %d, index %d after %d tokens", r.RequestID, chunk.Attempt, chunk.Index, len(ids))
		}
		ids = append(ids, chunk.IDs...)
	}
	if r.Usage == nil || len(ids) != r.Usage.CompletionTokens {
		t.Fatalf("TOKENS holds %d tokens of %s, usage %+v", len(ids), r.RequestID, r.Usage)
	}
	return ids
}
