package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// store publishes messages to EVENTS in order, all in flight at once, and waits until every one is stored; seqs[i] is
// where msgs[i] lies, behind after. What the server did not confirm is sent again: ids make that harmless for as long as
// the server remembers them, and after that the log itself is asked. It returns the first error that repeating cannot
// cure, which msgs[len(seqs)] met.
func (c *Client) store(ctx context.Context, after uint64, msgs []*nats.Msg) (seqs []uint64, err error) {
	seqs = make([]uint64, len(msgs))
	futures := make([]jetstream.PubAckFuture, len(msgs))
	began := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		failed := c.storeOnce(msgs, seqs, futures)
		if failed == nil {
			return seqs, nil
		}
		if err := publishError(failed); !errors.Is(err, ErrUnavailable) {
			return seqs[:slices.Index(seqs, 0)], err
		}
		if err := c.again(ctx, wait, began, after, msgs, seqs); err != nil {
			return seqs[:slices.Index(seqs, 0)], fmt.Errorf("%w: %w", err, failed)
		}
	}
}

// storeOnce publishes the messages that have no sequence yet, and returns the error that the first of them met.
func (c *Client) storeOnce(msgs []*nats.Msg, seqs []uint64, futures []jetstream.PubAckFuture) (failed error) {
	var stop error
	n := 0 // messages that were looked at
	for ; n < len(msgs) && stop == nil; n++ {
		if futures[n] = nil; seqs[n] == 0 {
			msgs[n].Reply = ""
			futures[n], stop = c.js.PublishMsgAsync(msgs[n], jetstream.WithRetryAttempts(0), jetstream.WithStallWait(c.cfg.Timeout))
		}
	}
	for i, f := range futures[:n] {
		if f == nil {
			continue
		}
		select {
		case ack := <-f.Ok():
			seqs[i] = ack.Sequence
		case err := <-f.Err():
			if failed == nil {
				failed = err
			}
		}
	}
	if failed == nil {
		failed = stop
	}
	return failed
}

// again waits until what has no sequence may be sent again. If the server may have forgotten the ids since they were sent
// first, it looks into the log for them, so that an outage longer than its memory stores nothing twice. It returns
// ErrUnavailable when ctx ends.
func (c *Client) again(ctx context.Context, wait time.Duration, began time.Time, after uint64, msgs []*nats.Msg, seqs []uint64) error {
	for {
		select {
		case <-ctx.Done():
			return ErrUnavailable
		case <-time.After(wait):
		}
		if !c.Connected() { // publishing would only fill the client library's buffer
			continue
		}
		if time.Since(began) < c.remembered {
			return nil
		}
		err := c.find(ctx, after, msgs, seqs)
		if err == nil {
			return nil
		}
		c.log.Warn("waiting to see what was stored", "error", err)
	}
}

// findTimeout bounds one look into the log.
const findTimeout = time.Minute

// find fills in the sequences of messages that lie in EVENTS behind after, although nobody was told.
func (c *Client) find(ctx context.Context, after uint64, msgs []*nats.Msg, seqs []uint64) error {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	missing := map[string]int{}
	var subjects []string
	for i, m := range msgs {
		if seqs[i] == 0 {
			missing[m.Header.Get(jetstream.MsgIDHeader)] = i
			subjects = append(subjects, m.Subject)
		}
	}
	slices.Sort(subjects)
	cons, err := c.js.OrderedConsumer(ctx, Events, jetstream.OrderedConsumerConfig{
		FilterSubjects: slices.Compact(subjects), DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1, HeadersOnly: true,
	})
	if err != nil {
		return publishError(err)
	}
	pending := cons.CachedInfo().NumPending
	if pending == 0 {
		return nil
	}
	it, err := cons.Messages()
	if err != nil {
		return publishError(err)
	}
	defer it.Stop()
	for range pending {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return publishError(err)
		}
		if i, ok := missing[m.Headers().Get(jetstream.MsgIDHeader)]; ok {
			meta, err := m.Metadata()
			if err != nil {
				return publishError(err)
			}
			seqs[i] = meta.Sequence.Stream
		}
	}
	return nil
}

