package ingress

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

const (
	// beatless is the interval of heartbeats that a worker is taken to have before its first one is heard.
	beatless = 500 * time.Millisecond
	// maxQueued bounds the waiting requests that one decision simulates: behind so many, a request is late whatever else is true.
	maxQueued = 256
	// maxClasses is how many kinds of answers have a distribution of lengths of their own; further ones share.
	maxClasses = 256
	// keepEnded is how long it is remembered that a request has ended, so that an older state does not bring it back.
	keepEnded = 3 * time.Second
	// forget is the silence after which a worker is.
	forget = time.Minute
)

// Why nothing is predicted.
const (
	noteNoEngine  = "no fresh state of an engine"
	noteNoQueue   = "no fresh state of the queue"
	noteNoProfile = "the engine has no profile"
)

// engines is what the engines and the queues before them hold: what workers and schedulers say of it, and what this ingress has let
// in and seen end since. Times are since any fixed moment. It has one owner: see desk.
type engines struct {
	workers map[schema.WorkerID]*engineOf
	order   []*engineOf // by worker
	pools   map[string]*queueOf
	peers   map[schema.IngressID]time.Duration // ingresses, this one too, and until when their last heartbeats hold
	classes *admission.Classes                 // by tenant, kind and cap
	mine    map[schema.RequestID]*admitted
	over    []*admitted // that have ended and are still in mine, in the order of their ends
	open    int         // in mine, that have not ended
	hops    hops
	digest  func(d *schema.PrefixDigest, tenant string, prompt []int32) int // nil: nothing is expected to be cached

	engine predictor.Engine // of see
	fresh  []*engineOf
}

// engineOf is a worker's engine by its latest state.
type engineOf struct {
	worker      schema.WorkerID
	pool, model string
	interval    time.Duration // of heartbeats
	draining    bool
	beat        time.Duration // of the last heartbeat
	heard       bool          // a state was
	at          time.Duration // when it was
	stepLeft    time.Duration
	slow        float64
	freePages   int
	holds       []held
	tokens      int64 // still to be computed for all of them
	over        int   // of holds, that have ended since

	settings *schema.EngineSettings
	base     predictor.Engine // its profile (nil: not known) and plan
	prefixes *schema.PrefixDigest
}

// queueOf is a pool's queue by its latest state.
type queueOf struct {
	heard    bool
	at       time.Duration
	epoch    uint64
	interval time.Duration
	seq      uint64 // of REQUESTS, up to which it was read
	holds    []held
	requests int
	tokens   int64
	over     int         // of holds, that have ended since
	loose    []*admitted // that this ingress has let in and neither the queue nor an engine is known to have, in no order
}

// held is a request in a state.
type held struct {
	predictor.Sequence           // as it was when the state came
	mine               *admitted // nil: another ingress let it in
}

// admitted is a request that this ingress has let in.
type admitted struct {
	id     schema.RequestID
	number uint64             // that court knows it by
	court  *court             // nil: nothing was expected of it
	s      predictor.Sequence // as it was when it came
	at     time.Duration      // when it came
	seq    uint64             // in REQUESTS; 0: not known yet
	room   bool               // it found a free slot
	first  time.Duration      // when its first token was here; 0: it is not
	ended  bool
	end    time.Duration

	outlook predictor.Outlook // what was expected of it; zero: nothing was

	pool   *queueOf
	in     *engineOf // the last that said that it has it
	queued bool      // pool has it
	loose  int       // place in pool.loose, from 1; 0: none
}

func newEngines(digest func(d *schema.PrefixDigest, tenant string, prompt []int32) int) *engines {
	return &engines{workers: map[schema.WorkerID]*engineOf{}, pools: map[string]*queueOf{}, peers: map[schema.IngressID]time.Duration{}, classes: admission.NewClasses(maxClasses),
		mine: map[schema.RequestID]*admitted{}, digest: digest, hops: newHops()}
}

// beat takes a worker's heartbeat, and forgets workers that were silent for long.
func (e *engines) beat(s *schema.WorkerState, now time.Duration) {
	e.order = slices.DeleteFunc(e.order, func(w *engineOf) bool {
		gone := now-max(w.at, w.beat) > forget
		if gone {
			delete(e.workers, w.worker)
			w.release()
		}
		return gone
	})
	w := e.worker(s.Worker)
	w.interval, w.draining, w.beat = s.Interval, s.Draining, now
}

