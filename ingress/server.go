package ingress

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// Deps is what a Server works with. The caller keeps all of it, and closes Client after Run has returned.
type Deps struct {
	Client *streams.Client
	Models []Model // at least one
	// Cached tells how many of a prompt's tokens a worker has cached, by the digest that it sent; nil: none are expected to be.
	Cached func(d *schema.PrefixDigest, tenant string, prompt []int32) int
	// Registry takes the server's metrics, and /metrics shows all of it.
	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Server is one ingress. It is made by New and lives through one Run; its other methods are for any goroutine.
type Server struct {
	cfg      Config
	id       schema.IngressID
	client   *streams.Client
	registry *prometheus.Registry
	log      *slog.Logger
	models   *catalogue
	tenants  *tenants
	cors     *cors
	limits   openai.Limits
	tls      *tls.Config
	born     time.Time

	gate    *gate
	desk    *desk
	fleet   *fleet
	relay   *relay
	metrics *metrics
	samples samples
	loaders map[string]*ModelLoader // by pool

	listener atomic.Pointer[listener]
	events   *streams.EventWriter
	// maxPending bounds the events that are not stored yet: several of each request that may be open, twice.
	maxPending int

	stopped    context.Context // ends when nothing of the server is left to do
	stop       context.CancelFunc
	background sync.WaitGroup
	filling    chan struct{} // a seat for each goroutine that reads TOKENS
	beatNow    chan struct{}
}

// New makes a server. It returns ErrConfig for a configuration or a model that cannot work.
func New(cfg Config, d Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(d.Models) == 0 {
		return nil, fmt.Errorf("%w: no model is given", ErrConfig)
	}
	s := &Server{
		cfg: cfg, id: cfg.ID, client: d.Client, registry: d.Registry, log: d.Log.With("component", "ingress"),
		cors: newCORS(cfg.CORSOrigins), limits: cfg.limits(), born: time.Now(),
		fleet: newFleet(), relay: newRelay(), loaders: map[string]*ModelLoader{},
		maxPending: max(1<<16, 8*cfg.MaxOpen),
		filling:    make(chan struct{}, fillers), beatNow: make(chan struct{}, 1),
	}
	if s.id == "" {
		var b [6]byte
		_, _ = rand.Read(b[:]) // never fails
		s.id = schema.IngressID("in-" + hex.EncodeToString(b[:]))
	}
	var err error
	if s.gate, err = newGate(&s.cfg); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if s.desk, err = newDesk(&s.cfg, s.born, d.Cached, s.random()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if s.tenants, err = newTenants(cfg.APIKeys); err != nil {
		return nil, err
	}
	if s.models, err = newCatalogue(d.Models); err != nil {
		return nil, err
	}
	if cfg.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("%w: tls-cert %s, tls-key %s: %w", ErrConfig, cfg.TLSCert, cfg.TLSKey, err)
		}
		s.tls = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	if s.metrics, err = newMetrics(d.Registry, s); err != nil {
		return nil, err
	}
	return s, nil
}

// ID names this life of the ingress.
func (s *Server) ID() schema.IngressID { return s.id }

// Addr is where clients connect; nil before Run is ready.
func (s *Server) Addr() net.Addr {
	if l := s.listener.Load(); l != nil {
		return l.Addr()
	}
	return nil
}

// since is the time since the server was made; clock is it in nanoseconds.
func (s *Server) since() time.Duration { return time.Since(s.born) }
func (s *Server) clock() int64         { return int64(s.since()) }

func (s *Server) connections() int {
	if l := s.listener.Load(); l != nil {
		return l.count()
	}
	return 0
}

func (s *Server) pendingEvents() int {
	if s.listener.Load() == nil { // events is set before it
		return 0
	}
	return s.events.Pending()
}

// Run serves until ctx ends, then drains (see drain) and returns nil. It calls ready once it takes connections; whether
// there is a worker for them is GET /ready's to say. It returns an error if it cannot start or the listener fails.
func (s *Server) Run(ctx context.Context, ready func()) (err error) {
	tcp, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("ingress: listening on %s: %w", s.cfg.Listen, err)
	}
	ln := newListener(tcp, s.tls, s.cfg.MaxConnections, s.cfg.WriteTimeout, tooManyConnections())
	// What runs until the end outlives ctx: streams go on while the server drains.
	s.stopped, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.events = s.client.NewEventWriter(s.stopped, s.maxPending, nil)
	s.listener.Store(ln)
	app := s.routes()
	app.Handler() // builds the routing table
	served := make(chan error, 1)

	subscriptions, err := s.subscribe()
	if err == nil {
		s.background.Go(func() { s.watch(s.stopped) })
		s.background.Go(func() { s.pulse(s.stopped) })
		s.background.Go(func() { served <- app.Server().Serve(ln) })
		s.log.Info("listening", "address", ln.Addr().String(), "ingress", s.id, "tls", s.tls != nil)
		ready()
		select {
		case <-ctx.Done():
			s.drain()
		case err = <-served:
			err = fmt.Errorf("ingress: serving: %w", err)
		}
	}
	for _, a := range s.relay.all(nil) {
		s.close(a, schema.CancelDrain)
	}
	flush, cancel := context.WithTimeout(s.stopped, flushTimeout)
	err = errors.Join(err, s.events.Close(flush))
	cancel()
	// The listener goes last: until now, whoever came was told to come back later.
	last, cancel := context.WithTimeout(s.stopped, closeTimeout)
	if app.ShutdownWithContext(last) != nil {
		s.log.Warn("connections cut", "connections", ln.count())
	}
	cancel()
	_ = ln.Close()
	ln.sever()
	for _, sub := range subscriptions {
		_ = sub.Unsubscribe() // the connection may be gone
	}
	s.stop()
	s.background.Wait()
	return err
}

