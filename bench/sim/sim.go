package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
)

const (
	// Start is the wall time of a run's beginning, as events tell it: 2026-01-01 00:00:00 UTC.
	Start int64 = 1_767_225_600 * 1_000_000_000

	pool      = "default"
	model     = "simulated"
	front     = "sim-ingress"
	scheduler = "sim-scheduler"
	// tickEvery and beatEvery are the services' own.
	tickEvery = 50 * time.Millisecond
	beatEvery = 250 * time.Millisecond
	// lookEvery is how many events go by before a run looks whether it is to stop.
	lookEvery = 4096
)

// sim is one run.
type sim struct {
	cfg    Config
	run    record.Run
	slos   map[string]record.SLO
	now    time.Duration
	seq    uint64
	events heap
	err    error

	core     *core.Core
	group    []*schema.Event // in flight
	workers  []*worker
	byID     map[schema.WorkerID]*worker
	stored   schema.Stored // scratch
	ingress  schema.IngressState
	nextBeat time.Duration

	live        map[schema.RequestID]*request
	slots       []*request
	free        []uint32
	first, last *request // queued, in the order of their arrival
	// waiting requests are admitted and not at a worker; their prompts and caps together.
	waiting, waitingPrompt, waitingCap int
	keptPrompts                        int // of them, that are in memory
	limits                             fifo
	requestSeq                         uint64 // in REQUESTS
	open                               int    // clients that wait
	offered, done                      int
	arrival                            Arrival // scratch
	gate                               gate
	log                                *log
}