// worker returns what is known of a worker.
func (e *engines) worker(id schema.WorkerID) *engineOf {
	w := e.workers[id]
	if w == nil {
		w = &engineOf{worker: id, interval: beatless}
		e.workers[id] = w
		i, _ := slices.BinarySearchFunc(e.order, id, func(w *engineOf, id schema.WorkerID) int { return cmp.Compare(w.worker, id) })
		e.order = slices.Insert(e.order, i, w)
	}
	return w
}

// pool returns what is known of a pool.
func (e *engines) pool(name string) *queueOf {
	q := e.pools[name]
	if q == nil {
		q = &queueOf{}
		e.pools[name] = q
	}
	return q
}

// running takes what an engine holds. The error is of settings that cannot be read; nothing is predicted of that engine then.
func (e *engines) running(s *schema.EngineState, now time.Duration) error {
	w := e.worker(s.Worker)
	w.pool, w.model, w.heard, w.at = s.Pool, s.Model, true, now
	w.stepLeft, w.slow, w.freePages = s.StepLeft, s.Slow, int(s.FreePages)
	if s.Prefixes != nil {
		w.prefixes = s.Prefixes
	}
	w.release()
	for i := range s.Running {
		r := &s.Running[i]
		h := held{Sequence: e.sequence(r), mine: e.mine[r.Request]}
		w.tokens += int64(h.PrefillTokens) + int64(max(0, h.CapTokens-h.OutputTokens))
		if o := h.mine; o != nil {
			o.in = w
			o.settle()
			switch {
			case o.ended:
				w.over++
			case o.room: // it waited for nobody: this is how long the way is
				e.hops.entered.add(now - o.at)
				o.room = false
			}
		}
		w.holds = append(w.holds, h)
	}
	return w.set(s.Settings)
}

// release forgets what the engine held.
func (w *engineOf) release() {
	for i := range w.holds {
		if o := w.holds[i].mine; o != nil && o.in == w {
			o.in = nil
			o.settle()
		}
	}
	w.holds, w.tokens, w.over = w.holds[:0], 0, 0
}

// set takes an engine's settings, if there are any, and they are new.
func (w *engineOf) set(s *schema.EngineSettings) error {
	if s == nil || w.settings != nil && bytes.Equal(s.Plan, w.settings.Plan) && bytes.Equal(s.Profile, w.settings.Profile) && s.Fingerprint == w.settings.Fingerprint {
		return nil
	}
	w.settings, w.base = s, predictor.Engine{}
	if err := json.Unmarshal(s.Plan, &w.base.Plan); err != nil {
		return fmt.Errorf("ingress: plan of worker %s: %w", w.worker, err)
	}
	if err := w.base.Plan.Validate(); err != nil {
		return fmt.Errorf("ingress: plan of worker %s: %w", w.worker, err)
	}
	if len(s.Profile) == 0 || string(s.Profile) == "null" {
		return nil
	}
	p, err := profile.Decode(s.Profile)
	if err != nil {
		return fmt.Errorf("ingress: profile of worker %s: %w", w.worker, err)
	}
	w.base.Profile = p
	return nil
}

// fingerprint is that of all fresh engines of a pool; empty: it is not known, or they differ.
func (e *engines) fingerprint(pool string, now time.Duration) (f string) {
	for _, w := range e.order {
		switch {
		case w.pool != pool || !w.isFresh(now) || w.settings == nil:
		case f == "":
			f = w.settings.Fingerprint
		case f != w.settings.Fingerprint:
			return ""
		}
	}
	return f
}

