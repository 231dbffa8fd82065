package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/schema"
)

// Reasons of records that the pipeline has no word for.
const (
	// ReasonContext is of an error: the prompt does not fit the workers' context.
	ReasonContext = "context_length"
)

// arrive takes the next request in.
func (s *sim) arrive() {
	w := s.cfg.Source.Request(s.offered)
	r := s.newRequest()
	id, err := schema.NewID(time.Unix(0, s.wall()), bits{s.cfg.Seed, uint64(s.offered)})
	s.fail(err)
	r.id = schema.RequestID(id)
	r.rec = record.Request{Index: s.offered, ID: id, Tenant: w.Tenant, Class: w.Class, Kind: w.Kind, Phase: s.run.PhaseAt(s.now), PromptTokens: len(w.Prompt),
		CapTokens: s.cfg.maxTokens(&w), Intended: s.now, Queued: -1, TTFT: -1, E2E: -1}
	full := s.full()
	s.offered++
	s.open++
	r.open, r.started, r.lastAt, r.prompt = true, -1, s.now, w.Prompt
	if r.tenant = w.Tenant; !schema.ValidName(r.tenant) {
		r.tenant = "default"
	}
	if c := schema.Class(w.Class); c == schema.Guaranteed || c == schema.BestEffort {
		r.class = c
	}
	if full {
		s.turnAway(r)
		s.release(r)
		return
	}
	plan := &s.workers[0].plan
	if len(w.Prompt) == 0 || len(w.Prompt) >= plan.Longest() {
		r.rec.E2E = s.cfg.Latency.Request
		s.close(r, record.Error, ReasonContext)
		s.release(r)
		return
	}
	r.maxNew, _ = plan.Fit(len(w.Prompt), 0, max(1, r.rec.CapTokens))
	r.output = min(max(1, w.Output), r.maxNew)
	slo := record.Objective(s.slos, w.Class)
	if s.cfg.Deadlines && slo.E2E > 0 {
		r.budget = max(1, slo.E2E-s.cfg.Latency.Request)
	}
	if s.cfg.Deadlines && slo.TTFT > 0 {
		r.first = max(1, slo.TTFT-s.cfg.Latency.Request)
	}
	if s.refused(r, slo) {
		s.release(r)
		return
	}
	s.live[r.id] = r
	s.enter(r)
	s.queue(r)
	s.after(s.cfg.Latency.Request, atScheduler, r.slot, r.gen)
	s.watch(r)
}

// refused asks whether a request may come in, and answers it if not.
func (s *sim) refused(r *request, slo record.SLO) bool {
	if s.cfg.Admit == nil {
		return false
	}
	a := &s.arrival
	a.Now, a.Index, a.Tenant, a.Class, a.Kind = s.now, r.rec.Index, r.rec.Tenant, r.rec.Class, r.rec.Kind
	a.Prompt, a.CapTokens, a.SLO = r.prompt, r.maxNew, slo
	s.view(&a.Pool)
	a.Cached = func(i int) int {
		scope := r.tenant
		if s.cfg.ShareAll {
			scope = ""
		}
		return s.workers[i].planner.Cached(scope, r.prompt)
	}
	d := s.cfg.Admit(a)
	a.Prompt = nil
	r.rec.Decision, r.rec.Predicted, r.rec.Bound = d.Note, d.Predicted, d.Bound
	if !d.Refuse {
		r.class = cmp.Or(d.Class, r.class)
		return false
	}
	r.rec.RetryAfter = d.RetryAfter
	s.refuse(r, cmp.Or(d.Reason, schema.RefusedSLO))
	return true
}

// refuse answers a request that may not come in.
func (s *sim) refuse(r *request, reason schema.RefusalReason) {
	r.rec.E2E = s.cfg.Latency.Request
	if s.log != nil {
		s.emitReceived(r)
		s.emitRefused(r, reason)
	}
	s.close(r, record.Shed, string(reason))
}

// close ends a request for its client, whose record is handed on.
func (s *sim) close(r *request, o record.Outcome, reason string) {
	r.open = false
	s.open--
	s.leave(r)
	s.done++
	r.rec.Outcome, r.rec.Reason, r.rec.OutputTokens = o, reason, r.generated
	if r.started >= 0 {
		r.rec.Queued = r.started - r.rec.Intended
	}
	if s.cfg.Sink != nil {
		s.fail(s.cfg.Sink(&r.rec))
	}
}

