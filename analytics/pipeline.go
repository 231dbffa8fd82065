package analytics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cadence-slo/cadence/streams"
)

// consumerName is the durable consumer of each projected stream. It shows operators how
// far the projector is; the position that counts is in ClickHouse.
const consumerName = "projector"

// metaInstance is the key of the consumer's metadata that names the projector that made it.
const metaInstance = "cadence.instance"

const (
	// redeliverAfter only matters for messages lost on the way at the end of a stream:
	// what waits here is recognized by its sequence when it is delivered again.
	redeliverAfter = 30 * time.Second
	// takeoverTime is longer than a projector that takes over leaves the stream without
	// a consumer.
	takeoverTime = time.Second
	// lookAfter is how often an idle pipeline looks after its consumer.
	lookAfter = 5 * time.Second
)

var (
	errGap  = errors.New("analytics: deliveries were lost")
	errLost = errors.New("analytics: consumer is gone")
)

// source says what is copied where.
type source struct {
	stream   string // of JetStream
	table    string
	newBlock func(streamID string) block
}

// pipeline copies one stream into one table. Its goroutine, run, owns everything but
// what is marked otherwise.
type pipeline struct {
	source
	cfg      ProjectorConfig
	client   *streams.Client
	conn     ch.Conn
	instance string
	log      *slog.Logger
	metrics  *tableMetrics
	// reading is whether the durable consumer is this run's; read by caughtUp.
	reading atomic.Bool

	// storedAt and crash are for tests: messages of other months, and a death at a point.
	storedAt func(*jetstream.MsgMetadata) time.Time
	crash    func(point string) error
}

func newPipeline(src source, cfg ProjectorConfig, client *streams.Client, conn ch.Conn, instance string, log *slog.Logger, metrics *tableMetrics) *pipeline {
	return &pipeline{
		source: src, cfg: cfg, client: client, conn: conn, instance: instance,
		log: log.With("table", src.table), metrics: metrics,
		storedAt: func(m *jetstream.MsgMetadata) time.Time { return m.Timestamp },
		crash:    func(string) error { return nil },
	}
}

// run copies until ctx ends (nil) or another projector takes over (ErrDeposed).
// Whatever else goes wrong, it begins again at the position in ClickHouse.
func (p *pipeline) run(ctx context.Context) error {
	wait := backoffMin
	for first := true; ; first = false {
		began := time.Now()
		err := p.read(ctx, first)
		p.reading.Store(false)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrDeposed):
			return err
		}
		if time.Since(began) > backoffMax {
			wait = backoffMin
		}
		p.log.Warn("reading interrupted, beginning again at the stored position", "error", err, "wait", wait)
		if errors.Is(err, errLost) { // whoever takes over is about to make the consumer anew
			wait = max(wait, takeoverTime)
		}
		if pause(ctx, wait) != nil {
			return nil
		}
		wait = min(2*wait, backoffMax)
	}
}

// delivery is a message on its way from the consumer's goroutine.
type delivery struct {
	place
	consumerSeq uint64
	msg         jetstream.Msg
}