// waiting takes what waits for a pool. A state of an older scheduler than the last one heard is dropped while that one is heard.
func (e *engines) waiting(s *schema.PoolState, now time.Duration) {
	q := e.pool(s.Pool)
	if s.Epoch < q.epoch && q.isFresh(now) {
		return
	}
	q.heard, q.at, q.epoch, q.interval, q.seq = true, now, s.Epoch, s.Interval, s.RequestSeq
	q.requests, q.tokens = int(s.WaitingRequests), s.WaitingPromptTokens+s.WaitingCapTokens
	for i := range q.holds {
		if o := q.holds[i].mine; o != nil {
			o.queued = false
			o.settle()
		}
	}
	q.holds, q.over = q.holds[:0], 0
	for i := range s.Waiting {
		r := &s.Waiting[i]
		h := held{Sequence: e.sequence(r), mine: e.mine[r.Request]}
		if h.PrefillTokens == 0 {
			h.PrefillTokens = h.PromptTokens + h.OutputTokens
		}
		if o := h.mine; o != nil {
			o.queued = true
			o.settle()
			if o.ended {
				q.over++
			}
		}
		q.holds = append(q.holds, h)
	}
}

// sequence is a request for the predictor, as old as the state.
func (e *engines) sequence(r *schema.SequenceState) predictor.Sequence {
	objective := func(left time.Duration) time.Duration {
		if left == 0 {
			return 0
		}
		return max(1, r.Age+left)
	}
	return predictor.Sequence{PromptTokens: r.PromptTokens, PrefillTokens: r.PrefillTokens, OutputTokens: r.OutputTokens, CapTokens: r.CapTokens,
		Lengths: e.class(r.Tenant, r.Kind, r.CapTokens), Guaranteed: r.Class == schema.Guaranteed, Age: r.Age,
		E2E: objective(r.Budget), TTFT: objective(r.TTFTBudget)}
}

// class is that of the lengths of a request's answer.
func (e *engines) class(tenant string, kind schema.Kind, limit int32) int32 {
	return e.classes.Of(tenant, string(kind), limit)
}

// peer takes an ingress's heartbeat. One that drains lets nothing in any more.
func (e *engines) peer(s *schema.IngressState, now time.Duration) {
	e.peers[s.Ingress] = now + max(missed*s.Interval, minSilence)
	if s.Draining {
		delete(e.peers, s.Ingress)
	}
	for id, until := range e.peers {
		if until < now {
			delete(e.peers, id)
		}
	}
}

func (w *engineOf) isFresh(now time.Duration) bool {
	return w.heard && now-w.at <= max(missed*w.interval, minSilence)
}

func (q *queueOf) isFresh(now time.Duration) bool {
	return q.heard && now-q.at <= max(missed*q.interval, minSilence)
}

// settle keeps o in its pool's loose ones exactly while it belongs there.
func (o *admitted) settle() {
	q := o.pool
	switch loose := !o.ended && o.in == nil && !o.queued; {
	case loose && o.loose == 0:
		q.loose = append(q.loose, o)
		o.loose = len(q.loose)
	case !loose && o.loose > 0:
		last := len(q.loose) - 1
		q.loose[o.loose-1] = q.loose[last]
		q.loose[o.loose-1].loose = o.loose
		q.loose[last] = nil
		q.loose = q.loose[:last]
		o.loose = 0
	}
}

// admit remembers a request that was let in. One that is known already changes nothing.
func (e *engines) admit(o *admitted, pool string) {
	if e.mine[o.id] != nil {
		return
	}
	o.pool = e.pool(pool)
	e.mine[o.id] = o
	e.open++
	o.settle()
}

// stored notes a request's sequence in REQUESTS, and how long it took to come there.
func (e *engines) stored(id schema.RequestID, seq uint64, now time.Duration) {
	if o := e.mine[id]; o != nil && o.seq == 0 {
		o.seq = seq
		e.hops.stored.add(now - o.at)
	}
}

// started notes that a request's first token is here.
func (e *engines) started(id schema.RequestID, now time.Duration) {
	if o := e.mine[id]; o != nil && o.first == 0 {
		o.first = max(1, now)
	}
}

// end notes that a request is over, and returns it the first time.
func (e *engines) end(id schema.RequestID, now time.Duration) *admitted {
	for len(e.over) > 0 && now-e.over[0].end > keepEnded {
		delete(e.mine, e.over[0].id)
		e.over[0] = nil
		e.over = e.over[1:]
	}
	o := e.mine[id]
	if o == nil || o.ended {
		return nil
	}
	o.ended, o.end = true, now
	if o.in != nil {
		o.in.over++
	}
	if o.queued {
		o.pool.over++
	}
	o.settle()
	e.over = append(e.over, o)
	e.open--
	return o
}
