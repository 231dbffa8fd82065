package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/worker"
	"github.com/prometheus/client_golang/prometheus"
)

// workerComponent runs a worker on a loaded engine, which stays the caller's.
func workerComponent(g *Globals, cfg worker.Config, e *engine, d dialer, registry prometheus.Registerer) Component {
	return Component{Name: "worker", StopWithin: cfg.Grace + 15*time.Second, Run: func(ctx context.Context, ready func()) error {
		client, err := d.dial(ctx, "worker", nil)
		if err != nil {
			return err
		}
		defer client.Close()
		w, err := worker.New(cfg, client, e.backend, g.Log, registry)
		if err != nil {
			return err
		}
		up, stop := context.WithCancel(ctx)
		defer stop()
		go waitUntil(up, w.Ready, ready)
		return w.Run(ctx)
	}}
}

// WorkerCmd runs a worker.
type WorkerCmd struct {
	Nats streams.Config `embed:"" prefix:"nats-"`
	worker.Config
	ModelFlags
	EngineFlags
	OpsFlags
}

// Help implements kong.HelpProvider.
func (WorkerCmd) Help() string {
	return "Examples:\n  cadence worker --nats-url nats://nats:4222 --model qwen2.5-0.5b-instruct-q4_k_m --kv-tokens 32768\n  cadence worker --nats-url nats://nats:4222 --backend openai --upstream http://vllm:8000 --tokenizer ./model.gguf\n  cadence worker --nats-url nats://nats:4222 --backend mock --mock-step 5ms"
}

// Run implements the command.
func (c *WorkerCmd) Run(ctx context.Context, g *Globals) error {
	if err := errors.Join(needURL(c.Nats), c.Config.Validate()); err != nil {
		return err
	}
	e, err := openEngine(ctx, g, &c.ModelFlags, &c.EngineFlags, false)
	if err != nil {
		return err
	}
	registry, process := newRegistry(), &readiness{ctx: ctx}
	work := workerComponent(g, c.Config, e, dialer{cfg: c.Nats, log: g.Log}, registry)
	err = RunGroup(ctx, g.Log, []Component{
		work,
		c.OpsFlags.component(registry, process),
	}, func() {
		process.up.Store(true)
		g.Log.Info("ready", "service", "worker", "model", e.model.Name)
	})
	return errors.Join(err, e.Close())
}

// needURL says that a service alone needs a server.
func needURL(c streams.Config) error {
	if c.URL == "" {
		return fmt.Errorf("%w: nats-url is empty: a service alone needs a NATS server (cadence nats runs one)", ErrFlags)
	}
	return c.Validate()
}
