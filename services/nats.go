package services

import (
	"context"
	"path/filepath"
	"time"

	"github.com/cadence-slo/cadence/streams"
)

// NatsFlags configure the embedded NATS server.
type NatsFlags struct {
	NatsListen string             `help:"address on which the embedded NATS server takes other processes' connections, without any password: keep it on a loopback or private one; empty: none" placeholder:"HOST:PORT"`
	Durability streams.Durability `help:"what an acknowledged write survives: process (kill -9) or power (a power cut)" enum:"process,power" default:"process"`
}

// component runs the server; *out is set before it is ready.
func (f *NatsFlags) component(g *Globals, dataDir string, out **streams.Server) Component {
	return Component{Name: "nats", StopWithin: 20 * time.Second, Run: func(ctx context.Context, ready func()) error {
		s, err := streams.StartServer(streams.ServerConfig{
			Dir: filepath.Join(dataDir, "nats"), Durability: f.Durability, Listen: f.NatsListen,
		}, g.Log)
		if err != nil {
			return err
		}
		*out = s
		ready()
		<-ctx.Done()
		return s.Stop()
	}}
}

// NatsCmd runs the embedded server alone.
type NatsCmd struct {
	DataDir    string             `help:"directory of all state" type:"path" default:"${data_dir}"`
	NatsListen string             `help:"address on which the server takes connections, without any password: keep it on a loopback or private one" default:"127.0.0.1:4222"`
	Durability streams.Durability `help:"what an acknowledged write survives: process (kill -9) or power (a power cut)" enum:"process,power" default:"process"`
	OpsFlags
}

// Help implements kong.HelpProvider.
func (NatsCmd) Help() string {
	return "For services in other processes of this machine, where no nats-server is at hand.\n\nExample:\n  cadence nats --nats-listen 127.0.0.1:4222 &\n  cadence scheduler --nats-url nats://127.0.0.1:4222"
}

// Run implements the command.
func (c *NatsCmd) Run(ctx context.Context, g *Globals) error {
	var srv *streams.Server
	process := &readiness{ctx: ctx}
	f := NatsFlags{NatsListen: c.NatsListen, Durability: c.Durability}
	return RunGroup(ctx, g.Log, []Component{
		f.component(g, c.DataDir, &srv),
		c.OpsFlags.component(newRegistry(), process),
	}, func() {
		process.up.Store(true)
		g.Log.Info("ready", "service", "nats", "url", srv.URL())
	})
}
