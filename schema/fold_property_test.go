package schema

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestFoldAnyInterleaving folds one history in several of the orders that its log could have had. Any part of a log
// must fold to the state that the same events in another order fold to, and to what the oracle says; and nothing is
// unfinished in the end.
func TestFoldAnyInterleaving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		all := make([]int, len(h.events))
		for i := range all {
			all[i] = i
		}
		order := h.order(t, all)
		log := h.log(order)
		check := func(log []Stored, s *State) *view {
			v := viewOf(log, s)
			if want := oracle(log); !reflect.DeepEqual(v, want) {
				t.Fatalf("the fold says\n%v\nthe oracle\n%v\nof\n%s", v, want, show(log))
			}
			return v
		}
		s := fold(NewState(), log)
		check(log, s)
		if len(s.Requests) > 0 {
			t.Fatalf("unfinished in the end: %v\nof\n%s", dump(s), show(log))
		}

		part := rapid.IntRange(0, len(order)).Draw(t, "part")
		prefix := fold(NewState(), log[:part])
		want := check(log[:part], prefix)
		other := h.log(h.order(t, order[:part]))
		if got := check(other, fold(NewState(), other)); !reflect.DeepEqual(got, want) {
			t.Fatalf("one order of the events says\n%v\nthe other\n%v\nof\n%s\nand\n%s", want, got, show(log[:part]), show(other))
		}

		// A reader that goes on from a state, and starts a little before it.
		again := rapid.IntRange(0, part).Draw(t, "again")
		if rest := fold(prefix, log[again:]); !reflect.DeepEqual(rest, s) {
			t.Fatalf("in two parts: %v\nin one: %v\nof\n%s", dump(rest), dump(s), show(log))
		}
	})
}

func fold(s *State, log []Stored) *State {
	for i := range log {
		s.Apply(&log[i])
	}
	return s
}

// view is what a state says, whatever the order of the log was: epochs are named by the time of their event.
type view struct {
	Requests   map[RequestID]*RequestState
	Workers    map[WorkerID]*WorkerLife
	Epoch      map[string]int64
	RequestSeq map[string]uint64
	Settled    []RequestID
}

func (v *view) String() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(v.Requests)) {
		fmt.Fprintf(&b, "%+v\n", *v.Requests[id])
	}
	for _, id := range slices.Sorted(maps.Keys(v.Workers)) {
		fmt.Fprintf(&b, "%+v\n", *v.Workers[id])
	}
	fmt.Fprintf(&b, "epoch %v, request_seq %v, settled %v", v.Epoch, v.RequestSeq, v.Settled)
	return b.String()
}

func viewOf(log []Stored, s *State) *view {
	v := &view{Requests: s.Requests, Workers: s.Workers, Epoch: map[string]int64{}, RequestSeq: s.RequestSeq}
	for pool, seq := range s.Epoch {
		v.Epoch[pool] = log[seq-1].Time
	}
	v.Settled = slices.Sorted(maps.Keys(s.settled.ids))
	return v.clone()
}

// clone keeps a view from changing with the state that it was taken of.
func (v *view) clone() *view {
	c := *v
	c.Requests, c.Workers, c.RequestSeq = map[RequestID]*RequestState{}, map[WorkerID]*WorkerLife{}, maps.Clone(v.RequestSeq)
	for id, r := range v.Requests {
		c.Requests[id] = new(*r)
	}
	for id, w := range v.Workers {
		c.Workers[id] = new(*w)
	}
	return &c
}

// oracle says what a log says by reading all of it for each request, worker and pool.
func oracle(log []Stored) *view {
	v := &view{
		Requests: map[RequestID]*RequestState{}, Workers: map[WorkerID]*WorkerLife{},
		Epoch: map[string]int64{}, RequestSeq: map[string]uint64{},
	}
	first := func(log []Stored, match func(*Stored) bool) *Stored {
		for i := range log {
			if match(&log[i]) {
				return &log[i]
			}
		}
		return nil
	}
	lost := func(log []Stored, w WorkerID) bool {
		return first(log, func(e *Stored) bool { return e.Type == WorkerDown && e.Worker == w }) != nil
	}
	// lastAttempt returns the dispatched event of the request's highest attempt.
	lastAttempt := func(log []Stored, id RequestID) *Stored {
		var last *Stored
		for i := range log {
			if e := &log[i]; e.Type == Dispatched && e.Request == id && (last == nil || e.Attempt > last.Attempt) {
				last = e
			}
		}
		return last
	}
	settles := func(i int) bool {
		e, before := &log[i], log[:i]
		if e.Type != Finished && e.Type != Failed && e.Type != Cancelled {
			return false
		}
		last := lastAttempt(before, e.Request)
		return (e.Worker == "" || !lost(before, e.Worker)) && (last == nil || e.Attempt >= last.Attempt)
	}
	ids := map[RequestID]bool{}
	for i := range log {
		e := &log[i]
		switch e.Type {
		case Accepted:
			v.RequestSeq[e.Pool] = max(v.RequestSeq[e.Pool], e.RequestSeq)
		case Epoch:
			v.Epoch[e.Pool] = e.Time
		case WorkerUp:
			if v.Workers[e.Worker] == nil && !lost(log, e.Worker) {
				v.Workers[e.Worker] = &WorkerLife{ID: e.Worker, Pool: e.Pool, Model: e.Model, UpAt: e.StoredAt}
			}
		}
		if e.Request != "" {
			ids[e.Request] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		settled := false
		for i := range log {
			settled = settled || (log[i].Request == id && settles(i))
		}
		if settled {
			v.Settled = append(v.Settled, id)
			continue
		}
		of := func(typ Type) *Stored {
			return first(log, func(e *Stored) bool { return e.Type == typ && e.Request == id })
		}
		accepted, wish, last := of(Accepted), of(CancelRequested), lastAttempt(log, id)
		if accepted == nil && wish == nil && last == nil {
			continue
		}
		r := &RequestState{ID: id, Phase: PhaseUnknown}
		if accepted != nil {
			r.Phase, r.Pool, r.Tenant, r.Ingress = PhaseQueued, accepted.Pool, accepted.Tenant, accepted.Ingress
			r.RequestSeq, r.AcceptedAt, r.Budget, r.Grace = accepted.RequestSeq, accepted.StoredAt, accepted.Budget, accepted.Grace
			r.PromptTokens, r.MaxTokens = accepted.PromptTokens, accepted.MaxTokens
		}
		if last != nil {
			r.Phase, r.Attempt, r.Worker, r.Resume = PhaseDispatched, last.Attempt, last.Worker, last.Resume
			if lost(log, last.Worker) {
				r.Phase = PhaseLost
			}
		}
		if wish != nil {
			r.Cancel, r.CancelAt = CancelReason(wish.Reason), wish.StoredAt
		}
		v.Requests[id] = r
	}
	return v
}

// show writes a log for a person.
func show(log []Stored) string {
	var b strings.Builder
	for i := range log {
		e := &log[i]
		fmt.Fprintf(&b, "%3d %-17s", e.Seq, e.Type)
		if e.Request != "" {
			fmt.Fprintf(&b, " %s", scenarioName(e.Request))
		}
		if e.Attempt != 0 {
			fmt.Fprintf(&b, " attempt=%d", e.Attempt)
		}
		if e.Worker != "" {
			fmt.Fprintf(&b, " worker=%s", e.Worker)
		}
		fmt.Fprintf(&b, "  [%s, event %d]\n", e.Source, e.StoredAt)
	}
	return b.String()
}
