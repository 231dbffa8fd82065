package scheduler_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/scheduler"
	"github.com/cadence-slo/cadence/scheduler/lease"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamstest.IgnoreAckWatcher()) }

const (
	pool  = "p"
	model = "m"
	// patience bounds every wait: only a failing test takes so long.
	patience = 30 * time.Second
)

// rig is a server with a log that is being read.
type rig struct {
	t      *testing.T
	server *streamstest.Server
	client *streams.Client

	mu      sync.Mutex
	changed chan struct{} // closed at the next event
	log     []*schema.Stored
	fold    *schema.State
	settled map[schema.RequestID]*schema.Stored
	wrong   error
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, server: streamstest.Start(t), changed: make(chan struct{}), fold: schema.NewState(), settled: map[schema.RequestID]*schema.Stored{}}
	r.client = r.server.Client(t)
	tail, _, err := r.client.TailEvents(t.Context(), 0, nil, r.event, func(seq uint64, _ []byte, err error) { t.Errorf("event %d: %v", seq, err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tail.Stop)
	return r
}

// event holds the log to its rule: no request is ended twice, zombies aside.
func (r *rig) event(e *schema.Stored, _ uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	zombie := r.fold.Down(e.Worker)
	r.fold.Apply(e)
	r.log = append(r.log, e)
	if e.Type.Terminal() && !zombie {
		if was := r.settled[e.Request]; was != nil {
			r.wrong = errors.Join(r.wrong, fmt.Errorf("%s: %s by %s after %s by %s", e.Request, e.Type, e.Source, was.Type, was.Source))
		} else if !r.fold.Settled(e.Request) {
			r.wrong = errors.Join(r.wrong, fmt.Errorf("%s: %s of attempt %d by %s settles nothing", e.Request, e.Type, e.Attempt, e.Source))
		}
		r.settled[e.Request] = e
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// until waits until ok says so; it is asked after every event, under the rig's lock.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		r.mu.Lock()
		done, changed := ok(), r.changed
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, e := range r.log[max(0, len(r.log)-40):] {
				r.t.Logf("%d %s %s.%d %s %s (%s)", e.Seq, e.Type, e.Request, e.Attempt, e.Worker, e.Reason, e.Source)
			}
			r.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// seen waits for an event.
func (r *rig) seen(what string, ok func(*schema.Stored) bool) (found *schema.Stored) {
	r.t.Helper()
	next := 0
	r.until(what, func() bool {
		for ; next < len(r.log); next++ {
			if ok(r.log[next]) {
				found = r.log[next]
				return true
			}
		}
		return false
	})
	return found
}

func of(t schema.Type, id schema.RequestID, attempt uint32) func(*schema.Stored) bool {
	return func(e *schema.Stored) bool { return e.Type == t && e.Request == id && e.Attempt == attempt }
}

// allSettled waits until every request has ended, and checks that each did once.
func (r *rig) allSettled(ids ...schema.RequestID) {
	r.t.Helper()
	r.until("all requests settled", func() bool {
		for _, id := range ids {
			if r.settled[id] == nil {
				return false
			}
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		r.t.Error(r.wrong)
	}
}

func (r *rig) end(id schema.RequestID) schema.Stored {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled[id] == nil {
		return schema.Stored{}
	}
	return *r.settled[id]
}

// running is a scheduler that runs.
type running struct {
	*scheduler.Scheduler
	stop   context.CancelFunc
	result chan error
	client *streams.Client
	reg    *prometheus.Registry
}

// ended returns how many requests the metrics say ended by a type of event.
func (s *running) ended(t *testing.T, typ schema.Type) (n float64) {
	t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "cadence_scheduler_requests_ended_total" && l.GetName() == "type" && l.GetValue() == string(typ) {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

func config() scheduler.Config {
	cfg := scheduler.DefaultConfig()
	cfg.Pool = pool
	cfg.StopTimeout = 10 * time.Second
	return cfg
}

// impatient is for tests in which somebody is lost; loaded machines need the defaults where nobody is.
func impatient() scheduler.Config {
	cfg := config()
	cfg.WorkerLostAfter, cfg.IngressLostAfter = time.Second, time.Second
	return cfg
}

// schedule starts a scheduler with a client of its own and waits until it serves. prepare, if not nil, may change it.
func (r *rig) schedule(cfg scheduler.Config, prepare func(*scheduler.Scheduler)) *running {
	r.t.Helper()
	client := r.server.Client(r.t)
	reg := prometheus.NewRegistry()
	s, err := scheduler.New(cfg, client, lease.Sole{}, reg, slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	if prepare != nil {
		prepare(s)
	}
	ctx, stop := context.WithCancel(context.Background())
	run := &running{Scheduler: s, stop: stop, result: make(chan error, 1), client: client, reg: reg}
	ready := make(chan struct{})
	go func() { run.result <- s.Run(ctx, func() { close(ready) }) }()
	r.t.Cleanup(func() {
		stop()
		select {
		case err := <-run.result:
			if err != nil && !errors.Is(err, scheduler.ErrDeposed) && client.Connected() { // not killed
				r.t.Error(err)
			}
		case <-time.After(patience):
			r.t.Error("scheduler did not stop")
		}
	})
	select {
	case <-ready:
	case err := <-run.result:
		run.result <- err
		r.t.Fatalf("scheduler did not start: %v", err)
	case <-time.After(patience):
		r.t.Fatal("scheduler is not ready")
	}
	return run
}

// halt stops a scheduler and returns what Run did.
func (s *running) halt(t *testing.T) error {
	t.Helper()
	s.stop()
	return s.wait(t)
}

func (s *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.result:
		s.result <- err // for the cleanup
		return err
	case <-time.After(patience):
		t.Fatal("scheduler did not stop")
		return nil
	}
}

// kill ends a scheduler as kill -9 would: its connection is gone first, so that nothing is finished.
func (s *running) kill(t *testing.T) {
	t.Helper()
	s.client.Close()
	s.stop()
	_ = s.wait(t) // whatever it says
}

func waitFor(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("not within %v", patience)
	}
}

// eventually asks again and again: for what no event announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func containsKey(err error, key string) bool { return strings.Contains(err.Error(), ": "+key+" is ") }

// deadLetters returns the ids of what lies in DLQ.
func (r *rig) deadLetters() []string {
	r.t.Helper()
	s, err := r.client.JetStream().Stream(r.t.Context(), streams.DeadLetters)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var ids []string
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, m.Header.Get("ce-id"))
	}
	return ids
}

func newID(t testing.TB) schema.RequestID {
	t.Helper()
	s, err := schema.NewID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return schema.RequestID(s)
}
