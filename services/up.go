package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/ingress"
	"github.com/cadence-slo/cadence/scheduler"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/trainer/service"
	"github.com/cadence-slo/cadence/worker"
)

// UpCmd runs everything in one process.
type UpCmd struct {
	DataDir string `help:"directory of all state" type:"path" default:"${data_dir}"`
	ingress.Config
	ModelFlags
	EngineFlags
	NatsFlags
	Worker      worker.Config    `embed:"" prefix:"worker-"`
	Scheduler   scheduler.Config `embed:"" prefix:"scheduler-"`
	NoAnalytics bool             `help:"do not run ClickHouse and the projector"`
	ClickhouseFlags
	Projector        analytics.ProjectorConfig `embed:"" prefix:"projector-"`
	NoTrainer        bool                      `help:"do not train models of latencies (nor is one without ClickHouse)"`
	Trainer          service.Config            `embed:"" prefix:"trainer-"`
	service.Schedule `embed:"" prefix:"trainer-"`
	OpsFlags
}

// Help implements kong.HelpProvider.
func (UpCmd) Help() string {
	return `Nothing else is needed: the NATS server and the ClickHouse engine are embedded, and the default model is made here (random
weights: it shows the flow, not the sense).

Examples:
  cadence up
  cadence up --model qwen2.5-0.5b-instruct-q4_k_m --kv-tokens 32768
  cadence up --backend mock --mock-step 5ms --listen :9000
  cadence up --nats-listen 127.0.0.1:4222      (more workers may join: cadence worker --nats-url nats://127.0.0.1:4222)`
}

// Run implements the command.
func (c *UpCmd) Run(ctx context.Context, g *Globals) error {
	if err := c.validate(); err != nil {
		return err
	}
	e, err := openEngine(ctx, g, &c.ModelFlags, &c.EngineFlags, false)
	if err != nil {
		return err
	}
	var srv *streams.Server
	d := dialer{cfg: streams.DefaultConfig(), embedded: func() *streams.Server { return srv }, log: g.Log}
	registry, process := newRegistry(), &readiness{ctx: ctx}
	address := ""
	components := []Component{c.NatsFlags.component(g, c.DataDir, &srv)}
	if !c.NoAnalytics {
		components = append(components, c.ClickhouseFlags.component(g, c.DataDir, c.Projector, d, registry))
	}
	components = append(components,
		workerComponent(g, c.Worker, e, d, registry),
		schedulerComponent(g, c.Scheduler, d, registry),
	)
	if !c.NoAnalytics && !c.NoTrainer {
		traces := &tracesFlags{DataDir: c.DataDir, ClickhouseURL: c.ClickhouseURL}
		components = append(components, trainerComponent(g, c.Trainer, c.Schedule,
			func(ctx context.Context) (service.Source, func(), error) { return traces.openWhenUp(ctx, g) }, d, registry))
	}
	components = append(components,
		c.OpsFlags.component(registry, process),
		ingressComponent(g, c.Config, e.model, d, registry, func(a string) { address = a }), // the first to stop
	)
	err = RunGroup(ctx, g.Log, components, func() {
		process.up.Store(true)
		c.banner(g.Out, address, e, srv)
	})
	return errors.Join(err, e.Close())
}

func (c *UpCmd) validate() error {
	for flag, pool := range map[string]*string{"worker-pool": &c.Worker.Pool, "scheduler-pool": &c.Scheduler.Pool, "trainer-pool": &c.Trainer.Pool} {
		if *pool != "default" && *pool != c.Pool {
			return fmt.Errorf("%w: %s is %q and pool is %q: in one process they are the same", ErrFlags, flag, *pool, c.Pool)
		}
		*pool = c.Pool
	}
	return errors.Join(c.Config.Validate(), c.Worker.Validate(), c.Scheduler.Validate(), c.Projector.Validate(), c.Trainer.Validate(), c.Schedule.Validate())
}

// banner says where to send the first request.
func (c *UpCmd) banner(w io.Writer, address string, e *engine, srv *streams.Server) {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	url := scheme + "://" + reachable(address)
	var b strings.Builder
	fmt.Fprintf(&b, "Listening on %s\n\n", url)
	fmt.Fprintf(&b, "  model      %s (%s)%s\n", e.model.Name, c.Backend, random(c.Model, c.Backend))
	fmt.Fprintf(&b, "  state      %s\n", c.DataDir)
	if u := srv.URL(); u != "" {
		fmt.Fprintf(&b, "  NATS       %s\n", u)
	}
	if !c.NoAnalytics {
		fmt.Fprintf(&b, "  analytics  cadence query recent_requests%s\n", c.dataDirFlag())
	}
	key := ""
	if len(c.APIKeys) > 0 {
		key = " -H 'Authorization: Bearer KEY'"
	}
	fmt.Fprintf(&b, "\nA first request:\n  curl -N %s/v1/chat/completions -H 'Content-Type: application/json'%s \\\n    -d '{\"model\":\"default\",\"stream\":true,\"max_tokens\":32,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n", url, key)
	fmt.Fprintf(&b, "\nStop with Ctrl-C: running streams finish first.\n")
	// Nobody may be reading; the service runs all the same.
	_, _ = io.WriteString(w, b.String())
}

// dataDirFlag is what `cadence query` needs to find this process's tables.
func (c *UpCmd) dataDirFlag() string {
	if c.DataDir == defaultDataDir() {
		return ""
	}
	dir := c.DataDir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return " --data-dir " + dir
}

// reachable turns a listener's address into one that a client on this machine can use.
func reachable(address string) string {
	for _, any := range []string{"[::]:", "0.0.0.0:"} {
		if rest, ok := strings.CutPrefix(address, any); ok {
			return "127.0.0.1:" + rest
		}
	}
	return address
}

// random is the banner's word of warning.
func random(model, backend string) string {
	switch {
	case backend == backendMock:
		return ": a stated cost model, text from a hash"
	case strings.HasPrefix(model, "synth:"):
		return ": random weights, so the text is noise"
	default:
		return ""
	}
}
