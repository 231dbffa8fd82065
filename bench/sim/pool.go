package sim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
)

// errLost is returned if the scheduler believes that something was lost, which nothing ever is.
var errLost = errors.New("sim: the scheduler has lost something")

// enqueue hands the scheduler a request from REQUESTS.
func (s *sim) enqueue(r *request) {
	s.requestSeq++
	if s.log != nil {
		s.emitReceived(r)
		s.emitAdmitted(r)
	}
	r.inCore = true
	s.core.Enqueue(core.Request{
		ID: r.id, Model: model, Tenant: r.tenant, Ingress: front, Kind: schema.KindCompletion, Class: r.class,
		PromptTokens: int32(r.rec.PromptTokens), MaxTokens: int32(r.maxNew), MinTokens: int32(s.cfg.minNew(r.maxNew)), Budget: r.budget,
		TTFTBudget: r.first, OnDeadline: s.cfg.OnDeadline, Seq: s.requestSeq, StoredAt: s.wall(),
		Body: binary.LittleEndian.AppendUint32(nil, r.slot),
	}, s.wall())
	s.pump()
}

// pump does what the core asks for.
func (s *sim) pump() {
	rd := s.core.Ready(s.wall())
	if len(rd.Events) > 0 {
		s.group = rd.Events
		s.after(s.cfg.Latency.Append, appended, 0, 0)
	}
	for _, d := range rd.Dispatches {
		w := s.byID[d.Worker]
		w.dispatch = d
		s.after(s.cfg.Latency.Dispatch, dispatched, w.index, 0)
	}
	for i := range rd.Cancels {
		if r := s.live[rd.Cancels[i].Request]; r != nil {
			s.after(s.cfg.Latency.Dispatch, cancelSent, r.slot, r.gen)
		}
	}
	for i := range rd.Chunks {
		if r := s.live[rd.Chunks[i].Chunk.Request]; r != nil && r.open {
			r.fault = rd.Chunks[i].Chunk.Error.Code
			s.after(s.cfg.Latency.Token, told, r.slot, r.gen)
		}
	}
	for i := range rd.Ended {
		r := s.live[rd.Ended[i].Request]
		if r == nil {
			s.fail(fmt.Errorf("%w: a request that nobody knows has ended", errLost))
			return
		}
		if r.inCore = false; r.queued {
			s.unqueue(r)
		}
		s.release(r)
	}
	if rd.Deposed || len(rd.Seals) > 0 || len(rd.DeadLetters) > 0 || len(rd.Gone) > 0 {
		s.fail(fmt.Errorf("%w: %d workers, %d requests that cannot be read", errLost, len(rd.Gone), len(rd.DeadLetters)))
	}
}

// appended stores the group in flight, and lets the scheduler read in the log what it must.
func (s *sim) appended() {
	for _, e := range s.group {
		s.stored.Event = *e
		s.store()
	}
	s.group = nil
	s.core.Appended()
	s.pump()
}

// cancelStored brings the durable wish of a client that has gone.
func (s *sim) cancelStored(r *request) {
	s.stored.Event = s.front(schema.CancelRequested, r)
	s.stored.Reason = string(schema.CancelDisconnect)
	s.store()
	s.core.Event(&s.stored, s.wall())
	s.pump()
}

// workerEnded brings the last of a request to its client and its terminal event to the scheduler.
func (s *sim) workerEnded(r *request) {
	s.stored.Event = r.terminal
	s.store()
	s.core.Event(&s.stored, s.wall())
	switch {
	case !r.open: // has gone
	case r.terminal.Type == schema.Finished:
		s.answered(r)
	default:
		s.closed(r, r.terminal.Type, r.terminal.Reason, r.terminal.Message)
	}
	s.pump()
}
