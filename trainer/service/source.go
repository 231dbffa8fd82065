package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/cadence-slo/cadence/analytics/sql"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/trainer"
	"github.com/nats-io/nats.go/jetstream"
)

// Source gives what requests took.
type Source interface {
	// Traces calls add for each request of a pool that arrived at since or later and has been delivered, nearly in the order of
	// arrival. add keeps nothing of its argument but the features.
	Traces(ctx context.Context, pool string, since time.Time, add func(*trainer.Trace) error) error
	// Name is what reports call it.
	Name() string
}

// ClickHouse reads the view traces, as far as the projector is.
type ClickHouse struct{ Conn ch.Conn }

// Name implements Source.
func (ClickHouse) Name() string { return "clickhouse" }

// Traces implements Source.
func (c ClickHouse) Traces(ctx context.Context, pool string, since time.Time, add func(*trainer.Trace) error) error {
	rows, err := c.Conn.Query(ch.Context(ctx, ch.WithParameters(ch.Parameters{
		"pool": pool, "since": strconv.FormatFloat(float64(since.UnixMilli())/1e3, 'f', 3, 64),
	})), sql.Statement("traces_read"))
	if err != nil {
		return fmt.Errorf("trainer: reading traces: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var t trainer.Trace
		var id, kind, class, delivered, failure, worker string
		var physics, e2e int64
		if err := rows.Scan(&id, &t.Arrived, &t.Pool, &t.Tenant, &kind, &class, &t.Features, &physics, &t.Propensity, &t.PromptTokens, &t.CapTokens,
			&t.OutputTokens, &e2e, &delivered, &failure, &worker, &t.Fingerprint); err != nil {
			return fmt.Errorf("trainer: reading traces: %w", err)
		}
		t.Request, t.Arrived = schema.RequestID(id), t.Arrived.UTC()
		t.Kind, t.Class, t.Worker = schema.Kind(kind), schema.Class(class), schema.WorkerID(worker)
		t.Physics, t.E2E, t.Delivered = time.Duration(physics), time.Duration(e2e), schema.Outcome(delivered)
		if t.Delivered == schema.OutcomeError {
			t.Failure = schema.FailureCode(failure)
		}
		if err := add(&t); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("trainer: reading traces: %w", err)
	}
	return nil
}

// Log reads events from wherever Read has them, in order, such as a file.
type Log struct {
	Read func(add func(*schema.Stored) error) error
}

// Name implements Source.
func (Log) Name() string { return "file" }

// Traces implements Source.
func (l Log) Traces(ctx context.Context, pool string, since time.Time, add func(*trainer.Trace) error) error {
	log := trainer.NewLog(pool, later(since, add))
	return l.Read(func(e *schema.Stored) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return log.Add(&e.Event)
	})
}

// later leaves out what arrived before.
func later(since time.Time, add func(*trainer.Trace) error) func(*trainer.Trace) error {
	return func(t *trainer.Trace) error {
		if t.Arrived.Before(since) {
			return nil
		}
		return add(t)
	}
}

// Stream reads EVENTS, as far as it goes when it is asked.
type Stream struct{ Client *streams.Client }

// Name implements Source.
func (Stream) Name() string { return "stream" }

// Traces implements Source.
func (s Stream) Traces(ctx context.Context, pool string, since time.Time, add func(*trainer.Trace) error) error {
	log := trainer.NewLog(pool, later(since, add))
	// Workers may be older than the window.
	if err := s.read(ctx, []schema.Type{schema.WorkerUp}, time.Time{}, log.Add); err != nil {
		return err
	}
	return s.read(ctx, trainer.LogTypes(), since, log.Add)
}

// read calls add for the events of some types that were stored at a time or later.
func (s Stream) read(ctx context.Context, types []schema.Type, since time.Time, add func(*schema.Event) error) error {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy, InactiveThreshold: 30 * time.Second}
	if !since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	for _, t := range types {
		cfg.FilterSubjects = append(cfg.FilterSubjects, streams.EventTypeSubject(t))
	}
	failed := func(err error) error {
		return fmt.Errorf("%w: trainer: reading %s: %w", streams.ErrUnavailable, streams.Events, err)
	}
	cons, err := s.Client.JetStream().OrderedConsumer(ctx, streams.Events, cfg)
	if err != nil {
		return failed(err)
	}
	left := cons.CachedInfo().NumPending
	if left == 0 {
		return nil
	}
	it, err := cons.Messages()
	if err != nil {
		return failed(err)
	}
	defer it.Stop()
	for end := false; left > 0 && !end; left-- {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return failed(err)
		}
		if meta, err := m.Metadata(); err == nil {
			end = meta.NumPending == 0 // of what was counted, retention may have dropped some
		}
		e := new(schema.Event) // the log keeps its features
		if err := schema.Decode(m.Data(), e); err != nil {
			if errors.Is(err, schema.ErrVersion) || errors.Is(err, schema.ErrInvalid) {
				continue // somebody else's to complain of
			}
			return fmt.Errorf("trainer: reading %s: %w", streams.Events, err)
		}
		if err := add(e); err != nil {
			return err
		}
	}
	return nil
}
