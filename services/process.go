package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/streams"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// dialer connects services of this process to the streams.
type dialer struct {
	cfg      streams.Config
	embedded func() *streams.Server // nil: an external server
	log      *slog.Logger
}

// dial connects under a name and makes sure that the streams exist.
func (d dialer) dial(ctx context.Context, name string, onReconnect func()) (*streams.Client, error) {
	cfg := d.cfg
	cfg.Name = "cadence-" + name
	cfg.Limits = streams.DefaultLimits()
	var srv *streams.Server
	if d.embedded != nil {
		srv = d.embedded()
	}
	c, err := streams.Connect(ctx, cfg, srv, d.log, onReconnect)
	if err != nil {
		return nil, err
	}
	for {
		once, cancel := context.WithTimeout(ctx, cfg.Timeout)
		err = c.Setup(once)
		cancel()
		if err == nil || errors.Is(err, streams.ErrConfig) || ctx.Err() != nil {
			break
		}
		d.log.Warn("waiting for JetStream", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// newRegistry has what the Go runtime and the process tell.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// OpsFlags are for whoever watches a process.
type OpsFlags struct {
	MetricsListen string `help:"address that serves /metrics, /health and /ready of this process; empty: none" placeholder:"HOST:PORT"`
	Pprof         bool   `help:"serve /debug/pprof/ on metrics-listen too"`
}

// readiness is what /ready says: yes from when everything of the process is up until it is told to stop.
type readiness struct {
	ctx context.Context // of the process
	up  atomic.Bool
}

func (r *readiness) ready() bool { return r.up.Load() && r.ctx.Err() == nil }

// component serves what an operator asks of a process.
func (f *OpsFlags) component(registry *prometheus.Registry, process *readiness) Component {
	return Component{Name: "metrics", StopWithin: 2 * time.Second, Run: func(ctx context.Context, up func()) error {
		if f.MetricsListen == "" {
			up()
			<-ctx.Done()
			return nil
		}
		l, err := net.Listen("tcp", f.MetricsListen)
		if err != nil {
			return fmt.Errorf("metrics-listen: %w", err)
		}
		srv := &http.Server{Handler: f.handler(registry, process), ReadHeaderTimeout: 5 * time.Second}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		up()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
			return srv.Close()
		}
	}}
}

// handler answers an operator.
func (f *OpsFlags) handler(registry *prometheus.Registry, process *readiness) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !process.ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	if f.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// waitUntil calls then once ok holds, unless ctx ends first.
func waitUntil(ctx context.Context, ok func() bool, then func()) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		if ok() {
			then()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