// EventWriter stores events in the order of Emit without making the emitter wait: what gathers while one group is
// being stored is the next group. Its goroutine owns the group in flight.
type EventWriter struct {
	c     *Client
	limit int
	fail  func(*nats.Msg, error)
	after uint64 // in EVENTS: the last one stored by an earlier group; owned by the writer's goroutine

	mu      sync.Mutex
	room    *sync.Cond // Emit waits for room, Flush for emptiness
	queue   []*nats.Msg
	flying  int
	closed  bool
	wake    chan struct{}
	stopped chan struct{}
}

// NewEventWriter starts a writer that holds up to limit events before Emit blocks. It stops with Close; ctx only ends
// its retries, so that it should outlive the emitters. fail, if not nil, hears of each event that can never be stored
// (too large): everything else is retried, a full store included.
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
	w.shut()
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

// shut refuses later events.
func (w *EventWriter) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.room.Broadcast()
}

// group bounds what is in flight at once: enough to keep the server busy, below the client library's own bound.
const group = 512

// linger is how long the first event of a group waits for company. Requests and tokens have a client waiting and go
// first on the connection, events do not; only a worker's finished has, for its slot, a scheduler, and this is a fraction of
// a step to it.
const linger = 2 * time.Millisecond

func (w *EventWriter) run(ctx context.Context) {
	defer close(w.stopped)
	defer w.shut() // nobody waits for room any more
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
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(linger):
			case <-ctx.Done():
			}
			continue
		}
		for wait := 100 * time.Millisecond; len(msgs) > 0; {
			seqs, err := w.c.store(ctx, w.after, msgs)
			msgs = msgs[len(seqs):]
			for _, seq := range seqs {
				w.after = max(w.after, seq)
			}
			if err == nil {
				break
			}
			if errors.Is(err, ErrFull) {
				w.c.log.Error("EVENTS is full: events wait until there is room", "events", w.Pending(), "error", err)
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
				wait = min(2*wait, 2*time.Second)
			}
			if ctx.Err() != nil {
				return // Pending tells how many were left
			}
			if !errors.Is(err, ErrFull) {
				w.fail(msgs[0], err)
				msgs = msgs[1:]
			}
		}
		w.mu.Lock()
		w.flying = 0
		w.mu.Unlock()
	}
}

// Appender appends the events of one scheduler, fenced by its epoch: once another scheduler has claimed the pool,
// every append returns ErrFenced. One goroutine at a time may use it; anyone may ask for the Epoch.
type Appender struct {
	c      *Client
	pool   string
	source string
	epoch  atomic.Uint64
	age    time.Time // of the epoch
	after  uint64    // in EVENTS: everything appended from now on lies behind it
}

// ClaimPool takes a pool over: it stores an epoch event, from which on older schedulers of the pool are fenced.
func (c *Client) ClaimPool(ctx context.Context, pool, source string, now time.Time) (*Appender, error) {
	seq, err := c.PublishEvent(ctx, &schema.Event{Type: schema.Epoch, Time: now.UnixNano(), Source: source, Pool: pool})
	if err != nil {
		return nil, fmt.Errorf("streams: claiming pool %s: %w", pool, err)
	}
	a := &Appender{c: c, pool: pool, source: source, age: now, after: seq}
	a.epoch.Store(seq)
	return a, nil
}

// Epoch is the sequence of the last epoch event, larger than every earlier scheduler's.
func (a *Appender) Epoch() uint64 { return a.epoch.Load() }