// Run simulates until everything has ended, and describes the run: the caller fills in what only it knows (ID, Arm, Rate,
// Arrivals, Build, …). If ctx ends before, the run is partial and what is open censored. It returns ErrConfig, an error of Sink
// or Events, or one that tells of a broken invariant.
func Run(ctx context.Context, cfg Config) (*record.Run, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &sim{cfg: cfg, slos: cfg.slos(), live: map[schema.RequestID]*request{}, byID: map[schema.WorkerID]*worker{},
		ingress: schema.IngressState{Ingress: front, Interval: beatEvery}, log: newLog(cfg.Events)}
	s.run = record.Run{Version: record.Version, On: "sim", Seed: cfg.Seed, Workload: cfg.Source.Name(), WorkloadSpec: cfg.Source.Describe(),
		SLOs: s.slos, Length: cfg.Length, Warmup: cfg.Warmup, Tail: cfg.Tail, Model: model}
	if p, ok := cfg.Profile.(*profile.Profile); ok {
		s.run.Profile = p.Name
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	for at := range cfg.Arrivals {
		if at >= cfg.Length {
			break
		}
		if cfg.Requests > 0 && s.offered == cfg.Requests {
			s.run.Length = at // rates are of the time that requests arrived in
			break
		}
		if !s.walk(ctx, at) {
			break
		}
		s.now = at
		s.arrive()
	}
	if s.err == nil && ctx.Err() == nil {
		s.drain(ctx)
	}
	s.end(ctx.Err() != nil)
	if s.err != nil {
		return nil, s.err
	}
	return &s.run, nil
}

// after makes an event.
func (s *sim) after(d time.Duration, k kind, slot, gen uint32) {
	s.seq++
	s.events.push(event{at: s.now + d, seq: s.seq, kind: k, slot: slot, gen: gen})
}

// fail stops the run with the first error.
func (s *sim) fail(err error) {
	if s.err == nil && err != nil {
		s.err = err
	}
}

// begin starts the scheduler and the workers.
func (s *sim) begin() error {
	cc := core.DefaultConfig(pool, scheduler)
	cc.Order, cc.Placement, cc.MaxQueueWait = s.cfg.Order, s.cfg.Placement, s.cfg.MaxQueueWait
	c, err := core.New(cc)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s.core = c
	s.stored.Event = schema.Event{Type: schema.Epoch, Time: s.wall(), Source: scheduler, Pool: pool}
	s.store()
	s.core.Restore(core.Restored{State: schema.NewState(), Epoch: s.stored.Seq}, s.wall())
	for i := range s.cfg.Workers {
		w, err := newWorker(s, uint32(i))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
		s.workers = append(s.workers, w)
		s.byID[w.id] = w
		s.stored.Event = w.up()
		s.store()
		s.core.Event(&s.stored, s.wall())
	}
	s.beat()
	s.after(tickEvery, ticked, 0, 0)
	return s.err
}

// wall is the time that events carry.
func (s *sim) wall() int64 { return Start + int64(s.now) }

// walk does what happens up to a time, but not what comes late then, and reports whether the run goes on.
func (s *sim) walk(ctx context.Context, until time.Duration) bool {
	end := event{at: until, seq: late}
	for s.events[0].before(&end) { // there is always a tick
		if !s.step(ctx) {
			return false
		}
	}
	return s.err == nil
}

// step does what happens next.
func (s *sim) step(ctx context.Context) bool {
	e := s.events.pop()
	s.now = e.at
	s.do(&e)
	if s.seq%lookEvery == 0 {
		if s.cfg.Progress != nil {
			s.cfg.Progress(Progress{Now: s.now, Offered: s.offered, Done: s.done})
		}
		if ctx.Err() != nil {
			return false
		}
	}
	return s.err == nil
}

// drain waits for what is open.
func (s *sim) drain(ctx context.Context) {
	last := s.now
	for len(s.live) > 0 {
		if end := s.run.Length + min(s.cfg.Drain, Forever-s.run.Length); s.events[0].at > end {
			s.now = end
			return
		}
		if !s.step(ctx) {
			return
		}
		if len(s.events) > 1 { // besides the tick
			last = s.now
		} else if s.now-last > s.cfg.MaxQueueWait+time.Minute {
			s.fail(fmt.Errorf("%w: %d requests, of which nobody does anything", errLost, len(s.live)))
		}
	}
}

// end closes the books.
func (s *sim) end(partial bool) {
	left := len(s.live)
	if left > 0 { // also of requests whose client has gone: the log ends in the middle
		s.censor()
	}
	for _, w := range s.workers {
		t := w.planner.Totals()
		s.run.PromptTokens += int64(t.PromptTokens)
		s.run.CachedTokens += int64(t.CachedTokens)
		s.run.Preemptions += int64(t.Preemptions)
		if left == 0 {
			s.stored.Event = w.down()
			s.store()
		}
	}
	s.run.Wall, s.run.Partial = s.now, partial
	s.fail(s.log.close())
	if s.cfg.Progress != nil {
		s.cfg.Progress(Progress{Now: s.now, Offered: s.offered, Done: s.done})
	}
}

// do does one event.
func (s *sim) do(e *event) {
	switch e.kind {
	case atScheduler, cancelStored, cancelSent, workerEnded, told, patience, firstHeard:
		r := s.slots[e.slot]
		if r == nil || r.gen != e.gen {
			return // long over
		}
		switch e.kind {
		case atScheduler:
			s.enqueue(r)
		case cancelStored:
			s.cancelStored(r)
		case cancelSent:
			if r.worker != nil {
				r.worker.cancel(r)
			}
		case workerEnded:
			s.workerEnded(r)
		case told:
			s.told(r)
		case patience:
			s.patience(r)
		case firstHeard:
			s.heard(r)
		}
	case appended:
		s.appended()
	case dispatched:
		s.workers[e.slot].offered()
	case answered:
		w := s.workers[e.slot]
		s.core.DispatchAnswer(core.Answer{Worker: w.id, Number: w.dispatch.Number, Result: core.Answered, Verdicts: w.verdicts}, s.wall())
		s.pump()
	case turn:
		s.workers[e.slot].turn()
	case stepped:
		s.workers[e.slot].stepped()
	case timers:
		s.impatient()
	case ticked:
		s.beat()
		s.look()
		s.core.Tick(s.wall())
		s.pump()
		s.after(tickEvery, ticked, 0, 0)
	}
}

// beat sends the heartbeats that are due.
func (s *sim) beat() {
	if s.now < s.nextBeat {
		return
	}
	s.nextBeat = s.now + beatEvery
	s.core.IngressState(&s.ingress, s.wall())
	for _, w := range s.workers {
		s.core.WorkerState(&w.state, s.wall())
		s.core.SetSpeed(w.id, w.speed())
	}
}
