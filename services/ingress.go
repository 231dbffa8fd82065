package services

import (
	"context"
	"errors"
	"time"

	"github.com/cadence-slo/cadence/ingress"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/worker/digest"
	"github.com/prometheus/client_golang/prometheus"
)

// ingressComponent runs the HTTP front for one model. It is ready when it takes connections; with listening, which then
// hears where that is, when it also knows of a worker that serves the model.
func ingressComponent(g *Globals, cfg ingress.Config, model ingress.Model, d dialer, registry *prometheus.Registry, listening func(address string)) Component {
	return Component{Name: "ingress", StopWithin: cfg.DrainTimeout + 15*time.Second, Run: func(ctx context.Context, ready func()) error {
		client, err := d.dial(ctx, "ingress", nil)
		if err != nil {
			return err
		}
		defer client.Close()
		s, err := ingress.New(cfg, ingress.Deps{Client: client, Models: []ingress.Model{model}, Registry: registry, Log: g.Log, Cached: digest.Cached})
		if err != nil {
			return err
		}
		return s.Run(ctx, func() {
			if listening == nil {
				ready()
				return
			}
			listening(s.Addr().String())
			go waitUntil(ctx, func() bool { return s.Readiness().Ready }, ready)
		})
	}}
}

// IngressCmd runs the HTTP front.
type IngressCmd struct {
	Nats streams.Config `embed:"" prefix:"nats-"`
	ingress.Config
	ModelFlags
	EngineFlags
	OpsFlags
}

// Help implements kong.HelpProvider.
func (IngressCmd) Help() string {
	return "Backend and model say which tokenizer and chat template to use: give those of the workers. logprobs and response_format are served with --backend llama; mock has logprobs alone, openai neither.\n\nExamples:\n  cadence ingress --nats-url nats://nats:4222 --listen :8080 --model qwen2.5-0.5b-instruct-q4_k_m\n  cadence ingress --nats-url nats://nats:4222 --api-keys gold:s3cret,batch:t0ken"
}

// Run implements the command.
func (c *IngressCmd) Run(ctx context.Context, g *Globals) error {
	if err := errors.Join(needURL(c.Nats), c.Config.Validate()); err != nil {
		return err
	}
	e, err := openEngine(ctx, g, &c.ModelFlags, &c.EngineFlags, true)
	if err != nil {
		return err
	}
	registry, process := newRegistry(), &readiness{ctx: ctx}
	err = RunGroup(ctx, g.Log, []Component{
		c.OpsFlags.component(registry, process),
		ingressComponent(g, c.Config, e.model, dialer{cfg: c.Nats, log: g.Log}, registry, nil),
	}, func() {
		process.up.Store(true)
		g.Log.Info("ready", "service", "ingress", "model", e.model.Name)
	})
	return errors.Join(err, e.Close())
}
