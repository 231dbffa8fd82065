package enginecore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/worker"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrEnded is wrapped when the worker has ended though nobody stopped it.
var ErrEnded = errors.New("enginecore: the worker has ended")

// Rig is a worker on an embedded stream server. Its methods are safe for concurrent use, except Stop.
type Rig struct {
	// Client is the connection that stands for scheduler and ingress.
	Client *streams.Client
	Worker *worker.Worker

	pool     string
	registry *prometheus.Registry
	server   *streams.Server
	own      *streams.Client // the worker's
	drain    context.CancelFunc
	done     chan struct{} // closed when the worker's Run has returned err
	err      error
}

// StartRig starts a server that keeps its streams in dir, and a worker on an engine, which stays the caller's. It
// returns when the worker takes requests. The caller calls Stop.
func StartRig(ctx context.Context, dir string, cfg worker.Config, backend worker.Backend, log *slog.Logger) (_ *Rig, err error) {
	r := &Rig{pool: cfg.Pool, registry: prometheus.NewRegistry(), done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.server, err = streams.StartServer(streams.ServerConfig{Dir: dir, Durability: streams.DurableProcess}, log); err != nil {
		return nil, err
	}
	if r.Client, err = streams.Connect(ctx, streams.DefaultConfig(), r.server, log, nil); err != nil {
		return nil, err
	}
	if err = r.Client.Setup(ctx); err != nil {
		return nil, err
	}
	if r.own, err = streams.Connect(ctx, streams.DefaultConfig(), r.server, log, nil); err != nil {
		return nil, err
	}
	if r.Worker, err = worker.New(cfg, r.own, backend, log, r.registry); err != nil {
		return nil, err
	}
	running, drain := context.WithCancel(context.WithoutCancel(ctx))
	r.drain = drain
	go func() {
		defer close(r.done)
		r.err = r.Worker.Run(running)
	}()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !r.Worker.Ready() {
		select {
		case <-r.done:
			return nil, errors.Join(ErrEnded, r.err)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-poll.C:
		}
	}
	return r, nil
}

// Ended is closed when the worker has ended.
func (r *Rig) Ended() <-chan struct{} { return r.done }

// Stop lets the worker finish what it runs, empties its prefix cache, and stops everything but the engine. It returns
// what the worker's Run returned.
func (r *Rig) Stop() error { return r.close() }

func (r *Rig) close() error {
	if r.drain != nil {
		r.drain()
		<-r.done
	}
	if r.own != nil {
		r.own.Close()
	}
	if r.Client != nil {
		r.Client.Close()
	}
	if r.server != nil {
		return errors.Join(r.err, r.server.Stop())
	}
	return r.err
}

// Dispatch sends items to the worker. It returns ErrEnded if there is none any more.
func (r *Rig) Dispatch(ctx context.Context, items []schema.DispatchItem) ([]schema.Verdict, error) {
	select {
	case <-r.done:
		return nil, errors.Join(ErrEnded, r.err)
	default:
	}
	reply, err := r.Client.Dispatch(ctx, r.Worker.ID(), &schema.Dispatch{Pool: r.pool, Epoch: 1, Items: items})
	if err != nil {
		return nil, err
	}
	return reply.Verdicts, nil
}

// Purge empties the streams, whose growth is the server's own business.
func (r *Rig) Purge(ctx context.Context) error {
	for _, name := range []string{streams.Events, streams.Steps, streams.Tokens} {
		s, err := r.Client.JetStream().Stream(ctx, name)
		if err == nil {
			err = s.Purge(ctx)
		}
		if err != nil {
			return fmt.Errorf("enginecore: purging %s: %w", name, err)
		}
	}
	return nil
}

// Metrics returns the worker's counters and gauges without labels, by name.
func (r *Rig) Metrics() (map[string]float64, error) {
	families, err := r.registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("enginecore: reading metrics: %w", err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) > 0 {
				continue
			}
			if c := m.GetCounter(); c != nil {
				out[f.GetName()] = c.GetValue()
			}
			if g := m.GetGauge(); g != nil {
				out[f.GetName()] = g.GetValue()
			}
		}
	}
	return out, nil
}
