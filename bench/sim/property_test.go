package sim

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
	"pgregory.net/rapid"
)

// drawn is any configuration with short requests.
func drawn(t *rapid.T) Config {
	n := rapid.IntRange(1, 60).Draw(t, "requests")
	seed := rapid.Uint64().Draw(t, "seed")
	ms := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	type shape struct{ prompt, limit, output, share int }
	shapes := make([]shape, n)
	for i := range shapes {
		shapes[i] = shape{rapid.IntRange(1, 90).Draw(t, "prompt"), rapid.IntRange(1, 60).Draw(t, "cap"), 0, rapid.IntRange(0, 64).Draw(t, "shared")}
		shapes[i].output = rapid.IntRange(1, shapes[i].limit).Draw(t, "output")
	}
	b := batch.Config{
		PageTokens: rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "page"), Sequences: rapid.IntRange(1, 12).Draw(t, "sequences"), ContextTokens: rapid.IntRange(20, 200).Draw(t, "context"),
		Mode: rapid.SampledFrom([]batch.Mode{batch.Continuous, batch.Static, batch.FIFO}).Draw(t, "mode"), StaticWait: ms("static_wait", 50),
		Order:      rapid.SampledFrom([]batch.Order{batch.DecodeFirst, batch.PrefillFirst}).Draw(t, "order"),
		Overcommit: rapid.SampledFrom([]float64{1, 1.5, 4}).Draw(t, "overcommit"), ITLTarget: ms("itl_target", 20),
	}
	b.KVPages = rapid.IntRange(4, 40).Draw(t, "pages")*16/b.PageTokens + 1
	b.MaxBatch = rapid.IntRange(1, b.Sequences).Draw(t, "max_batch")
	b.BatchTokens = rapid.IntRange(b.MaxBatch, 64+b.MaxBatch).Draw(t, "batch_tokens")
	b.ChunkTokens = rapid.IntRange(1, b.BatchTokens).Draw(t, "chunk")
	b.PrefixCache = rapid.Bool().Draw(t, "cache")
	b.Contiguous = !b.PrefixCache && rapid.Bool().Draw(t, "contiguous")
	b.CacheOutput = b.PrefixCache && rapid.Bool().Draw(t, "cache_output")
	c := Config{
		Source: source(func(i int) workload.Request {
			s := shapes[i]
			p := prompt(i, s.prompt)
			copy(p, prompt(-1, min(s.share, len(p))))
			return workload.Request{Prompt: p, Cap: s.limit, Output: s.output, Class: []string{"", "guaranteed", "gold"}[i%3], Tenant: []string{"a", "b", "no name"}[i/3%3]}
		}),
		Arrivals: arrival.Poisson{}.Times(seed, rapid.Float64Range(1, 500).Draw(t, "rate"), math.MaxInt64), Requests: n, Drain: Forever, Seed: seed,
		Profile: engine(func(prefill, decodes, context int) time.Duration {
			return time.Millisecond + time.Duration(100*prefill+300*decodes+context)*time.Microsecond
		}),
		Workers: rapid.IntRange(1, 4).Draw(t, "workers"), Batch: b, ShareAll: rapid.Bool().Draw(t, "share_all"),
		Order: rapid.SampledFrom([]core.Order{nil, core.FCFS{}, core.SJF{}, core.EDF{}}).Draw(t, "queue"), MaxQueueWait: ms("max_queue_wait", 300),
		Deadlines: rapid.Bool().Draw(t, "deadlines"), OnDeadline: rapid.SampledFrom(onDeadline).Draw(t, "on_deadline"),
		SLOs:          map[string]record.SLO{"": {E2E: time.Second}, "guaranteed": {E2E: 200 * time.Millisecond, TTFT: ms("ttft", 100)}, "gold": {TTFT: ms("gold_ttft", 200)}},
		ClientTimeout: ms("client_timeout", 500), ReadTimeout: ms("read_timeout", 200),
		Latency: Latency{Request: ms("request", 3), Append: ms("append", 3), Dispatch: ms("dispatch", 3), Token: ms("token", 3)},
		Length:  time.Hour, KeepITL: true, CheckInvariants: true,
	}
	if rapid.Bool().Draw(t, "wrong") {
		factor := rapid.Float64Range(0.3, 3).Draw(t, "believed")
		c.Believed = engine(func(prefill, decodes, context int) time.Duration {
			return 1 + time.Duration(factor*float64(c.Profile.Step(prefill, decodes, context)))
		})
	}
	if rapid.Bool().Draw(t, "admission") {
		c.Admit = func(a *Arrival) Decision {
			for _, w := range a.Pool.Workers {
				for _, r := range w.Requests {
					if r.PrefillTokens < 0 || r.PrefillTokens > r.PromptTokens+r.OutputTokens || r.OutputTokens > r.CapTokens || r.Arrived > a.Now {
						t.Fatalf("%+v", r)
					}
				}
				if len(w.Requests) > 2*w.Slots || w.Idle != (w.StepLeft == 0) || w.Slow <= 0 {
					t.Fatalf("%+v", w)
				}
			}
			if a.Pool.Waiting < 0 || a.Pool.WaitingPromptTokens < a.Pool.Waiting || a.Pool.WaitingCapTokens < a.Pool.Waiting {
				t.Fatalf("%+v", a.Pool)
			}
			return Decision{Refuse: a.Pool.Waiting > 20}
		}
	}
	return c
}

