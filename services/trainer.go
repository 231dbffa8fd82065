package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/trainer/service"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
)

// Sources of the trainer.
const (
	fromClickhouse = "clickhouse"
	fromStream     = "stream"
	fromFile       = "file"
)

// tracesFlags say where a trainer's ClickHouse is.
type tracesFlags struct {
	DataDir       string `help:"directory of all state, in which an embedded ClickHouse runs" type:"path" default:"${data_dir}"`
	ClickhouseURL string `help:"ClickHouse server; empty: the embedded engine that runs on data-dir" name:"clickhouse-url" placeholder:"URL"`
}

// open connects, and returns what ends the connection.
func (f *tracesFlags) open(ctx context.Context) (service.Source, func(), error) {
	dsn, err := (&QueryCmd{DataDir: f.DataDir, ClickhouseURL: f.ClickhouseURL}).dsn()
	if err != nil {
		return nil, nil, err
	}
	conn, err := clickhouse.Open(ctx, dsn)
	if err != nil {
		return nil, nil, err
	}
	return service.ClickHouse{Conn: conn}, func() { _ = conn.Close() }, nil
}

// openWhenUp is open that waits for an engine that does not run yet.
func (f *tracesFlags) openWhenUp(ctx context.Context, g *Globals) (service.Source, func(), error) {
	for {
		source, stop, err := f.open(ctx)
		if err == nil || errors.Is(err, clickhouse.ErrDSN) || ctx.Err() != nil {
			return source, stop, err
		}
		g.Log.Warn("waiting for ClickHouse", "error", err)
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(time.Second):
		}
	}
}

// instance is a name for one life of a process.
func instance(kind string) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	name := kind + "-" + id.String()[24:]
	if !schema.ValidName(name) {
		return "", fmt.Errorf("services: %q is no name", name)
	}
	return name, nil
}

// trainerComponent trains a pool's models. The source is ClickHouse as open says, or the stream if that is nil.
func trainerComponent(g *Globals, cfg service.Config, schedule service.Schedule, open func(context.Context) (service.Source, func(), error), d dialer,
	registry prometheus.Registerer) Component {
	return Component{Name: "trainer", StopWithin: 15 * time.Second, Run: func(ctx context.Context, ready func()) error {
		client, err := d.dial(ctx, "trainer", nil)
		if err != nil {
			return err
		}
		defer client.Close()
		models, err := client.Models(ctx)
		if err != nil {
			return err
		}
		name, err := instance("trainer")
		if err != nil {
			return err
		}
		source, stop := service.Source(service.Stream{Client: client}), func() {}
		if open != nil {
			if source, stop, err = open(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
		defer stop()
		s, err := service.New(service.Options{Config: cfg, Source: source, Client: client, Models: models, Name: name, Code: g.Version, Log: g.Log})
		if err != nil {
			return err
		}
		defer s.Close()
		for _, c := range s.Collectors() {
			if err := registry.Register(c); err != nil {
				return err
			}
		}
		ready()
		return s.Run(ctx, schedule)
	}}
}

// TrainerCmd runs the trainer.
type TrainerCmd struct {
	Source string         `help:"where what requests took is read: clickhouse or stream (the events that NATS keeps)" enum:"clickhouse,stream" default:"clickhouse"`
	Nats   streams.Config `embed:"" prefix:"nats-"`
	tracesFlags
	service.Config
	service.Schedule
	OpsFlags
}

// Help implements kong.HelpProvider.
func (TrainerCmd) Help() string {
	return `One trainer of a pool is enough; of several, one publishes. See docs/trainer.md.

Examples:
  cadence trainer --nats-url nats://nats:4222
  cadence trainer --nats-url nats://nats:4222 --clickhouse-url http://cadence:secret@clickhouse:8123/cadence --interval 1h
  cadence trainer --nats-url nats://nats:4222 --source stream --min-new 2000 --min-rows 500`
}

// Run implements the command.
func (c *TrainerCmd) Run(ctx context.Context, g *Globals) error {
	if err := errors.Join(needURL(c.Nats), c.Config.Validate(), c.Schedule.Validate()); err != nil {
		return err
	}
	open := func(ctx context.Context) (service.Source, func(), error) { return c.openWhenUp(ctx, g) }
	if c.Source == fromStream {
		open = nil
	}
	registry, process := newRegistry(), &readiness{ctx: ctx}
	return RunGroup(ctx, g.Log, []Component{
		c.OpsFlags.component(registry, process),
		trainerComponent(g, c.Config, c.Schedule, open, dialer{cfg: c.Nats, log: g.Log}, registry),
	}, func() {
		process.up.Store(true)
		g.Log.Info("ready", "service", "trainer", "pool", c.Pool, "source", c.Source)
	})
}
