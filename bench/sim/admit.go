package sim

import (
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// Admit decides on a request at its arrival, as a pure admission controller would. What it is given is lent for the call.
type Admit func(*Arrival) Decision

// Decision is what Admit says.
type Decision struct {
	Refuse     bool
	Reason     schema.RefusalReason // of a refusal
	RetryAfter time.Duration        // of a refusal; 0: none
	Bound      time.Duration        // on the latency; 0: none
	Predicted  time.Duration        // latency; 0: not known
	Class      schema.Class         // that it is let in with; empty: the one it came with
	Note       string               // kept in record.Request.Decision
}

// Arrival is what is known of a request when it arrives. How long its answer will be is not.
type Arrival struct {
	Now                 time.Duration
	Index               int
	Tenant, Class, Kind string
	Prompt              []int32
	CapTokens           int
	SLO                 record.SLO
	Pool                View
	// Cached returns how many tokens of the prompt the worker of an index in Pool.Workers has in its prefix cache; for the call only.
	Cached func(worker int) int
}

// View is the state of the pool.
type View struct {
	// Waiting requests are admitted and not dispatched; their prompts and caps together.
	Waiting, WaitingPromptTokens, WaitingCapTokens int
	// Queue are those that wait, in the order of their arrival, whatever the order of the scheduler.
	Queue   []Waiting
	Workers []WorkerView // by id
}

// Waiting is a request that was admitted and is not at a worker.
type Waiting struct {
	Index        int
	Class, Kind  string
	PromptTokens int
	CapTokens    int
	Arrived      time.Duration
}

// WorkerView is the state of one worker.
type WorkerView struct {
	ID       schema.WorkerID
	Slots    int // requests that it takes at once
	Requests []Running
	Usage    batch.Usage
	// Step is how long the present step takes, as the worker expects; if Idle, how long the last one took, 0: there was none.
	Step      time.Duration
	Idle      bool
	StepSince time.Duration // when the present step began; unless Idle
	// StepLeft is how long the present step still takes, as the worker expects, > 0; 0: Idle.
	StepLeft time.Duration
	Slow     float64 // by how much steps took longer lately than the worker believes, > 0
}

// Running is a request at a worker.
type Running struct {
	Index         int
	Class, Kind   string
	PromptTokens  int
	PrefillTokens int // still to be computed of the prompt, and after a preemption of the answer; all of it before the first step
	OutputTokens  int // generated
	CapTokens     int
	Arrived       time.Duration
}

// view brings the snapshot up to date.
func (s *sim) view(v *View) {
	v.Waiting, v.WaitingPromptTokens, v.WaitingCapTokens = s.waiting, s.waitingPrompt, s.waitingCap
	v.Queue = v.Queue[:0]
	for r := s.first; r != nil; r = r.next {
		v.Queue = append(v.Queue, Waiting{Index: r.rec.Index, Class: r.rec.Class, Kind: r.rec.Kind, PromptTokens: r.rec.PromptTokens, CapTokens: r.maxNew,
			Arrived: r.rec.Intended})
	}
	if v.Workers == nil {
		v.Workers = make([]WorkerView, len(s.workers))
	}
	for i, w := range s.workers {
		x := &v.Workers[i]
		*x = WorkerView{ID: w.id, Slots: w.plan.MaxBatch, Requests: x.Requests[:0], Usage: w.planner.Usage(), Step: w.took, Idle: !w.busy, StepSince: w.began, Slow: w.slow}
		if w.busy {
			x.Step = time.Duration(w.slow * float64(w.says))
			x.StepLeft = max(1, w.began+x.Step-s.now)
		}
		for _, r := range w.reqs {
			x.Requests = append(x.Requests, Running{Index: r.rec.Index, Class: r.rec.Class, Kind: r.rec.Kind, PromptTokens: r.rec.PromptTokens,
				PrefillTokens: max(0, r.feed-r.fed), OutputTokens: r.generated, CapTokens: r.maxNew, Arrived: r.rec.Intended})
		}
	}
}
