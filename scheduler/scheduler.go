package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/scheduler/lease"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrDeposed is returned by Run when another scheduler has claimed the pool. Nothing is lost by it: the process may
// end, or make a new Scheduler and claim the pool back.
var ErrDeposed = errors.New("scheduler: another scheduler has the pool")

const (
	// tickEvery is how often time passes for the core.
	tickEvery = 50 * time.Millisecond
	// observeEvery is how often gauges are set: that looks at every waiting request.
	observeEvery = time.Second
	// reread is how far before the last accepted request REQUESTS is read again: more than a group of events that was cut in
	// the middle can hold.
	reread = 4096
	// backlog is how many events may gather behind the append in flight before REQUESTS is not read for a while.
	backlog = 1024
	// askers bounds the seals, and the dead letters, that are asked at a time.
	askers = 16
)

// appender is a claim on a pool: see streams.Appender.
type appender interface {
	Epoch() uint64
	Append(ctx context.Context, events []*schema.Event) ([]uint64, error)
	Renew(ctx context.Context, taken uint64, now time.Time) error
}

// Scheduler schedules one pool. Several may share a client.
type Scheduler struct {
	cfg     Config
	client  *streams.Client
	lease   lease.Lease
	log     *slog.Logger
	metrics *metrics
	serving atomic.Bool
	// renewEvery is how often the claim is looked at: long before EVENTS has turned over by half.
	renewEvery time.Duration
	// claim takes the pool over.
	claim func(ctx context.Context) (appender, error)
}

// New returns a scheduler that is not running yet. It registers its metrics with reg, until Run returns. It returns
// ErrConfig for a configuration that cannot work.
func New(cfg Config, client *streams.Client, l lease.Lease, reg prometheus.Registerer, log *slog.Logger) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		id, err := schema.NewID(time.Now(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("scheduler: %w", err)
		}
		cfg.Name = "scheduler-" + id
	}
	m, err := newMetrics(cfg.Pool, reg)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{cfg: cfg, client: client, lease: l, metrics: m, renewEvery: 10 * time.Second, log: log.With("component", "scheduler", "pool", cfg.Pool)}
	s.claim = func(ctx context.Context) (appender, error) {
		return client.ClaimPool(ctx, cfg.Pool, cfg.Name, time.Now())
	}
	return s, nil
}

// Ready reports whether the scheduler has taken over what the last one left, serves its pool and reaches the streams. It
// may be called from any goroutine.
func (s *Scheduler) Ready() bool { return s.serving.Load() && s.client.Connected() }