// Under any configuration every request that was offered has one record that adds up, the log tells the same, and nothing is left.
func TestEveryRequestEndsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		var rows []record.Request
		c.Sink = func(r *record.Request) error {
			rows = append(rows, *r)
			return nil
		}
		var log bytes.Buffer
		c.Events = &log
		run, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(rows, func(a, b record.Request) int { return a.Index - b.Index })
		if len(rows) != c.Requests {
			t.Fatalf("%d records of %d requests", len(rows), c.Requests)
		}
		state, terminal := schema.NewState(), map[schema.RequestID]schema.Type{}
		if err := ReadLog(&log, func(e *schema.Stored) error {
			state.Apply(e)
			if e.Type.Terminal() {
				if terminal[e.Request] != "" {
					t.Fatalf("%s ended as %s and %s", e.Request, terminal[e.Request], e.Type)
				}
				terminal[e.Request] = e.Type
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(state.Requests)+len(state.Workers) > 0 {
			t.Fatalf("%d requests and %d workers are left", len(state.Requests), len(state.Workers))
		}
		cached := int64(0)
		for i := range rows {
			r := &rows[i]
			cached += int64(r.CachedTokens)
			w := c.Source.Request(i)
			ends := map[record.Outcome][]schema.Type{
				record.OK: {schema.Finished}, record.Shed: {schema.Failed, schema.Refused}, record.Timeout: {schema.Finished, schema.Cancelled, schema.Failed}, record.Error: {""},
			}[r.Outcome]
			if r.Outcome == record.Error && r.Reason == string(schema.FailedDeadline) {
				ends = []schema.Type{schema.Failed}
			}
			switch {
			case r.Index != i || !slices.Contains(ends, terminal[schema.RequestID(r.ID)]):
				t.Fatalf("%+v ended as %q", r, terminal[schema.RequestID(r.ID)])
			case r.Outcome == record.OK && (r.OutputTokens != min(w.Output, c.Batch.Longest()-len(w.Prompt)) || r.Queued < 0 || r.TTFT < r.Queued || r.E2E < r.TTFT || len(r.ITL) != r.OutputTokens-1):
				t.Fatalf("%+v, to be %+v", r, w)
			case r.Outcome == record.OK && r.E2E != r.TTFT+sum(r.ITL):
				t.Fatalf("%+v: the gaps are %v together", r, sum(r.ITL))
			case c.ClientTimeout > 0 && r.E2E > c.ClientTimeout && r.Outcome != record.Error:
				t.Fatalf("%+v: its client waits %v", r, c.ClientTimeout)
			case r.Reason == string(schema.FailedDeadline):
				slo := record.Objective(c.SLOs, r.Class)
				if c.OnDeadline != schema.OnDeadlineCancel || !c.Deadlines || r.Outcome == record.OK || slo == (record.SLO{}) || (r.OutputTokens > 0) != (r.Outcome == record.Error) {
					t.Fatalf("%+v with %q and %+v", r, c.OnDeadline, slo)
				}
			case r.Outcome == record.Error && (r.Reason != ReasonContext || len(w.Prompt) < c.Batch.Longest()):
				t.Fatalf("%+v", r)
			case r.CachedTokens >= r.PromptTokens:
				t.Fatalf("%+v", r)
			}
		}
		if run.CachedTokens < cached || run.CachedTokens > run.PromptTokens || !c.Batch.PrefixCache && run.CachedTokens > 0 {
			t.Fatalf("%d of %d tokens cached, by the records %d", run.CachedTokens, run.PromptTokens, cached)
		}
	})
}

func sum(d []time.Duration) (s time.Duration) {
	for _, x := range d {
		s += x
	}
	return s
}
