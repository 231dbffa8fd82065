package scheduler_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/scheduler"
	"github.com/cadence-slo/cadence/scheduler/lease"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/prometheus/client_golang/prometheus"
)

// The benchmarks run with
//
//	go test ./scheduler -run '^$' -bench . -benchmem
//
// over loopback, with the server, the publishers and a worker that answers at once in the same process: what they cost
// is in the numbers too. BenchmarkThroughput is 500-token requests from 32 publishers as fast as they go, from the
// publish to the stored finished event. BenchmarkLatency is 200 requests/s: from a request's publish to its arrival at the worker,
// which is everything between the ingress and the engine.
func BenchmarkThroughput(b *testing.B) {
	p := newBench(b, 64)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for k := range 32 {
		wg.Go(func() {
			for i := k; i < len(p.ids); i += 32 {
				p.publish(i)
			}
		})
	}
	p.wait()
	b.StopTimer()
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func BenchmarkLatency(b *testing.B) {
	p := newBench(b, 64)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	b.ResetTimer()
	for i := range p.ids {
		<-tick.C
		p.publish(i)
	}
	p.wait()
	b.StopTimer()
	d := make([]time.Duration, len(p.ids))
	for i := range d {
		d[i] = p.taken[i].Sub(p.sent[i])
	}
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(d[len(d)*99/100].Microseconds()), "p99-µs")
}

type bench struct {
	b      *testing.B
	client *streams.Client
	ids    []schema.RequestID
	bodies [][]byte
	index  map[schema.RequestID]int
	sent   []time.Time
	taken  []time.Time
	ended  chan struct{}
}

func newBench(b *testing.B, slots int32) *bench {
	srv := streamstest.Start(b)
	p := &bench{b: b, client: srv.Client(b), index: map[schema.RequestID]int{}, sent: make([]time.Time, b.N), taken: make([]time.Time, b.N), ended: make(chan struct{}, b.N)}
	prompt := make(schema.Tokens, 500)
	for i := range prompt {
		prompt[i] = int32(i * 300)
	}
	for i := range b.N {
		s, err := schema.NewID(time.Now(), rand.Reader)
		if err != nil {
			b.Fatal(err)
		}
		id := schema.RequestID(s)
		body, err := schema.Encode(&schema.Request{ID: id, Pool: pool, Model: model, Tenant: "t", Ingress: "i1", Kind: schema.KindChat, Received: 1,
			Prompt: prompt, MaxTokens: 8, Budget: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		p.ids, p.bodies = append(p.ids, id), append(p.bodies, body)
		p.index[id] = i
	}
	cfg := config()
	cfg.WorkerLostAfter, cfg.IngressLostAfter = time.Hour, time.Hour // one heartbeat is all that there is
	s, err := scheduler.New(cfg, srv.Client(b), lease.Sole{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func() { close(ready) }) }()
	<-ready
	p.worker(srv.Client(b), slots)
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return p
}

// worker answers and finishes at once.
func (p *bench) worker(c *streams.Client, slots int32) {
	events := c.NewEventWriter(context.Background(), 100_000, nil)
	p.b.Cleanup(func() {
		if err := events.Close(context.Background()); err != nil {
			p.b.Error(err)
		}
	})
	if _, err := c.ServeDispatch("w1", func(d *schema.Dispatch) *schema.DispatchReply {
		now := time.Now()
		reply := &schema.DispatchReply{Worker: "w1", Epoch: d.Epoch}
		for i := range d.Items {
			var q schema.Request
			if err := schema.Decode(d.Items[i].Request, &q); err != nil {
				p.b.Error(err)
			}
			reply.Verdicts = append(reply.Verdicts, schema.VerdictAccepted)
			p.taken[p.index[q.ID]] = now
			if err := events.Emit(&schema.Event{Type: schema.Finished, Time: now.UnixNano(), Source: "w1", Request: q.ID, Attempt: d.Items[i].Attempt,
				Worker: "w1", Pool: pool, Model: model, Reason: "stop"}); err != nil {
				p.b.Error(err)
			}
		}
		return reply
	}); err != nil {
		p.b.Fatal(err)
	}
	tail, _, err := p.client.TailEvents(p.b.Context(), 0, []schema.Type{schema.Finished}, func(*schema.Stored, uint64) { p.ended <- struct{}{} }, nil)
	if err != nil {
		p.b.Fatal(err)
	}
	p.b.Cleanup(tail.Stop)
	if err := c.PublishWorkerState(&schema.WorkerState{Worker: "w1", Pool: pool, Model: model, Interval: time.Hour, Slots: slots, PageTokens: 16}); err != nil {
		p.b.Fatal(err)
	}
}

func (p *bench) publish(i int) {
	p.sent[i] = time.Now()
	if _, err := p.client.PublishRequest(p.b.Context(), pool, p.ids[i], p.bodies[i]); err != nil {
		p.b.Error(err)
	}
}

func (p *bench) wait() {
	for range p.b.N {
		<-p.ended
	}
}
