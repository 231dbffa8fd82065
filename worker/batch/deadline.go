package batch

import (
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
)

// haste is how much of the time that a promised sequence may still take is kept in hand before others give way to it.
const haste = 5. / 4

// dated reports whether a sequence has a deadline.
func (s *Sequence) dated() bool { return s.Deadline != 0 || s.FirstDeadline != 0 }

// count keeps account of a sequence that comes or, by -1, goes.
func (p *Planner) count(s *Sequence, by int) {
	if s.dated() {
		p.dated += by
		if s.OnDeadline == schema.OnDeadlineCancel {
			p.expiring += by
		}
	}
}

// speed is how fast the engine is at its fastest.
func (p *Planner) speed() deadline.Speed {
	if s := p.model.Speed(); s.Step > 0 {
		return s
	}
	return p.cfg.Speed
}

// left is what is left of a sequence's deadlines, of which the first token may have kept or missed its own.
func (s *Sequence) left(now, first time.Duration, generated int) deadline.Left {
	to := func(at, now time.Duration) time.Duration {
		switch {
		case at == 0:
			return 0
		case at <= now:
			return min(-1, at-now)
		}
		return at - now
	}
	l := deadline.Left{E2E: to(s.Deadline, now), TTFT: to(s.FirstDeadline, now)}
	if generated > 0 && s.FirstDeadline != 0 {
		if l.TTFT = -1; first <= s.FirstDeadline {
			l.TTFT = 0
		}
	}
	return l
}

// fewest is how many tokens a sequence generates at least from now on.
func (s *Sequence) fewest(generated int) int { return max(1, s.MinNew-generated) }

// runsLate reports whether a running sequence cannot keep its deadlines any more.
func (p *Planner) runsLate(s *slot, v deadline.Speed, now time.Duration) bool {
	return s.dated() && s.OnDeadline != schema.OnDeadlineContinue &&
		v.Doomed(s.left(now, s.firstAt, s.generated), max(0, s.prefill-s.fed), s.fewest(s.generated))
}

// waitsLate is runsLate of one that waits, with what the prefix cache has of it.
func (p *Planner) waitsLate(w *waiter, v deadline.Speed, now time.Duration) bool {
	if !w.dated() || w.OnDeadline == schema.OnDeadlineContinue {
		return false
	}
	l, fewest := w.left(now, w.firstAt, w.generated), w.fewest(w.generated)
	return v.Doomed(l, len(w.Prompt), fewest) && v.Doomed(l, len(w.Prompt)-p.Cached(w.Scope, w.Prompt), fewest)
}

// judge looks which of those that run can still keep their deadlines.
func (p *Planner) judge(now time.Duration) {
	if p.dated == 0 {
		return
	}
	v := p.speed()
	for _, i := range p.order {
		s := &p.slots[i]
		if s.rank = s.Sequence.rank(); p.runsLate(s, v, now) {
			s.rank = demoted
		}
	}
}

// compare looks whether those that run are of different ranks.
func (p *Planner) compare() {
	p.uneven = false
	if p.dated == 0 {
		return
	}
	for _, i := range p.order {
		p.uneven = p.uneven || p.slots[i].rank != p.slots[p.order[0]].rank
	}
}

// passes is how often those that run are gone through when a step's tokens are given out.
func (p *Planner) passes() rank {
	if p.uneven {
		return ranks
	}
	return 1
}

// turnOf reports whether a pass is a sequence's.
func (p *Planner) turnOf(s *slot, pass rank) bool { return !p.uneven || s.rank == pass }

// next returns the queue whose head is to start next, and its rank, or nil. Heads that are found to be late are demoted.
func (p *Planner) next(now time.Duration) (*queue, rank) {
	for r := range ranks {
		q := &p.waiting[r]
		for q.n > 0 && r < demoted && p.dated > 0 && p.waitsLate(q.head(), p.speed(), now) {
			p.waiting[demoted].push(*q.head())
			q.pop()
		}
		if q.n == 0 {
			continue
		}
		if r == demoted && q.head().OnDeadline == schema.OnDeadlineCancel && len(p.order) > 0 {
			return nil, r // the Commit of those that run ends it
		}
		return q, r
	}
	return nil, ranks
}

// yield preempts one that runs so that the waiting sequence w may start, and reports whether it did: one whose deadlines cannot
// be kept any more, or, where w was promised its own and would miss them, one of lower priority. Who has given way as often as it
// must is spared, and nobody gives way in vain.
func (p *Planner) yield(w *waiter, r rank, now time.Duration) bool {
	if p.dated == 0 || r == demoted {
		return false
	}
	pressed := r == promised && p.pressed(w, now)
	victim, pages := -1, 0
	for _, i := range p.order {
		s := &p.slots[i]
		if p.spared(s) || s.rank != demoted && !(pressed && s.Priority < w.Priority) {
			continue
		}
		pages += s.promised
		if victim < 0 || p.before(s, &p.slots[victim]) {
			victim = i
		}
	}
	if victim < 0 || p.promised-pages+p.peak(w) > p.cfg.Promises() {
		return false
	}
	p.preempt(victim)
	return true
}

// pressed reports whether a waiting sequence may miss its deadlines if it does not start now: by the steps as they are, and the
// longest answer that it may have. Of an engine of unknown speed it may.
func (p *Planner) pressed(w *waiter, now time.Duration) bool {
	l := w.left(now, w.firstAt, w.generated)
	held := 0
	for _, i := range p.order {
		held += p.slots[i].fed
	}
	step := p.model.Predict(len(p.order), 0, held)
	if step == 0 {
		return l != deadline.Left{}
	}
	v := deadline.Speed{PrefillToken: p.speed().PrefillToken, Step: step}
	within := func(left time.Duration, tokens int) bool {
		return left != 0 && float64(left) < haste*float64(v.Least(len(w.Prompt), tokens))
	}
	return within(l.E2E, w.MaxNew-w.generated) || within(l.TTFT, 1)
}

// expire ends the sequences that are to be cancelled once their deadlines cannot be kept any more.
func (p *Planner) expire(now time.Duration) {
	if p.expiring == 0 {
		return
	}
	v := p.speed()
	p.turn = append(p.turn[:0], p.order...)
	for _, i := range p.turn {
		if s := &p.slots[i]; s.OnDeadline == schema.OnDeadlineCancel && p.runsLate(s, v, now) {
			p.end(i, KindDeadline, nil)
		}
	}
	for r := range p.waiting {
		q := &p.waiting[r]
		for k := 0; k < q.n; {
			if w := q.at(k); w.OnDeadline != schema.OnDeadlineCancel || !p.waitsLate(w, v, now) {
				k++
				continue
			}
			w := q.remove(k)
			p.leave(&w, KindDeadline)
		}
	}
}
