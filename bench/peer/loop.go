package peer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/workload"
)

// side is one of the servers that are compared.
type side struct {
	name   string
	client *load.Client
	model  string
	extra  string // of each request's body
	ops    string // host:port of counters of its prefix cache; empty: only usage tells
}

// newSide returns a side that sends to a server. Every request has a connection of its own: llama-server closes one after a
// stream although it says that it keeps it, and a request that meets that moment is lost.
func newSide(name, url, model, extra string, timeout time.Duration) (*side, error) {
	cfg := load.DefaultClientConfig()
	cfg.URL, cfg.Timeout, cfg.MaxIdle = url, timeout, 0
	client, err := load.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	return &side{name: name, client: client, model: model, extra: extra}, nil
}

func (s *side) request(g *workload.Generator, block string, i int) *load.Request {
	r := g.Request(i)
	return request(&r, s.model, block, s.extra)
}

// closed sends requests 0 … n-1 of a generator, so many at a time, each as soon as another is answered.
func (s *side) closed(ctx context.Context, g *workload.Generator, block string, concurrency, n int) (sample, error) {
	reqs := make([]*load.Request, n)
	for i := range reqs { // drawing takes CPU time that would be the server's
		reqs[i] = s.request(g, block, i)
	}
	out := sample{records: make([]*load.Record, n)}
	before, err := s.found(ctx)
	if err != nil {
		return out, err
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range min(concurrency, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				out.records[i] = s.client.Do(ctx, reqs[i])
			}
		})
	}
	wg.Wait()
	out.length = time.Since(begin)
	return out, s.finish(ctx, &out, before)
}

// open sends requests at the given times, whatever the server does. Latencies count from those times.
func (s *side) open(ctx context.Context, g *workload.Generator, block string, seed uint64, rate float64, length, drain time.Duration) (sample, error) {
	var out sample
	before, err := s.found(ctx)
	if err != nil {
		return out, err
	}
	var mu sync.Mutex
	sum, err := load.Run(ctx, load.Plan{
		Client: s.client, Arrivals: arrival.Poisson{}.Times(seed, rate, length), Drain: drain,
		Next: func(i int) *load.Request { return s.request(g, block, i) },
		Sink: func(r *load.Record) {
			mu.Lock()
			defer mu.Unlock()
			out.records = append(out.records, r)
		},
	})
	if err != nil {
		return out, err
	}
	out.length = sum.Length
	return out, s.finish(ctx, &out, before)
}

// found reads the counters of the prefix cache, if there are any.
func (s *side) found(ctx context.Context) (pipeline.Counters, error) {
	if s.ops == "" {
		return pipeline.Counters{}, nil
	}
	return pipeline.ReadCounters(ctx, s.ops)
}

// finish completes a block.
func (s *side) finish(ctx context.Context, out *sample, before pipeline.Counters) error {
	if err := s.check(ctx, *out); err != nil {
		return err
	}
	after, err := s.found(ctx)
	out.found = after.Less(before)
	return err
}

// check returns an error if nothing of a block was answered: then there is nothing to measure.
func (s *side) check(ctx context.Context, b sample) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, r := range b.records {
		if r.Outcome == load.OK {
			return nil
		}
	}
	if len(b.records) == 0 {
		return fmt.Errorf("%w: no request arrived at %s: the rate or the length is too small", ErrConfig, s.name)
	}
	r := b.records[0]
	return fmt.Errorf("peer: %s answered none of %d requests; the first: %s, status %d: %s", s.name, len(b.records), r.Outcome, r.Status, r.Err)
}

func logBlock(log *slog.Logger, name string, s *side, b *Block) {
	log.Info("block", "of", name, "server", s.name, "complete", b.Complete, "requests", b.Requests, "length", b.Length.Round(time.Millisecond),
		"output_tokens_per_s", fmt.Sprintf("%.1f", b.OutputRate), "ttft_p50", b.TTFT.P50.Round(10*time.Microsecond), "itl_p50", b.ITL.P50.Round(10*time.Microsecond),
		"cached_tokens", b.CachedTokens)
}
