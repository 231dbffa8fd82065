package services

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/streams"
	"github.com/prometheus/client_golang/prometheus"
)

// ClickhouseFlags say where ClickHouse is.
type ClickhouseFlags struct {
	ClickhouseURL    string `help:"ClickHouse server (http://user:password@host:8123/database); empty: the embedded engine" name:"clickhouse-url" placeholder:"URL"`
	ClickhouseMemory int64  `help:"bytes of memory that the embedded engine may take" default:"2147483648"`
}

// component projects the streams into ClickHouse.
func (f *ClickhouseFlags) component(g *Globals, dataDir string, cfg analytics.ProjectorConfig, d dialer, registry prometheus.Registerer) Component {
	return Component{Name: "analytics", StopWithin: cfg.StopTimeout + 15*time.Second, Run: func(ctx context.Context, ready func()) error {
		dsn := f.ClickhouseURL
		var engine *clickhouse.Supervisor
		if dsn == "" {
			o := clickhouse.DefaultOptions(filepath.Join(dataDir, "clickhouse"), g.Log)
			o.MemoryBytes, o.LockWait = f.ClickhouseMemory, 10*time.Second
			var err error
			engine, err = clickhouse.Supervise(ctx, o, func(e clickhouse.Event) {
				g.Log.Warn("embedded ClickHouse", "event", e.Kind, "attempt", e.Attempt, "down_ms", e.Down.Milliseconds(), "error", e.Err)
			})
			if err != nil {
				return err
			}
			dsn = engine.DSN()
		}
		err := f.project(ctx, g, dsn, cfg, d, registry, ready)
		if engine != nil {
			err = errors.Join(err, engine.Stop(10*time.Second))
		}
		return err
	}}
}

func (f *ClickhouseFlags) project(ctx context.Context, g *Globals, dsn string, cfg analytics.ProjectorConfig, d dialer, registry prometheus.Registerer, ready func()) error {
	conn, err := openWhenUp(ctx, g, dsn)
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := d.dial(ctx, "analytics", nil)
	if err != nil {
		return err
	}
	defer client.Close()
	p, err := analytics.NewProjector(cfg, client, conn, g.Log)
	if err != nil {
		return err
	}
	for _, c := range p.Collectors() {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	// Whoever asks once this service is ready finds the tables.
	if _, err := analytics.Migrate(ctx, conn, g.Log); err != nil {
		return err
	}
	ready()
	return p.Run(ctx)
}

// openWhenUp waits for a server that does not answer yet.
func openWhenUp(ctx context.Context, g *Globals, dsn string) (driver.Conn, error) {
	for {
		conn, err := clickhouse.Open(ctx, dsn, clickhouse.CreateDatabase())
		if !errors.Is(err, clickhouse.ErrUnreachable) || ctx.Err() != nil {
			return conn, err
		}
		g.Log.Warn("waiting for ClickHouse", "error", err)
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// AnalyticsCmd runs the projector.
type AnalyticsCmd struct {
	DataDir string         `help:"directory of all state (the embedded engine's tables)" type:"path" default:"${data_dir}"`
	Nats    streams.Config `embed:"" prefix:"nats-"`
	ClickhouseFlags
	analytics.ProjectorConfig
	Pool string `help:"unused here; accepted so that one environment serves every service" default:"default" hidden:""`
	OpsFlags
}

// Help implements kong.HelpProvider.
func (AnalyticsCmd) Help() string {
	return "Examples:\n  cadence analytics --nats-url nats://nats:4222\n  cadence analytics --nats-url nats://nats:4222 --clickhouse-url http://cadence:secret@clickhouse:8123/cadence"
}

// Run implements the command.
func (c *AnalyticsCmd) Run(ctx context.Context, g *Globals) error {
	if err := needURL(c.Nats); err != nil {
		return err
	}
	registry, process := newRegistry(), &readiness{ctx: ctx}
	return RunGroup(ctx, g.Log, []Component{
		c.OpsFlags.component(registry, process),
		c.ClickhouseFlags.component(g, c.DataDir, c.ProjectorConfig, dialer{cfg: c.Nats, log: g.Log}, registry),
	}, func() {
		process.up.Store(true)
		g.Log.Info("ready", "service", "analytics")
	})
}
