package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/mock"
)

// Ten thousand requests in an engine that promises more than it has, most of them cancelled at some moment: each has one
// terminal event, and the engine is as empty after as before.
func TestCancelsGiveEverythingBack(t *testing.T) {
	const n = 10_000
	r := start(t, func(c *worker.Config, m *mock.Config) {
		c.StepSample, c.KVOvercommit = 1<<30, 3
		m.StepBase = 50 * time.Microsecond
		m.Sequences, m.KVCells, m.ContextTokens = 32, 1024, 512
	})
	rng := rand.New(rand.NewPCG(3, 4))
	var items []schema.DispatchItem
	var ids []schema.RequestID
	accepted, open := 0, 0
	for accepted < n {
		for len(items) < 32 {
			req := newRequest(t, make([]int32, 1+rng.IntN(200)), int32(1+rng.IntN(200)))
			req.Sampling.Seed = rng.Uint64()
			items = append(items, item(t, req, 1))
			ids = append(ids, req.ID)
		}
		full := items[:0]
		verdicts := r.dispatch(1, items...)
		rest := ids[:0]
		for i, v := range verdicts {
			switch v {
			case schema.VerdictAccepted:
				accepted++
				if rng.IntN(5) > 0 {
					if err := r.client.PublishCancel(&schema.Cancel{Request: ids[i], Reason: schema.CancelDisconnect}); err != nil {
						t.Fatal(err)
					}
				}
			case schema.VerdictFull:
				full, rest = append(full, items[i]), append(rest, ids[i])
			default:
				t.Fatalf("verdict %s", v)
			}
		}
		if len(full) == len(items) {
			open++ // nothing fits now: the next dispatch asks again
			runtime.Gosched()
		}
		items, ids = full, rest
	}
	r.wait("the end of all", func() bool {
		return r.count(schema.Finished)+r.count(schema.Cancelled)+r.count(schema.Failed) >= accepted
	})
	r.idle()
	if n := r.metrics()["cadence_worker_preemptions_total"]; n < 10 {
		t.Errorf("%v preemptions: the load is too light", n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	terminal := map[schema.RequestID]int{}
	for i := range r.events {
		if e := &r.events[i]; e.Type.Terminal() {
			terminal[e.Request]++
		}
	}
	if len(terminal) != accepted || r.count(schema.Failed) > 0 {
		t.Errorf("%d of %d requests ended, %d failed", len(terminal), accepted, r.count(schema.Failed))
	}
	for id, n := range terminal {
		if n != 1 {
			t.Errorf("%s ended %d times", id, n)
		}
	}
	t.Logf("%d finished, %d cancelled, %d preemptions, %d dispatches met a full worker", r.count(schema.Finished), r.count(schema.Cancelled), r.count(schema.Preempted), open)
}

// Requests of 500 prompt and 8 output tokens through dispatch, engine at no cost, tokens and stored events, with 32 in
// the worker at once: requests/s is 10⁹/(ns/op).
//
//	go test -run xxx -bench Requests -benchtime 20000x ./worker
func BenchmarkRequests(b *testing.B) {
	for _, size := range []int{1, 8} {
		b.Run(fmt.Sprintf("dispatch-of-%d", size), func(b *testing.B) { benchmarkRequests(b, size) })
	}
}

func benchmarkRequests(b *testing.B, size int) {
	r := newRig(b)
	ends := make(chan struct{}, 1<<16)
	if _, err := r.client.SubscribeChunks("i2", func(c *schema.Chunk) {
		if c.Finish != nil {
			ends <- struct{}{}
		}
	}); err != nil {
		b.Fatal(err)
	}
	r.run(func(c *worker.Config, m *mock.Config) {
		c.StepSample = 16
		m.Sequences, m.KVCells, m.ContextTokens = 64, 1<<20, 4096
	})
	prompt := make([]int32, 500)
	for i := range prompt {
		prompt[i] = int32(i * 7)
	}
	w := r.w.ID()
	slots := make(chan struct{}, 32)
	for range cap(slots) {
		slots <- struct{}{}
	}
	go func() {
		for range ends {
			slots <- struct{}{}
		}
	}()
	defer close(ends)
	b.ReportAllocs()
	b.ResetTimer()
	start := cpu(b)
	for n := 0; n < b.N; {
		var items []schema.DispatchItem
		for len(items) < size && n < b.N {
			<-slots
			req := newRequest(b, prompt, 8)
			req.Ingress = "i2"
			items = append(items, item(b, req, 1))
			n++
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		reply, err := r.client.Dispatch(ctx, w, &schema.Dispatch{Pool: "p", Epoch: 1, Items: items})
		cancel()
		if err != nil {
			b.Fatal(err)
		}
		for _, v := range reply.Verdicts {
			if v != schema.VerdictAccepted {
				b.Fatalf("verdict %s", v)
			}
		}
	}
	for range cap(slots) {
		<-slots
	}
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-start).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
