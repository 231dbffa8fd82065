package analytics

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

var errCrash = errors.New("crash")

// A projector that dies at any point of a range leaves the next life neither a gap nor a
// repetition. Messages alternate between months, so that a range has many inserts.
func TestDeathAtEveryPointOfARange(t *testing.T) {
	t.Parallel()
	for _, months := range []bool{false, true} {
		t.Run(fmt.Sprintf("months=%v", months), func(t *testing.T) {
			t.Parallel()
			c, conn := streamstest.Start(t).Client(t), open(t)
			cfg := fast()
			var deaths atomic.Int64
			// A life ends after a while at the given point, without another word.
			runLife := func(point string, after int) {
				cfg.FlushRows = 50 + 37*after // another configuration must not cut a started range elsewhere
				p := newProjector(t, cfg, c, conn)
				for _, pl := range p.pipelines {
					n := 0
					pl.crash = func(at string) error {
						if at != point {
							return nil
						}
						if n++; n <= after {
							return nil
						}
						deaths.Add(1)
						return errCrash
					}
					if months {
						pl.storedAt = func(m *jetstream.MsgMetadata) time.Time {
							return m.Timestamp.AddDate(0, -int(m.Sequence.Stream/40%3), 0)
						}
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				died := deaths.Load()
				done := make(chan error, 1)
				go func() { done <- p.pipelines[0].read(ctx, true) }()
				if point == "" {
					p.pipelines[0].reading.Store(true)
					ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
					defer stop()
					if err := p.pipelines[0].caughtUp(ctx); err != nil {
						t.Fatal(err)
					}
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
					return
				}
				if err := <-done; !errors.Is(err, errCrash) || deaths.Load() != died+1 {
					t.Fatalf("at %s: %v", point, err)
				}
			}
			if _, err := Migrate(t.Context(), conn, quiet); err != nil {
				t.Fatal(err)
			}
			for round, point := range []string{"started", "run", "inserted", "run", "started", "inserted", "inserted"} {
				publish(t, c, 240)
				publishRaw(t, c, "evt.received.0", "bad")
				runLife(point, round%3)
			}
			runLife("", 0)
			checkEqual(t, c, conn, streams.Events, "events", 7)
			if n := len(deadLetters(t, c)); n != 7 {
				t.Errorf("%d dead letters, want 7", n)
			}
			var partitions uint64
			scan(t, conn, "SELECT uniqExact(partition) FROM system.parts WHERE database = currentDatabase() AND table = 'events' AND active", &partitions)
			if (partitions > 1) != months {
				t.Errorf("%d partitions", partitions)
			}
		})
	}
}

func TestClickHouseKilledUnderLoad(t *testing.T) {
	t.Parallel()
	events := make(chan clickhouse.Event, 64)
	engine, err := clickhouse.Supervise(t.Context(), clickhouse.DefaultOptions(t.TempDir(), quiet), func(e clickhouse.Event) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Stop(10 * time.Second) })
	conn := openDSN(t, withDatabase(t, engine.DSN()))
	c := streamstest.Start(t).Client(t)
	p := newProjector(t, fast(), c, conn)
	start(t, p)
	published := make(chan struct{})
	go func() {
		defer close(published)
		for range 12 {
			publish(t, c, 1600)
		}
	}()
	for range 3 {
		rows := metric(t, p, "rows_total/events")
		eventually(t, "progress", func() bool { return metric(t, p, "rows_total/events") > rows })
		if err := unix.Kill(engine.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for e := range events {
			if e.Kind == clickhouse.EventRestarted {
				break
			}
		}
	}
	<-published
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 0)
	if n := metric(t, p, "inserts_total/retried/events"); n == 0 {
		t.Error("no insert met a dead engine")
	}
}

// While ClickHouse is away, the lag shows and memory stays bounded; then all lands.
func TestClickHouseAwayForLong(t *testing.T) {
	t.Parallel()
	o := clickhouse.DefaultOptions(t.TempDir(), quiet)
	engine, err := clickhouse.Supervise(t.Context(), o, func(clickhouse.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Stop(10 * time.Second) })
	conn := openDSN(t, withDatabase(t, engine.DSN()))
	c := streamstest.Start(t).Client(t)
	p := newProjector(t, DefaultProjectorConfig(), c, conn)
	start(t, p)
	publish(t, c, 800)
	caughtUp(t, p)
	// The engine is stopped where it stands: it takes connections and answers nothing.
	if err := unix.Kill(engine.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(engine.PID(), unix.SIGCONT) })
	publish(t, c, 28_000)
	stream, err := c.JetStream().Stream(t.Context(), streams.Events)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.Consumer(t.Context(), consumerName)
	if err != nil {
		t.Fatal(err)
	}
	if info := consumer.CachedInfo(); info.NumAckPending > 20_000 || info.NumPending < 7_000 {
		t.Errorf("%d delivered and not acknowledged, %d to come", info.NumAckPending, info.NumPending)
	}
	if lag := metric(t, p, "lag_seconds/events"); lag <= 0 {
		t.Errorf("lag is %v s", lag)
	}
	if err := unix.Kill(engine.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 0)
}

func TestNATSRestart(t *testing.T) {
	t.Parallel()
	server, conn := streamstest.Start(t), open(t)
	c := server.Client(t)
	p := newProjector(t, fast(), c, conn)
	start(t, p)
	for range 3 {
		publish(t, c, 2000)
		server.Restart(t)
	}
	publish(t, c, 800)
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 0)
}
