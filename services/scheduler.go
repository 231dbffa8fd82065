package services

import (
	"context"
	"errors"
	"time"

	"github.com/cadence-slo/cadence/scheduler"
	"github.com/cadence-slo/cadence/scheduler/lease"
	"github.com/cadence-slo/cadence/streams"
	"github.com/prometheus/client_golang/prometheus"
)

// schedulerComponent runs the scheduler of a pool.
func schedulerComponent(g *Globals, cfg scheduler.Config, d dialer, registry prometheus.Registerer) Component {
	return Component{Name: "scheduler", StopWithin: cfg.StopTimeout + 10*time.Second, Run: func(ctx context.Context, ready func()) error {
		client, err := d.dial(ctx, "scheduler", nil)
		if err != nil {
			return err
		}
		defer client.Close()
		s, err := scheduler.New(cfg, client, lease.Sole{}, registry, g.Log)
		if err != nil {
			return err
		}
		return s.Run(ctx, ready)
	}}
}

// SchedulerCmd runs the scheduler.
type SchedulerCmd struct {
	Nats streams.Config `embed:"" prefix:"nats-"`
	scheduler.Config
	OpsFlags
}

// Help implements kong.HelpProvider.
func (SchedulerCmd) Help() string {
	return "One scheduler of a pool is active: one that starts takes over, and the other one stops.\n\nExample:\n  cadence scheduler --nats-url nats://nats:4222 --pool default"
}

// Run implements the command.
func (c *SchedulerCmd) Run(ctx context.Context, g *Globals) error {
	if err := errors.Join(needURL(c.Nats), c.Config.Validate()); err != nil {
		return err
	}
	registry, process := newRegistry(), &readiness{ctx: ctx}
	return RunGroup(ctx, g.Log, []Component{
		schedulerComponent(g, c.Config, dialer{cfg: c.Nats, log: g.Log}, registry),
		c.OpsFlags.component(registry, process),
	}, func() {
		process.up.Store(true)
		g.Log.Info("ready", "service", "scheduler")
	})
}
