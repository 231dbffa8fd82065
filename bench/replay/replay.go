package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrEmpty is returned for a pool of which no request is stored.
var ErrEmpty = errors.New("replay: no request is stored")

// Source is a workload.Timed of stored requests, held in memory. It is never changed.
type Source struct {
	about about
	times []time.Duration
	rows  []workload.Request
}

type about struct {
	Pool     string    `json:"pool"`
	FirstSeq uint64    `json:"first_seq"` // in REQUESTS
	LastSeq  uint64    `json:"last_seq"`
	Begin    time.Time `json:"begin"` // when the first was stored
	Rows     int       `json:"rows"`
	// Estimated rows have no finished answer in EVENTS: theirs is as long as their cap.
	Estimated  int `json:"estimated_rows"`
	Unreadable int `json:"unreadable_rows,omitempty"` // passed over, as the scheduler did
}

// Open reads everything of a pool that retention has left, or returns ErrEmpty. What is stored meanwhile is left out.
func Open(ctx context.Context, c *streams.Client, pool string) (*Source, error) {
	stream, err := c.JetStream().Stream(ctx, streams.Requests)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	last, err := stream.GetLastMsgForSubject(ctx, streams.RequestSubject(pool))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w of pool %s", ErrEmpty, pool)
	}
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	lengths, err := answers(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Source{about: about{Pool: pool}}
	err = collect(ctx, c, streams.Requests, last.Sequence, func(done func()) (*streams.Tail, error) {
		return c.TailRequests(ctx, pool, 0, func(m streams.StoredRequest) {
			if m.Seq <= last.Sequence {
				s.add(&m, lengths)
			}
			if m.Seq >= last.Sequence {
				done()
			}
		})
	})
	if err == nil && len(s.rows) == 0 {
		err = fmt.Errorf("%w of pool %s that can be read", ErrEmpty, pool)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// lookEvery is how often a read looks whether what it waits for is still there.
const lookEvery = 250 * time.Millisecond

// collect reads a stream until its handler says that it has all. It returns streams.ErrGone if retention dropped everything up
// to the sequence last before that.
func collect(ctx context.Context, c *streams.Client, stream string, last uint64, start func(done func()) (*streams.Tail, error)) error {
	all := make(chan struct{})
	t, err := start(sync.OnceFunc(func() { close(all) }))
	if err != nil {
		return err
	}
	defer t.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-all:
			return nil
		case <-look.C:
			var u streams.Usage
			if u, err = c.Usage(ctx, stream); err == nil && u.FirstSeq > last {
				err = streams.ErrGone
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("replay: reading %s up to %d: %w", stream, last, err)
		}
	}
}

// answers returns how many tokens each finished request's answer has.
func answers(ctx context.Context, c *streams.Client) (map[schema.RequestID]int, error) {
	out := map[schema.RequestID]int{}
	var bad error
	u, err := c.Usage(ctx, streams.Events)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	err = collect(ctx, c, streams.Events, u.LastSeq, func(done func()) (*streams.Tail, error) {
		t, pending, err := c.TailEvents(ctx, 0, []schema.Type{schema.Finished}, func(e *schema.Stored, waiting uint64) {
			out[e.Request] = int(e.OutputTokens)
			if waiting == 0 {
				done()
			}
		}, func(seq uint64, _ []byte, err error) {
			bad = fmt.Errorf("replay: event %d: %w", seq, err)
			done()
		})
		if err == nil && pending == 0 {
			done()
		}
		return t, err
	})
	return out, errors.Join(err, bad)
}

// add takes the next request of the stream.
func (s *Source) add(m *streams.StoredRequest, lengths map[schema.RequestID]int) {
	var r schema.Request
	if err := schema.Decode(m.Body, &r); err != nil {
		s.about.Unreadable++
		return
	}
	stored := time.Unix(0, m.StoredAt).UTC()
	if len(s.rows) == 0 {
		s.about.Begin, s.about.FirstSeq = stored, m.Seq
	}
	// A stream's leader may change, and with it the clock.
	at := max(0, stored.Sub(s.about.Begin))
	if n := len(s.times); n > 0 {
		at = max(at, s.times[n-1])
	}
	limit := int(r.MaxTokens)
	output, known := lengths[r.ID]
	if !known {
		s.about.Estimated++
		output = limit
	}
	s.times = append(s.times, at)
	s.rows = append(s.rows, workload.Request{Index: len(s.rows), Prompt: r.Prompt, System: -1, Cap: limit, Output: min(max(1, output), limit),
		Tenant: r.Tenant, Class: string(r.Class), Kind: string(r.Kind)})
	s.about.LastSeq, s.about.Rows = m.Seq, len(s.rows)
}

// Name implements workload.Source.
func (s *Source) Name() string { return "requests:" + s.about.Pool }

// Describe implements workload.Source: where the requests stand in the stream.
func (s *Source) Describe() json.RawMessage {
	b, err := json.Marshal(&s.about)
	if err != nil {
		return nil // a struct of numbers and texts
	}
	return b
}

// SLOs implements workload.Source: a stream says none.
func (s *Source) SLOs() map[string]record.SLO { return nil }

// Request implements workload.Source. Behind the last request come all from the first one again.
func (s *Source) Request(i int) workload.Request {
	q := s.rows[i%len(s.rows)]
	q.Index, q.Prompt = i, slices.Clone(q.Prompt)
	return q
}

// Arrivals implements workload.Timed: when requests were stored, since the first one was.
func (s *Source) Arrivals() iter.Seq[time.Duration] { return slices.Values(s.times) }