// read reads from the stored position on. It returns nil after ctx ended and what had
// gathered was inserted. Only the first read of a run takes the stream over from another
// projector.
func (p *pipeline) read(ctx context.Context, first bool) error {
	stream, err := p.client.JetStream().Stream(ctx, p.stream)
	if err != nil {
		return fmt.Errorf("analytics: stream %s: %w", p.stream, err)
	}
	created := stream.CachedInfo().Created.UTC()
	streamID := p.stream + "@" + created.Format(time.RFC3339Nano)

	if !first {
		if other, err := stream.Consumer(ctx, consumerName); err == nil {
			if _, err := p.lookAt(ctx, other); errors.Is(err, ErrDeposed) {
				return err
			}
		}
	}
	// The consumer is taken before the position is read: from here on an earlier
	// projector finds itself deposed before it starts another range.
	if _, err := p.takeConsumer(ctx, stream, 1); err != nil {
		return err
	}
	pos, err := readPosition(ctx, p.conn, streamID)
	if err != nil {
		return err
	}
	consumer, err := p.takeConsumer(ctx, stream, pos.landed.last+1)
	if err != nil {
		return err
	}
	p.metrics.sessions.Inc()
	p.log.Info("projecting", "stream_id", streamID, "after_seq", pos.landed.last, "repeat_to_seq", pos.repeat().last)

	deliveries := make(chan delivery, p.cfg.FlushRows)
	lost := make(chan error, 1)
	stopped := make(chan struct{})
	reading, err := consumer.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			p.log.Error("message without metadata", "error", err)
			return
		}
		d := delivery{place: place{seq: meta.Sequence.Stream, stored: p.storedAt(meta).UTC()}, consumerSeq: meta.Sequence.Consumer, msg: m}
		select {
		case deliveries <- d:
		case <-stopped:
		}
	}, jetstream.PullMaxMessages(min(p.cfg.FlushRows, 2000)), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) {
			select {
			case lost <- errLost:
			default:
			}
			return
		}
		p.log.Debug("consumer", "error", err)
	}))
	if err != nil {
		return fmt.Errorf("analytics: consumer of %s: %w", p.stream, err)
	}
	defer func() {
		close(stopped)
		reading.Stop()
		<-reading.Closed()
	}()
	p.reading.Store(true)
	s := &session{pipeline: p, streamID: streamID, consumer: consumer, block: p.newBlock(streamID), repeat: pos.repeat(), seen: pos.landed.last}
	return s.loop(ctx, deliveries, lost)
}

// takeConsumer makes the durable consumer anew, to deliver from sequence first on: one
// cannot be moved, and what an earlier life left unacknowledged would come late and out
// of order.
func (p *pipeline) takeConsumer(ctx context.Context, stream jetstream.Stream, first uint64) (jetstream.Consumer, error) {
	if err := stream.DeleteConsumer(ctx, consumerName); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("analytics: consumer of %s: %w", p.stream, err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       consumerName,
		Description:   "copies the stream into ClickHouse",
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   first,
		AckPolicy:     jetstream.AckAllPolicy, // one acknowledgement a range
		AckWait:       redeliverAfter,
		// What bounds the memory here while ClickHouse is away.
		MaxAckPending: max(4*p.cfg.FlushRows, 20_000),
		Metadata:      map[string]string{metaInstance: p.instance},
	})
	if err != nil {
		return nil, fmt.Errorf("analytics: consumer of %s: %w", p.stream, err)
	}
	return consumer, nil
}

// lookAt returns the consumer's state, errLost if it is gone, or ErrDeposed if another
// projector has made its own.
func (p *pipeline) lookAt(ctx context.Context, consumer jetstream.Consumer) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, lookAfter)
	defer cancel()
	info, err := consumer.Info(ctx)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, errLost
	case err != nil:
		return nil, fmt.Errorf("analytics: consumer of %s: %w", p.stream, err)
	case info.Config.Metadata[metaInstance] != p.instance:
		return nil, fmt.Errorf("%w: consumer of %s belongs to instance %s", ErrDeposed, p.stream, info.Config.Metadata[metaInstance])
	}
	return info, nil
}

// caughtUp waits until the consumer has nothing to deliver and nothing unacknowledged.
func (p *pipeline) caughtUp(ctx context.Context) error {
	stream, err := p.client.JetStream().Stream(ctx, p.stream)
	if err != nil {
		return fmt.Errorf("analytics: stream %s: %w", p.stream, err)
	}
	target := stream.CachedInfo().State.LastSeq
	for {
		if p.reading.Load() {
			info, err := stream.Consumer(ctx, consumerName)
			if err == nil {
				i := info.CachedInfo()
				idle := i.NumPending == 0 && i.NumAckPending == 0 && i.Delivered.Consumer > 0
				if i.AckFloor.Stream >= target || idle || stream.CachedInfo().State.Msgs == 0 {
					return nil
				}
			}
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("analytics: %s has not caught up: %w", p.table, err)
		}
	}
}
