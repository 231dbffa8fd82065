package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// Worker runs one engine for a pool. Run it once.
type Worker struct {
	cfg     Config
	client  *streams.Client
	backend Backend
	info    Info
	plan    batch.Config
	log     *slog.Logger
	metrics *metrics

	began  time.Time
	book   *book
	out    *outbox
	engine *engine
	pulse  pulse
	events *streams.EventWriter
	given  *profile.Profile // by the configuration; nil: to be found out
	// settings are told with states; set before the first life.
	settings *schema.EngineSettings

	up atomic.Pointer[life] // nil before the first and after the last worker_up
	// fence has room for one: the present life is over.
	fence chan struct{}
	left  int // requests that the last life left unfinished
}

// New returns a worker for an engine whose model is loaded. The caller closes client and backend after Run has
// returned. It returns ErrConfig, also for a configuration that does not fit the engine.
func New(cfg Config, client *streams.Client, backend Backend, log *slog.Logger, registry prometheus.Registerer) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	info := backend.Info()
	if err := cfg.Fits(info); err != nil {
		return nil, err
	}
	plan := cfg.Planner(info)
	planner, tree, err := cfg.newPlanner(plan)
	if err != nil {
		return nil, fmt.Errorf("%w: for the engine %s: %w", ErrConfig, info.Backend, err)
	}
	given, err := cfg.openProfile()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		given: given, cfg: cfg, client: client, backend: backend, info: info, plan: plan, log: log.With("component", "worker"),
		began: time.Now(), book: newBook(cfg.Pool, info.Vocab, cfg.Remember, plan), out: newOutbox(),
		pulse: pulse{limit: cfg.FenceAfter}, fence: make(chan struct{}, 1),
	}
	inEffect := settings(&cfg, &plan)
	if w.metrics, err = newMetrics(registry, inEffect, w.book, func() *engine { return w.engine }); err != nil {
		return nil, err
	}
	logSettings(w.log, &cfg, &plan, inEffect)
	w.engine = newEngine(backend, planner, w.book, w.out, w.now, w.metrics, cfg.StepSample)
	w.engine.shareAll, w.engine.prefixes.tree = cfg.PrefixSharing == "global", tree
	w.engine.check = invariants || cfg.CheckInvariants
	return w, nil
}

// now is the worker's clock: monotonic, from its making.
func (w *Worker) now() time.Duration { return time.Since(w.began) }

// ID returns the id of the present life, or "" while the worker is not up.
func (w *Worker) ID() schema.WorkerID {
	if l := w.up.Load(); l != nil {
		return l.id
	}
	return ""
}

// Ready reports whether the worker takes requests.
func (w *Worker) Ready() bool {
	l := w.up.Load()
	return l != nil && !l.over.Load() && !w.book.standing().draining
}

// Run serves until ctx ends, then drains: it refuses new requests, lets running ones finish within Config.Grace, and
// says worker_down. It returns nil after a drain, and ErrBackend if the engine broke.
func (w *Worker) Run(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	if err := w.know(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	// What outlives ctx: the drain, and the store of what it says.
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	cancels, err := w.client.SubscribeCancels(func(m *schema.Cancel) { w.book.cancel(m.Request, m.Reason) })
	if err != nil {
		return fmt.Errorf("worker: subscribing to cancels: %w", err)
	}
	downs, err := w.watchDowns(ctx)
	if err != nil {
		return errors.Join(err, cancels.Unsubscribe())
	}
	w.events = w.client.NewEventWriter(rest, 1<<14, nil)
	var kept unconfirmed
	var beating sync.WaitGroup
	beats, stopBeats := context.WithCancel(rest)
	again := resender{kept: &kept, link: w.client, nc: w.client.JetStream().Conn(), now: w.now, log: w.log}
	again.seen = again.nc.Stats().Reconnects
	beating.Go(func() { again.run(beats, w.cfg.Heartbeat) })
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		p := publisher{out: w.out, wire: w.client, events: w.events, kept: &kept, pulse: &w.pulse, now: w.now, model: w.info.Model, log: w.log,
			fence: func(l *life) { w.giveUp(l, frozen) }}
		p.run()
	}()
	beating.Go(func() { heart(beats, w.cfg.Heartbeat, w.cfg.HeartbeatGap, w.book.changed, w.beat) })
	teller := teller{w: w}
	every := min(tellEvery, w.cfg.Heartbeat)
	beating.Go(func() { heart(beats, every, min(tellGap, every), w.book.told, teller.tell) })

	// New requests are refused from the moment that ctx ends, whatever the engine is doing.
	draining := context.AfterFunc(ctx, func() {
		w.book.drain()
		w.log.Info("worker draining", "taken", w.book.standing().slots, "grace", w.cfg.Grace)
	})
	err = errors.Join(w.serve(ctx), w.engine.empty())
	draining()

	// Tokens, then events, then worker_down; each within what a server that does not answer is given.
	ending, giveUp := context.WithTimeout(rest, closeTimeout)
	defer giveUp()
	context.AfterFunc(ending, stop) // an event that waits for room must not wait for ever
	last := w.up.Swap(nil)
	downs.Stop()
	w.out.close()
	select {
	case <-sent:
	case <-ending.Done():
	}
	stopBeats()
	beating.Wait()
	if last != nil && !last.over.Load() {
		err = errors.Join(err, w.events.Emit(w.down(last)))
	}
	err = errors.Join(err, w.events.Close(ending), cancels.Unsubscribe())
	<-sent
	return err
}

