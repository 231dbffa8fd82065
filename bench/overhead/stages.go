package overhead

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// Stage is the time between two points in the life of a request: the median and the 99th percentile over requests.
type Stage struct {
	Name string        `json:"name"`
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
}

// life is when a request's events happened, ns UTC by one clock; 0 is not seen.
type life struct {
	received, admitted, accepted, dispatched, prefill, first, finished int64
	ttft, e2e                                                          time.Duration
}

// stageTimes are the stages of one life that has all its events.
var stageTimes = []struct {
	name string
	took func(*life) time.Duration
}{
	{"ingress: parse, tokenize, store in REQUESTS (received to admitted)", func(l *life) time.Duration { return time.Duration(l.admitted - l.received) }},
	{"REQUESTS to scheduler, accepted (after admitted; both run at once)", func(l *life) time.Duration { return time.Duration(l.accepted - l.admitted) }},
	{"scheduler: accepted to dispatched", func(l *life) time.Duration { return time.Duration(l.dispatched - l.accepted) }},
	{"store the dispatch, send it, worker starts (dispatched to prefill_started)", func(l *life) time.Duration { return time.Duration(l.prefill - l.dispatched) }},
	{"engine: prefill_started to first_token", func(l *life) time.Duration { return time.Duration(l.first - l.prefill) }},
	{"worker to ingress, written to the client (first_token to TTFT)", func(l *life) time.Duration { return l.ttft - time.Duration(l.first-l.received) }},
	{"sum: received to first token written", func(l *life) time.Duration { return l.ttft }},
	{"first_token to finished", func(l *life) time.Duration { return time.Duration(l.finished - l.first) }},
}

// stages reads the event log of the child from a sequence on and returns the stages of the requests whose client's id
// begins with prefix. Every service writes with the clock of one process, so that their times may be subtracted.
func stages(ctx context.Context, natsURL, prefix string, after uint64) ([]Stage, error) {
	cfg := streams.DefaultConfig()
	cfg.URL, cfg.Name = natsURL, "overhead"
	c, err := streams.Connect(ctx, cfg, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	lives := map[schema.RequestID]*life{}
	end := make(chan struct{})
	var unreadable error
	tail, pending, err := c.TailEvents(ctx, after, nil, func(e *schema.Stored, waiting uint64) {
		if e.Type == schema.Received && strings.HasPrefix(e.ClientRequest, prefix) {
			lives[e.Request] = &life{}
		}
		if l := lives[e.Request]; l != nil {
			l.add(&e.Event)
		}
		if waiting == 0 {
			closeOnce(end)
		}
	}, func(seq uint64, _ []byte, err error) {
		unreadable = fmt.Errorf("overhead: event %d: %w", seq, err)
		closeOnce(end)
	})
	if err != nil {
		return nil, err
	}
	if pending > 0 {
		select {
		case <-end:
		case <-ctx.Done():
		}
	}
	tail.Stop()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("overhead: reading EVENTS: %w", err)
	}
	if unreadable != nil {
		return nil, unreadable
	}
	return sumStages(lives), nil
}

// closeOnce closes ch unless it is closed; only one goroutine may call it.
func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// lastEvent is the sequence of the last event stored so far.
func lastEvent(ctx context.Context, natsURL string) (uint64, error) {
	cfg := streams.DefaultConfig()
	cfg.URL, cfg.Name = natsURL, "overhead"
	c, err := streams.Connect(ctx, cfg, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	u, err := c.Usage(ctx, streams.Events)
	return u.LastSeq, err
}

func (l *life) add(e *schema.Event) {
	switch e.Type {
	case schema.Received:
		l.received = e.Time
	case schema.Admitted:
		l.admitted = e.Time
	case schema.Accepted:
		l.accepted = e.Time
	case schema.Dispatched:
		l.dispatched = e.Time
	case schema.PrefillStarted:
		l.prefill = e.Time
	case schema.FirstToken:
		l.first = e.Time
	case schema.Finished:
		l.finished = e.Time
	case schema.Delivered:
		l.ttft, l.e2e = e.TTFT, e.E2E
	}
}

func (l *life) whole() bool {
	return l.received > 0 && l.admitted > 0 && l.accepted > 0 && l.dispatched > 0 && l.prefill > 0 && l.first > 0 && l.finished > 0 && l.ttft > 0
}

func sumStages(lives map[schema.RequestID]*life) []Stage {
	var out []Stage
	for _, s := range stageTimes {
		var times []time.Duration
		for _, l := range lives {
			if l.whole() {
				times = append(times, s.took(l))
			}
		}
		if len(times) == 0 {
			return nil
		}
		slices.Sort(times)
		out = append(out, Stage{Name: s.name, P50: quantile(times, 0.5), P99: quantile(times, 0.99)})
	}
	return out
}

// quantile returns the q-quantile (nearest rank) of sorted times, at least one.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// median sorts times, at least one, and returns the one in the middle.
func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return quantile(times, 0.5)
}