const (
	flushTimeout = 5 * time.Second // of storing the last events
	closeTimeout = 2 * time.Second // of connections that still write their responses
	errorTimeout = 2 * time.Second // of cut streams, for their error events
)

// subscribe makes the server reachable for tokens, seals, heartbeats and states.
func (s *Server) subscribe() (subs []*nats.Subscription, err error) {
	add := func(sub *nats.Subscription, e error) {
		if sub != nil {
			subs = append(subs, sub)
		}
		err = errors.Join(err, e)
	}
	add(s.client.SubscribeWorkerStates(func(w *schema.WorkerState) {
		s.fleet.heard(w, time.Now())
		s.desk.beat(w, s.since())
	}))
	add(s.client.SubscribeIngressStates(func(i *schema.IngressState) { s.desk.peer(i, s.since()) }))
	add(s.client.SubscribePoolStates(func(p *schema.PoolState) { s.desk.waiting(p, s.since()) }))
	add(s.client.SubscribeEngineStates(s.onEngine))
	add(s.client.SubscribeChunks(s.id, s.onChunk))
	add(s.client.ServeSeal(s.id, s.seal))
	if err != nil {
		err = fmt.Errorf("ingress: subscribing: %w", err)
	}
	return subs, err
}

// drain ends the server's work in order: from now on it is not ready and refuses new requests, while the listener stays
// open; running streams go on, for as long as they may; the rest is cancelled and told so.
func (s *Server) drain() {
	empty := s.gate.close()
	select {
	case s.beatNow <- struct{}{}:
	default:
	}
	open, _, _ := s.gate.count()
	s.log.Info("draining", "open", open, "limit", s.cfg.DrainTimeout)
	if wait(empty, s.cfg.DrainTimeout) {
		return
	}
	open, _, _ = s.gate.count()
	s.log.Warn("cutting what is left", "open", open)
	for _, a := range s.relay.all(nil) {
		s.cut(a, schema.FailedCancelled, errDrained, schema.CancelDrain)
	}
	wait(empty, errorTimeout)
}

// wait waits for a channel to close, not longer than limit.
func wait(done <-chan struct{}, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// tooManyConnections is the response to a connection beyond the limit.
func tooManyConnections() []byte {
	e := refusal(schema.RefusedCapacity, time.Second)
	body := append(e.AppendJSON(nil), '\n')
	return append([]byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\nRetry-After: "+
		strconv.Itoa(e.RetryAfter)+"\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"), body...)
}