// Run serves the pool until ctx ends; then it finishes the append in flight and returns nil. It calls ready, if not nil, once
// it has taken over what the last scheduler left. It returns ErrDeposed when another scheduler has claimed the pool. A
// Scheduler runs once.
func (s *Scheduler) Run(ctx context.Context, ready func()) error {
	defer s.metrics.unregister()
	defer s.serving.Store(false)
	held, err := s.lease.Acquire(ctx, s.cfg.Pool)
	if err != nil {
		return ended(ctx, err)
	}
	defer held.Release()
	claim, err := s.claim(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	r, err := s.takeOver(ctx, claim)
	if err != nil {
		return ended(ctx, err)
	}
	r.lost = held.Lost()
	defer r.close()
	if err := r.listen(ctx); err != nil {
		return ended(ctx, err)
	}
	s.serving.Store(true)
	if ready != nil {
		ready()
	}
	return r.loop(ctx)
}

// ended is how a start comes to its end: by itself, or because it was asked to.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// run is one claim on a pool being served. Its owner is the goroutine of Run.
type run struct {
	*Scheduler
	core     *core.Core
	appender appender
	lost     <-chan struct{} // lease
	eventSeq uint64          // of the last event folded
	after    uint64          // in REQUESTS: where to read on
	taken    ledger          // what was taken there before; read-only
	upTo     uint64          // in REQUESTS: everything up to here was accepted and stored; owned by appendGroups
	read     uint64          // in REQUESTS: the owner has taken everything up to here
	settled  atomic.Uint64   // read, when last nothing waited to be stored

	// work ends when the owner has; everything around it ends then.
	work    context.Context
	endWork context.CancelFunc
	wg      sync.WaitGroup

	requests chan *arrival
	inbox    chan any
	groups   chan []*schema.Event
	senders  map[schema.WorkerID]chan core.Dispatch
	tails    []*streams.Tail
	subs     []*nats.Subscription

	appending bool
	echo      echo
	seals     queue[core.Seal]
	letters   queue[core.DeadLetter]
	observed  time.Time
	closings  closings
	teller    teller
}

// arrival is a message of REQUESTS.
type arrival struct {
	request core.Request
	bad     string // why it could not be read
	taken   bool   // by an earlier scheduler
}

// What comes into the inbox, beside *schema.Stored, *schema.WorkerState, *schema.IngressState, *core.Answer and
// *core.SealAnswer.
type (
	appended struct{ err error }
	fenced   struct{ err error }
	buried   struct{ id schema.RequestID }
)

// queue holds what is to be asked, a few at a time.
type queue[T any] struct {
	waiting []T
	asking  int
}

// next returns what to ask now, if anything.
func (q *queue[T]) next() (v T, ok bool) {
	if q.asking >= askers || len(q.waiting) == 0 {
		return v, false
	}
	v, q.waiting = q.waiting[0], q.waiting[1:]
	q.asking++
	return v, true
}

// takeOver folds the log and restores a core from it.
func (s *Scheduler) takeOver(ctx context.Context, claim appender) (*run, error) {
	began := time.Now()
	r := &run{Scheduler: s, appender: claim,
		requests: make(chan *arrival, 256), inbox: make(chan any, 1024), groups: make(chan []*schema.Event, 1),
		senders: map[schema.WorkerID]chan core.Dispatch{}}
	found, err := s.fold(ctx, claim.Epoch(), &r.taken)
	if err != nil {
		return nil, err
	}
	if r.core, err = core.New(s.cfg.core()); err != nil {
		return nil, err
	}
	r.eventSeq = found.State.Seq
	last := found.State.RequestSeq[s.cfg.Pool]
	if last > reread {
		r.after = last - reread
	}
	r.after = max(r.after, r.taken.upTo)
	r.upTo = r.taken.upTo
	live := len(found.Requests)
	r.core.Restore(found, time.Now().UnixNano())
	r.work, r.endWork = context.WithCancel(context.WithoutCancel(ctx))
	r.wg.Go(r.appendGroups)
	r.wg.Go(func() { r.echo.run(r.work, r.client) })
	r.teller = newTeller(last)
	r.wg.Go(r.tellStates)
	s.log.Info("pool claimed", "epoch", claim.Epoch(), "events_to", r.eventSeq, "requests_after", r.after, "requests_live", live, "took", time.Since(began))
	return r, nil
}

// listen starts the readers.
func (r *run) listen(ctx context.Context) error {
	states, err := r.client.SubscribeWorkerStates(func(s *schema.WorkerState) { r.push(s) })
	if err != nil {
		return err
	}
	r.subs = append(r.subs, states)
	fronts, err := r.client.SubscribeIngressStates(func(s *schema.IngressState) { r.push(s) })
	if err != nil {
		return err
	}
	r.subs = append(r.subs, fronts)
	err = r.retry(ctx, func() error {
		t, _, err := r.client.TailEvents(r.work, r.eventSeq, core.LiveTypes, func(e *schema.Stored, _ uint64) { r.push(e) }, r.badEvent)
		if err == nil {
			r.tails = append(r.tails, t)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.retry(ctx, func() error {
		t, err := r.client.TailRequests(r.work, r.cfg.Pool, r.after, r.arrive)
		if err == nil {
			r.tails = append(r.tails, t)
		}
		return err
	})
}

// arrive reads a message of REQUESTS, on the reader's goroutine.
func (r *run) arrive(m streams.StoredRequest) {
	q, err := decode(m)
	a := &arrival{request: q, taken: r.taken.has(q.Seq, q.ID)}
	if err != nil {
		a.bad = err.Error()
	}
	select {
	case r.requests <- a:
	case <-r.work.Done():
	}
}

// push hands something to the owner, unless the work has ended.
func (r *run) push(m any) {
	select {
	case r.inbox <- m:
	case <-r.work.Done():
	}
}

// close ends everything around the owner, and waits for it.
func (r *run) close() {
	r.endWork()
	for _, sub := range r.subs {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			r.log.Warn("unsubscribing", "subject", sub.Subject, "error", err)
		}
	}
	for _, t := range r.tails {
		t.Stop()
	}
	close(r.groups)
	for _, ch := range r.senders {
		close(ch)
	}
	r.wg.Wait()
}

// retry repeats what only fails because the streams cannot be reached, until ctx ends.
func (s *Scheduler) retry(ctx context.Context, do func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := do()
		if err == nil || !errors.Is(err, streams.ErrUnavailable) {
			return err
		}
		s.log.Warn("waiting for the streams", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("scheduler: %w: %w", ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}
