package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// Tail is a running reader of a stream.
type Tail struct{ cc jetstream.ConsumeContext }

// Stop ends the reader; messages not handled yet are dropped. It returns when the handler has returned.
func (t *Tail) Stop() {
	t.cc.Stop()
	<-t.cc.Closed()
}

// pullHeartbeat is how often the server tells a reader that waits that it is still served. Two that are missing, and the
// reader begins anew where it was: a server that was restarted knows nothing of it.
const pullHeartbeat = time.Second

// tail reads a stream in order from a sequence on, without acknowledging: the reader's own state is its position. It
// survives reconnects and server restarts without a gap or a repetition.
func (c *Client) tail(ctx context.Context, stream string, after uint64, subjects []string, handle func(m jetstream.Msg, meta *jetstream.MsgMetadata)) (t *Tail, pending uint64, err error) {
	cons, err := c.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: subjects,
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    after + 1,
		// A reader that has stopped leaves its consumer to the server, which has a limited number of them.
		InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("streams: reading %s after %d: %w", stream, after, publishError(err))
	}
	pending = cons.CachedInfo().NumPending
	cc, err := cons.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			c.log.Error("message without metadata", "stream", stream, "error", err)
			return
		}
		handle(m, meta)
	}, jetstream.PullHeartbeat(pullHeartbeat), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		c.log.Warn("reader interrupted", "stream", stream, "error", err)
	}))
	if err != nil {
		return nil, 0, fmt.Errorf("streams: reading %s after %d: %w", stream, after, publishError(err))
	}
	return &Tail{cc}, pending, nil
}

// TailEvents calls handle for every event of the given types (all if empty) stored after the given sequence, in
// order, for ever. pending counts the events that lay in the stream at the start; waiting is how many lie there behind
// e now. An event that cannot be read goes to bad with its sequence and is passed over.
func (c *Client) TailEvents(ctx context.Context, after uint64, types []schema.Type, handle func(e *schema.Stored, waiting uint64), bad func(seq uint64, body []byte, err error)) (t *Tail, pending uint64, err error) {
	subjects := make([]string, len(types))
	for i, t := range types {
		subjects[i] = EventTypeSubject(t)
	}
	return c.tail(ctx, Events, after, subjects, func(m jetstream.Msg, meta *jetstream.MsgMetadata) {
		e := &schema.Stored{Seq: meta.Sequence.Stream, StoredAt: meta.Timestamp.UnixNano()}
		if err := schema.Decode(m.Data(), &e.Event); err != nil {
			bad(e.Seq, m.Data(), err)
			return
		}
		handle(e, meta.NumPending)
	})
}

// StoredRequest is a request's body with its place in REQUESTS.
type StoredRequest struct {
	Body     []byte // encoded schema.Request
	Seq      uint64
	StoredAt int64 // ns UTC
}

// TailRequests calls handle for every request of a pool stored after the given sequence, in order, for ever.
func (c *Client) TailRequests(ctx context.Context, pool string, after uint64, handle func(StoredRequest)) (*Tail, error) {
	t, _, err := c.tail(ctx, Requests, after, []string{RequestSubject(pool)}, func(m jetstream.Msg, meta *jetstream.MsgMetadata) {
		handle(StoredRequest{Body: m.Data(), Seq: meta.Sequence.Stream, StoredAt: meta.Timestamp.UnixNano()})
	})
	return t, err
}

// ErrGone is returned for a message that retention has dropped.
var ErrGone = errors.New("streams: message is gone")

// Request returns the request stored at a sequence, or ErrGone.
func (c *Client) Request(ctx context.Context, seq uint64) (StoredRequest, error) {
	s, err := c.js.Stream(ctx, Requests)
	if err != nil {
		return StoredRequest{}, publishError(err)
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return StoredRequest{}, fmt.Errorf("%w: request at sequence %d", ErrGone, seq)
	}
	if err != nil {
		return StoredRequest{}, publishError(err)
	}
	return StoredRequest{Body: m.Data, Seq: m.Sequence, StoredAt: m.Time.UnixNano()}, nil
}

// Usage is how full a stream is.
type Usage struct {
	FirstSeq, LastSeq uint64
	Messages          uint64
	Bytes, MaxBytes   uint64        // MaxBytes 0 is unlimited
	MaxAge            time.Duration // 0 is unlimited
}

// Usage returns how full a stream is.
func (c *Client) Usage(ctx context.Context, stream string) (Usage, error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return Usage{}, publishError(err)
	}
	i := s.CachedInfo()
	return Usage{FirstSeq: i.State.FirstSeq, LastSeq: i.State.LastSeq, Messages: i.State.Msgs,
		Bytes: i.State.Bytes, MaxBytes: uint64(max(i.Config.MaxBytes, 0)), MaxAge: i.Config.MaxAge}, nil
}

// SubscribeChunks calls handle for every chunk sent to an ingress from now on, as it comes. Chunks are owned by the
// handler.
func (c *Client) SubscribeChunks(in schema.IngressID, handle func(*schema.Chunk)) (*nats.Subscription, error) {
	s, err := subscribe(c, "tok."+string(in)+".*", func() *schema.Chunk { return new(schema.Chunk) }, handle)
	if err != nil {
		return nil, err
	}
	if err := s.SetPendingLimits(-1, 256<<20); err != nil {
		return nil, publishError(err)
	}
	return s, nil
}

// Chunks returns every chunk of a request that TOKENS still holds, in the order of storing: what a gap or a reconnect
// is filled from. Attempts may be mixed.
func (c *Client) Chunks(ctx context.Context, in schema.IngressID, id schema.RequestID) ([]*schema.Chunk, error) {
	var out []*schema.Chunk
	for next := uint64(1); ; {
		msgs, err := jetstreamext.GetBatch(ctx, c.js, Tokens, 256,
			jetstreamext.GetBatchSeq(next), jetstreamext.GetBatchSubject(TokenSubject(in, id)))
		if err != nil {
			return nil, publishError(err)
		}
		n := 0
		for m, err := range msgs {
			if errors.Is(err, jetstreamext.ErrNoMessages) {
				break
			}
			if err != nil {
				return nil, publishError(err)
			}
			chunk := new(schema.Chunk)
			if err := schema.Decode(m.Data, chunk); err != nil {
				return nil, err
			}
			out = append(out, chunk)
			next = m.Sequence + 1
			n++
		}
		if n < 256 {
			return out, nil
		}
	}
}