// closeNow is close at the present time.
func (s *sim) closeNow(r *request, o record.Outcome, reason string) {
	r.rec.E2E = s.now - r.rec.Intended
	s.close(r, o, reason)
}

// gotToken notes a token that a worker has.
func (s *sim) gotToken(r *request, cached int) {
	if r.generated == 1 {
		r.firstAt = s.now
		r.rec.CachedTokens = cached
		if r.open {
			r.rec.TTFT = s.now + s.cfg.Latency.Token - r.rec.Intended
		}
		if r.unheard {
			s.after(s.cfg.Latency.Token, firstHeard, r.slot, r.gen)
		}
		if s.log != nil {
			s.emitFirstToken(r)
		}
	} else if s.cfg.KeepITL && r.open {
		if r.rec.ITL == nil {
			r.rec.ITL = make([]time.Duration, 0, r.output-1)
		}
		r.rec.ITL = append(r.rec.ITL, s.now-r.lastAt)
	}
	r.lastAt = s.now
}

// answered gives a client the last of its answer.
func (s *sim) answered(r *request) {
	s.closeNow(r, record.OK, "")
	if s.log != nil {
		s.emitDelivered(r, schema.OutcomeComplete, "")
	}
}

// closed gives a client the end of an answer that its worker could not give.
func (s *sim) closed(r *request, t schema.Type, reason, message string) {
	r.rec.Err = message
	code := schema.FailureCode(reason)
	if t == schema.Cancelled {
		code = schema.FailedCancelled
	}
	s.heard(r)
	outcome := record.Error
	if code == schema.FailedDeadline && r.generated == 0 {
		outcome = record.Shed
	}
	s.closeNow(r, outcome, string(code))
	if s.log != nil {
		s.emitDelivered(r, schema.OutcomeError, code)
	}
}

// told gives a client the scheduler's word that its request has ended.
func (s *sim) told(r *request) {
	if !r.open {
		return
	}
	outcome := record.Error
	if r.fault == schema.FailedTimeout || r.fault == schema.FailedDeadline { // waited too long in the queue
		outcome = record.Shed
	}
	s.heard(r)
	s.closeNow(r, outcome, string(r.fault))
	if s.log != nil {
		s.emitDelivered(r, schema.OutcomeError, r.fault)
	}
	s.release(r)
}

// watch waits for a client to lose its patience, if it ever does.
func (s *sim) watch(r *request) {
	wait := s.cfg.ClientTimeout
	if read := s.cfg.ReadTimeout; wait == 0 || read > 0 && read < wait {
		wait = read
	}
	if wait == 0 {
		return
	}
	s.limits.push(limit{at: s.now + wait, slot: r.slot, gen: r.gen})
	if s.limits.n == 1 {
		s.after(wait, timers, 0, 0)
	}
}

// impatient looks at those who have waited as long as they will.
func (s *sim) impatient() {
	for s.limits.n > 0 {
		l := s.limits.head()
		r := s.slots[l.slot]
		if over := r.gen != l.gen || !r.open; !over && l.at > s.now {
			s.after(l.at-s.now, timers, 0, 0)
			return
		} else if !over {
			s.patience(r)
		}
		s.limits.pop()
	}
}

// patience lets a client hang up, or waits for as long as it has patience left.
func (s *sim) patience(r *request) {
	if !r.open {
		return
	}
	never := time.Duration(1<<63 - 1)
	until := never
	if s.cfg.ClientTimeout > 0 {
		until = r.rec.Intended + s.cfg.ClientTimeout
	}
	if s.cfg.ReadTimeout > 0 {
		heard := r.rec.Intended
		if r.generated > 0 {
			heard = r.lastAt + s.cfg.Latency.Token
		}
		until = min(until, heard+s.cfg.ReadTimeout)
	}
	if until > s.now {
		s.after(until-s.now, patience, r.slot, r.gen)
		return
	}
	s.closeNow(r, record.Timeout, "")
	if s.log != nil {
		s.emitDelivered(r, schema.OutcomeDisconnected, "")
	}
	s.after(s.cfg.Latency.Append, cancelStored, r.slot, r.gen)
	s.after(s.cfg.Latency.Dispatch, cancelSent, r.slot, r.gen)
	s.release(r) // the scheduler may have ended it already
}

// censor ends what is still open when the run does.
func (s *sim) censor() {
	open := make([]*request, 0, s.open)
	for _, r := range s.live {
		if r.open {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(a, b *request) int { return cmp.Compare(a.rec.Index, b.rec.Index) })
	for _, r := range open {
		s.closeNow(r, record.Censored, "")
	}
}
