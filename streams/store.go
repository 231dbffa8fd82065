package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// store publishes messages in order, all in flight at once, and waits until every one is stored; seqs[i] is where
// msgs[i] lies. What the server did not confirm is sent again, from the first such message on: ids make that harmless.
// It returns the first error that repeating cannot cure.
func (c *Client) store(ctx context.Context, msgs []*nats.Msg) (seqs []uint64, err error) {
	seqs = make([]uint64, len(msgs))
	futures := make([]jetstream.PubAckFuture, 0, len(msgs))
	for done, wait := 0, 50*time.Millisecond; done < len(msgs); {
		futures = futures[:0]
		var failed error
		for _, m := range msgs[done:] {
			m.Reply = ""
			f, err := c.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(c.cfg.Timeout))
			if err != nil {
				failed = err
				break
			}
			futures = append(futures, f)
		}
		for _, f := range futures {
			select {
			case ack := <-f.Ok():
				if failed == nil {
					seqs[done] = ack.Sequence
					done++
				}
			case err := <-f.Err():
				if failed == nil {
					failed = err
				}
			}
		}
		if failed == nil {
			continue
		}
		if err := publishError(failed); !errors.Is(err, ErrUnavailable) {
			return seqs[:done], err
		}
		select {
		case <-ctx.Done():
			return seqs[:done], publishError(failed)
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		}
	}
	return seqs, nil
}

// EventWriter stores events in the order of Emit without making the emitter wait: what gathers while one group is
// being stored is the next group. Its goroutine owns the group in flight.
type EventWriter struct {
	c     *Client
	limit int
	fail  func(*nats.Msg, error)

	mu      sync.Mutex
	room    *sync.Cond // Emit waits for room, Flush for emptiness
	queue   []*nats.Msg
	flying  int
	closed  bool
	wake    chan struct{}
	stopped chan struct{}
}

// NewEventWriter starts a writer that holds up to limit events before Emit blocks. It stops with Close; ctx only ends
// its retries, so that it should outlive the emitters. fail, if not nil, hears of each event that cannot be stored
// (too large, store full): everything else is retried.
func (c *Client) NewEventWriter(ctx context.Context, limit int, fail func(id string, err error)) *EventWriter {
	w := &EventWriter{c: c, limit: limit, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	w.room = sync.NewCond(&w.mu)
	w.fail = func(m *nats.Msg, err error) {
		id := m.Header.Get(headerID)
		c.log.Error("event not stored", "event_id", id, "error", err)
		if fail != nil {
			fail(id, err)
		}
	}
	go w.run(ctx)
	return w
}

// Emit queues an event. It returns ErrInvalid for a malformed one and ErrUnavailable after Close; it blocks while the
// limit is reached.
func (w *EventWriter) Emit(e *schema.Event) error {
	m, err := eventMsg(e)
	if err != nil {
		return err
	}
	w.mu.Lock()
	for len(w.queue) >= w.limit && !w.closed {
		w.room.Wait()
	}
	if w.closed {
		w.mu.Unlock()
		return fmt.Errorf("%w: event writer is closed", ErrUnavailable)
	}
	w.queue = append(w.queue, m)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// Pending is the number of events emitted and not stored yet.
func (w *EventWriter) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) + w.flying
}

// Close stores what was emitted, within ctx, and stops the writer.
func (w *EventWriter) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.room.Broadcast()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case <-w.stopped:
	case <-ctx.Done():
	}
	if n := w.Pending(); n > 0 {
		return fmt.Errorf("%w: %d events not stored", ErrUnavailable, n)
	}
	return nil
}

// group bounds what is in flight at once: enough to keep the server busy, below the client library's own bound.
const group = 512

func (w *EventWriter) run(ctx context.Context) {
	defer close(w.stopped)
	for {
		w.mu.Lock()
		n := min(len(w.queue), group)
		msgs := w.queue[:n:n]
		w.queue = w.queue[n:]
		w.flying = n
		closed := w.closed
		w.room.Broadcast()
		w.mu.Unlock()
		if n == 0 {
			if closed {
				return
			}
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		for len(msgs) > 0 {
			seqs, err := w.c.store(ctx, msgs)
			msgs = msgs[len(seqs):]
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return // Pending tells how many were left
			}
			w.fail(msgs[0], err)
			msgs = msgs[1:]
		}
		w.mu.Lock()
		w.flying = 0
		w.mu.Unlock()
	}
}

// Appender appends the events of one scheduler, fenced by its epoch: once another scheduler has claimed the pool,
// every append returns ErrFenced. One goroutine at a time may use it.
type Appender struct {
	c     *Client
	pool  string
	epoch uint64
}

// ClaimPool takes a pool over: it stores an epoch event, from which on older schedulers of the pool are fenced.
func (c *Client) ClaimPool(ctx context.Context, pool, source string, now time.Time) (*Appender, error) {
	seq, err := c.PublishEvent(ctx, &schema.Event{Type: schema.Epoch, Time: now.UnixNano(), Source: source, Pool: pool})
	if err != nil {
		return nil, fmt.Errorf("streams: claiming pool %s: %w", pool, err)
	}
	return &Appender{c: c, pool: pool, epoch: seq}, nil
}

// Epoch is the sequence of the epoch event, larger than every earlier scheduler's.
func (a *Appender) Epoch() uint64 { return a.epoch }

// Append stores events in order and returns their sequences. On one server they are pipelined, each fenced by itself
// (an atomic batch there costs a staging file and an fsync); on a replicated stream they are one atomic batch, because
// a second append in flight under the same expectation would look like a deposition. It retries until ctx ends.
func (a *Appender) Append(ctx context.Context, events []*schema.Event) ([]uint64, error) {
	if len(events) == 0 {
		return nil, nil
	}
	msgs := make([]*nats.Msg, len(events))
	for i, e := range events {
		e.Epoch = a.epoch
		m, err := eventMsg(e)
		if err != nil {
			return nil, err
		}
		m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(a.epoch, 10)}
		m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{EpochSubject(a.pool)}
		msgs[i] = m
	}
	if a.c.cfg.Replicas == 1 {
		return a.c.store(ctx, msgs)
	}
	return a.c.storeAtomic(ctx, msgs)
}

// storeAtomic stores messages as one batch: all or none.
func (c *Client) storeAtomic(ctx context.Context, msgs []*nats.Msg) ([]uint64, error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		last, err := c.tryAtomic(ctx, msgs)
		if err == nil {
			seqs := make([]uint64, len(msgs))
			for i := range seqs {
				seqs[i] = last - uint64(len(msgs)-1-i)
			}
			return seqs, nil
		}
		if err = publishError(err); !errors.Is(err, ErrUnavailable) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

func (c *Client) tryAtomic(ctx context.Context, msgs []*nats.Msg) (last uint64, err error) {
	once, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	batch, err := jetstreamext.NewBatchPublisher(c.js)
	if err != nil {
		return 0, err
	}
	for i, m := range msgs {
		m.Reply = ""
		if i < len(msgs)-1 {
			if err := batch.AddMsg(m); err != nil {
				return 0, err
			}
			continue
		}
		ack, err := batch.CommitMsg(once, m)
		if err != nil {
			return 0, err
		}
		last = ack.Sequence
	}
	return last, nil
}