// Renew stores another epoch event if retention could drop the present one soon: appends that expect what is not there
// any more are fenced. The event says that every request of the pool up to taken, in REQUESTS, was accepted: retention may
// drop what else tells so. It returns ErrFenced, and ErrUnavailable if the server cannot be asked or, when ctx ends, its
// answer is still out: appends after that may be fenced.
func (a *Appender) Renew(ctx context.Context, taken uint64, now time.Time) error {
	u, err := a.c.Usage(ctx, Events)
	if err != nil {
		return err
	}
	old := a.epoch.Load()
	full := u.MaxBytes > 0 && u.Bytes > u.MaxBytes/2 && old < u.FirstSeq+(u.LastSeq-u.FirstSeq)/2
	if late := u.MaxAge > 0 && now.Sub(a.age) > u.MaxAge/2; !full && !late {
		return nil
	}
	m, err := eventMsg(&schema.Event{Type: schema.Epoch, Time: now.UnixNano(), Source: a.source, Pool: a.pool, RequestSeq: taken})
	if err != nil {
		return err
	}
	a.fence(m, old)
	m.Header[jetstream.MsgIDHeader] = []string{a.pool + ".epoch." + strconv.FormatUint(old, 10)} // a repetition must not be fenced by itself
	seq, err := a.c.publish(ctx, m)
	if errors.Is(err, ErrFenced) { // by our own, if its acknowledgement was lost and the server has forgotten its id
		if last, lerr := a.last(ctx); lerr == nil && last.Header.Get(headerSource) == a.source && last.Sequence > old {
			seq, err = last.Sequence, nil
		}
	}
	if err != nil {
		return fmt.Errorf("streams: renewing the epoch of pool %s: %w", a.pool, err)
	}
	a.epoch.Store(seq)
	a.age = now
	return nil
}

// last returns the pool's last epoch event.
func (a *Appender) last(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	s, err := a.c.js.Stream(ctx, Events)
	if err != nil {
		return nil, err
	}
	return s.GetLastMsgForSubject(ctx, EpochSubject(a.pool))
}

// fence makes the server refuse a message once there is another epoch.
func (a *Appender) fence(m *nats.Msg, epoch uint64) {
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(epoch, 10)}
	m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{EpochSubject(a.pool)}
}

// Append stores events in order and returns their sequences. On one server they are pipelined, each fenced by itself
// (an atomic batch there costs a staging file and an fsync); on a replicated stream they are one atomic batch, because
// a second append in flight under the same expectation would look like a deposition. It retries until ctx ends.
func (a *Appender) Append(ctx context.Context, events []*schema.Event) ([]uint64, error) {
	if len(events) == 0 {
		return nil, nil
	}
	msgs := make([]*nats.Msg, len(events))
	epoch := a.epoch.Load()
	for i, e := range events {
		e.Epoch = epoch
		m, err := eventMsg(e)
		if err != nil {
			return nil, err
		}
		a.fence(m, epoch)
		msgs[i] = m
	}
	store := a.c.storeAtomic
	if a.c.cfg.Replicas == 1 {
		store = a.c.store
	}
	seqs, err := store(ctx, a.after, msgs)
	if err == nil {
		a.after = slices.Max(seqs)
	}
	return seqs, err
}

// storeAtomic is store with messages as one batch: all or none.
func (c *Client) storeAtomic(ctx context.Context, after uint64, msgs []*nats.Msg) ([]uint64, error) {
	seqs := make([]uint64, len(msgs))
	began := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		last, failed := c.tryAtomic(ctx, msgs)
		if failed == nil {
			for i := range seqs {
				seqs[i] = last - uint64(len(msgs)-1-i)
			}
			return seqs, nil
		}
		if err := publishError(failed); !errors.Is(err, ErrUnavailable) {
			return nil, err
		}
		if err := c.again(ctx, wait, began, after, msgs, seqs); err != nil {
			return nil, fmt.Errorf("%w: %w", err, failed)
		}
		if seqs[0] != 0 {
			return seqs, nil
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