// closeTimeout bounds how long the end waits for the server.
const closeTimeout = 5 * time.Second

// serve lives one life after the other, until ctx has ended and what ran has finished, or the engine broke.
func (w *Worker) serve(ctx context.Context) error {
	for {
		l, sub, err := w.begin(ctx)
		if l == nil || err != nil {
			return err
		}
		fenced, err := w.loop(ctx, l)
		if uerr := sub.Unsubscribe(); uerr != nil {
			w.log.Warn("dispatch subscription not ended", "worker_id", string(l.id), "error", uerr)
		}
		var broken error
		w.left, broken = w.engine.discardAll()
		err = errors.Join(err, broken)
		w.metrics.ended.WithLabelValues("abandoned").Add(float64(w.left))
		if fenced && w.healthy() != nil { // nobody needs to wait for our silence
			err = errors.Join(err, w.events.Emit(w.down(l)))
		}
		if !fenced || broken != nil || ctx.Err() != nil {
			return err
		}
	}
}

// begin starts a life: it takes requests under a new id from now on. It waits for the server until ctx ends; then the
// life is nil.
func (w *Worker) begin(ctx context.Context) (*life, *nats.Subscription, error) {
	l, err := newLife(w.cfg.Name)
	if err != nil {
		return nil, nil, err
	}
	w.book.begin(l)
	w.engine.worker = l.id
	w.engine.prefixes.reset(l.key)
	w.engine.rest()
	select { // of the life before
	case <-w.fence:
	default:
	}
	var sub *nats.Subscription
	for {
		w.pulse.beat(w.now())
		if w.healthy() == nil {
			if sub, err = w.client.ServeDispatch(l.id, func(d *schema.Dispatch) *schema.DispatchReply { return w.answer(l, d) }); err == nil {
				break
			}
			w.log.Warn("waiting for the server", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil, nil
		case <-time.After(w.cfg.Heartbeat):
		}
	}
	up := &schema.Event{
		Type: schema.WorkerUp, Time: wall(), Source: string(l.id), Worker: l.id, Pool: w.cfg.Pool, Model: w.info.Model,
		Backend: w.info.Backend, Fingerprint: w.info.Fingerprint, Slots: int32(w.plan.MaxBatch), KVPages: int32(w.plan.Promises()),
		ContextTokens: int32(w.plan.Longest()),
	}
	if err := w.events.Emit(up); err != nil {
		return nil, nil, errors.Join(err, sub.Unsubscribe())
	}
	w.pulse.beat(w.now())
	w.up.Store(l)
	poke(w.book.changed)
	poke(w.book.told)
	w.log.Info("worker up", "worker_id", string(l.id), "pool", w.cfg.Pool, "model", w.info.Model, "backend", w.info.Backend,
		"slots", w.plan.MaxBatch, "kv_pages", w.plan.KVPages, "context_tokens", w.plan.Longest())
	return l, sub, nil
}

// loop runs the engine until the worker has drained, its grace is over, the life is fenced or the engine is broken.
func (w *Worker) loop(ctx context.Context, l *life) (fenced bool, err error) {
	ended := ctx.Done()
	var grace <-chan time.Time
	for busy := true; ; {
		if l.over.Load() || w.pulse.silent(w.now()) {
			w.giveUp(l, frozen)
			return true, nil
		}
		// With work to do, only look at what would end it.
		if busy {
			select {
			case <-ended:
				ended, grace = nil, time.After(w.cfg.Grace)
			case <-grace:
				return false, nil
			default:
			}
		} else {
			select {
			case <-ended:
				ended, grace = nil, time.After(w.cfg.Grace)
			case <-grace:
				return false, nil
			case <-w.book.wake:
			case <-w.engine.due(): // a static batch is not waited for any longer
			case <-w.fence:
				continue
			}
		}
		var drained bool
		if busy, drained, err = w.engine.turn(); err != nil || drained {
			return false, err
		}
	}
}

// answer gives the verdicts on a dispatch to a life. One that is not heard any more takes nothing new, but still says
// what it has: its tokens may have reached a client, so that those attempts must be sealed before they go on elsewhere.
func (w *Worker) answer(l *life, d *schema.Dispatch) *schema.DispatchReply {
	now := w.now()
	over := l.over.Load() || w.pulse.silent(now)
	reply := w.book.offer(l, d, now, over, func(item int, err error) {
		w.log.Warn("dispatched request is invalid", "item", item, "attempt", d.Items[item].Attempt, "error", err)
	})
	for _, v := range reply.Verdicts {
		w.metrics.verdicts.WithLabelValues(string(v)).Inc()
	}
	return reply
}

// frozen is why a silent life ends.
const frozen = "the process was frozen, or cut off from the server"

// giveUp ends a life: nothing of it is heard any more.
func (w *Worker) giveUp(l *life, why string) {
	if l.over.Swap(true) {
		return
	}
	w.log.Warn("worker fenced", "worker_id", string(l.id), "reason", why)
	w.metrics.fenced.Inc()
	select {
	case w.fence <- struct{}{}:
	default:
	}
}

// beat sends a heartbeat, or finds that it comes too late.
func (w *Worker) beat() bool {
	l := w.up.Load()
	if l == nil || l.over.Load() {
		return true
	}
	now := w.now()
	if w.pulse.silent(now) {
		w.giveUp(l, frozen)
		return true
	}
	if err := w.healthy(); err != nil {
		w.giveUp(l, err.Error())
		return true
	}
	if !w.client.Connected() {
		return true
	}
	s := w.book.standing()
	running := min(int(w.engine.running.Load()), s.slots)
	err := w.client.PublishWorkerState(&schema.WorkerState{
		Worker: l.id, Pool: w.cfg.Pool, Model: w.info.Model, Interval: w.cfg.Heartbeat, Draining: s.draining,
		Slots: int32(w.plan.MaxBatch), Running: int32(running), Waiting: int32(s.slots - running),
		ContextTokens: int32(w.plan.Longest()), PageTokens: int32(w.plan.PageTokens), KVPages: int32(w.plan.Promises()),
		KVFreePages: int32(max(0, w.plan.Promises()-s.pages)), KVHighWater: int32(w.engine.highWater.Load()),
	})
	if err != nil {
		w.log.Warn("heartbeat not sent", "error", err)
		return true
	}
	w.pulse.beat(now)
	return true
}

// watchDowns gives up the present life when the log declares it lost.
func (w *Worker) watchDowns(ctx context.Context) (*streams.Tail, error) {
	u, err := w.client.Usage(ctx, streams.Events)
	if err != nil {
		return nil, fmt.Errorf("worker: asking for the end of the log: %w", err)
	}
	t, _, err := w.client.TailEvents(ctx, u.LastSeq, []schema.Type{schema.WorkerDown}, func(e *schema.Stored, _ uint64) {
		if l := w.up.Load(); l != nil && e.Worker == l.id {
			w.giveUp(l, "the scheduler has declared it lost")
		}
	}, func(seq uint64, _ []byte, err error) {
		w.log.Error("event not read", "sequence", seq, "error", err)
	})
	if err != nil {
		return nil, fmt.Errorf("worker: watching the log: %w", err)
	}
	return t, nil
}

// down is the last event of a life.
func (w *Worker) down(l *life) *schema.Event {
	e := &schema.Event{Type: schema.WorkerDown, Time: wall(), Source: string(l.id), Worker: l.id, Pool: w.cfg.Pool, Model: w.info.Model, Reason: string(schema.DownDrained)}
	if w.left > 0 {
		e.Reason, e.Message = string(schema.DownLost), fmt.Sprintf("%d requests were running", w.left)
	}
	return e
}
