package schema

import "time"

// Phase is where an unfinished request is.
type Phase uint8

// The phases.
const (
	PhaseUnknown    Phase = iota // only a cancel_requested was seen: its accepted event is still to come
	PhaseQueued                  // accepted, waiting for its first dispatch
	PhaseDispatched              // a worker owns it
	PhaseLost                    // its worker was declared lost: to be sealed and dispatched again
)

// RequestState is what the event log says of one unfinished request.
type RequestState struct {
	ID      RequestID
	Phase   Phase
	Pool    string
	Tenant  string
	Ingress IngressID
	// RequestSeq is where its body lies in REQUESTS.
	RequestSeq   uint64
	AcceptedAt   int64         // store time of the accepted event, ns UTC
	Budget       time.Duration // deadline left at AcceptedAt; 0 is none
	Grace        time.Duration
	PromptTokens int32
	MaxTokens    int32

	Attempt uint32 // the last dispatched; 0 before the first
	Worker  WorkerID
	Resume  Tokens // what the last attempt continued from

	Cancel   CancelReason // empty: not asked for
	CancelAt int64        // store time
}

// WorkerLife is what the event log says of a worker that is up.
type WorkerLife struct {
	ID    WorkerID
	Pool  string
	Model string
	UpAt  int64 // store time of its first worker_up
}

// tombstones is how many settled requests, and how many ended lives of workers, a State remembers, so that late events of
// theirs (an admitted stored after a finished) do not bring them back. At 10,000 requests/s it covers 6 s between two
// writers.
const tombstones = 1 << 16

// recent is a set of the last tombstones ids that were added.
type recent[ID comparable] struct {
	ids  map[ID]struct{}
	ring []ID // of ids, oldest at next once it is full
	next int
}

func newRecent[ID comparable]() recent[ID] { return recent[ID]{ids: map[ID]struct{}{}} }

func (r *recent[ID]) has(id ID) bool { _, ok := r.ids[id]; return ok }

func (r *recent[ID]) add(id ID) {
	if r.has(id) {
		return
	}
	r.ids[id] = struct{}{}
	if len(r.ring) < tombstones {
		r.ring = append(r.ring, id)
		return
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % tombstones
}

// State is the fold of the event log: every unfinished request and every worker that is up. It is a plain value
// owned by one goroutine; the zero value is not usable, see NewState.
type State struct {
	Requests map[RequestID]*RequestState
	Workers  map[WorkerID]*WorkerLife
	// Epoch is the sequence of each pool's last epoch event.
	Epoch map[string]uint64
	// RequestSeq is each pool's highest accepted sequence in REQUESTS: where its scheduler goes on reading.
	RequestSeq map[string]uint64
	// Seq is the sequence of the last event applied.
	Seq uint64

	settled recent[RequestID]
	down    recent[WorkerID]
}

// NewState returns the state before the first event.
func NewState() *State {
	return &State{
		Requests:   map[RequestID]*RequestState{},
		Workers:    map[WorkerID]*WorkerLife{},
		Epoch:      map[string]uint64{},
		RequestSeq: map[string]uint64{},
		settled:    newRecent[RequestID](),
		down:       newRecent[WorkerID](),
	}
}

// Stored is an event with its place in the log.
type Stored struct {
	Event
	Seq      uint64 // in EVENTS
	StoredAt int64  // JetStream's store time, ns UTC
}

// Settled reports whether id ended among the last 65,536 that did.
func (s *State) Settled(id RequestID) bool { return s.settled.has(id) }

// Down reports whether a worker's life is among the last 65,536 that ended: it is not to be given work, and what it still
// says is not believed.
func (s *State) Down(id WorkerID) bool { return s.down.has(id) }

// Apply folds one event into the state. It is pure, ignores what it has seen before (e.Seq ≤ s.Seq), and comes to
// the same state for any interleaving of writers that keeps each writer's own order and cause before effect (a worker
// runs what was stored as dispatched): a request exists from its accepted to its settling event; what comes before
// (cancel_requested) is kept for it and what comes after is dropped. Of a worker that was declared lost, terminal events
// stored after its worker_down are not believed: its requests were sealed and go on elsewhere. (Which of the two comes
// first is what the log decides.)
func (s *State) Apply(e *Stored) {
	if e.Seq <= s.Seq {
		return
	}
	s.Seq = e.Seq
	switch e.Type {
	case WorkerUp:
		if _, again := s.Workers[e.Worker]; !again && !s.Down(e.Worker) {
			s.Workers[e.Worker] = &WorkerLife{ID: e.Worker, Pool: e.Pool, Model: e.Model, UpAt: e.StoredAt}
		}
		return
	case WorkerDown:
		s.workerDown(e.Worker)
		return
	case Epoch:
		s.Epoch[e.Pool] = e.Seq
		return
	case Accepted, Dispatched, CancelRequested, Finished, Failed, Cancelled:
	default:
		return // tells analysts something; changes nothing here
	}
	if e.Type == Accepted {
		s.RequestSeq[e.Pool] = max(s.RequestSeq[e.Pool], e.RequestSeq)
	}
	if s.Settled(e.Request) {
		return
	}
	r := s.Requests[e.Request]
	if e.Type.Terminal() {
		if !s.Down(e.Worker) && (r == nil || e.Attempt >= r.Attempt) {
			s.settle(e.Request)
		}
		return
	}
	if r == nil {
		r = &RequestState{ID: e.Request}
		s.Requests[e.Request] = r
	}
	switch e.Type {
	case Accepted:
		if r.RequestSeq != 0 {
			return
		}
		r.Pool, r.Tenant, r.Ingress, r.RequestSeq = e.Pool, e.Tenant, e.Ingress, e.RequestSeq
		r.AcceptedAt, r.Budget, r.Grace = e.StoredAt, e.Budget, e.Grace
		r.PromptTokens, r.MaxTokens = e.PromptTokens, e.MaxTokens
		if r.Phase == PhaseUnknown {
			r.Phase = PhaseQueued
		}
	case Dispatched:
		if e.Attempt <= r.Attempt {
			return
		}
		r.Attempt, r.Worker, r.Resume, r.Phase = e.Attempt, e.Worker, e.Resume, PhaseDispatched
		if s.Down(e.Worker) {
			r.Phase = PhaseLost
		}
	case CancelRequested:
		if r.Cancel == "" {
			r.Cancel, r.CancelAt = CancelReason(e.Reason), e.StoredAt
		}
	}
}

func (s *State) workerDown(id WorkerID) {
	s.down.add(id)
	delete(s.Workers, id)
	for _, r := range s.Requests {
		if r.Worker == id && r.Phase == PhaseDispatched {
			r.Phase = PhaseLost
		}
	}
}

func (s *State) settle(id RequestID) {
	delete(s.Requests, id)
	s.settled.add(id)
}

// ForgetOrphans drops cancel requests older than the given store time whose accepted event never came: their
// requests were never stored.
func (s *State) ForgetOrphans(before int64) {
	for id, r := range s.Requests {
		if r.Phase == PhaseUnknown && r.CancelAt < before {
			delete(s.Requests, id)
		}
	}
}
