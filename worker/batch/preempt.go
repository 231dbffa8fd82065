package batch

// grow finds pages for the next token of every sequence that decodes, oldest first, so that the step that is being
// planned cannot run out of cells. Pages come from what is free, then from the prefix cache, then from a sequence that
// is preempted.
func (p *Planner) grow() {
	p.turn = append(p.turn[:0], p.order...)
	for _, i := range p.turn {
		s := &p.slots[i]
		if !s.running || s.prefilling() {
			continue
		}
		for s.running {
			need := p.pages.Need(&s.table, s.fed+1)
			if need == 0 || p.makeRoom(need) {
				break
			}
			p.preempt(p.victim())
		}
		if !s.running {
			continue
		}
		if err := p.pages.Reserve(&s.table, s.fed+1); err != nil {
			p.preempt(i) // only a broken allocator says no after makeRoom; the sequence computes it all again
		}
	}
}

// victim is who gives way: of those that were preempted fewer than MaxPreemptions times one whose deadlines cannot be kept any
// more, then the one of lowest priority, then of latest deadline, then the youngest; if there are none, the youngest of all. The oldest of those that are spared is never
// taken, unless it runs alone, so that everyone's turn comes.
func (p *Planner) victim() int {
	best := p.order[0]
	for _, i := range p.order[1:] {
		if p.before(&p.slots[i], &p.slots[best]) {
			best = i
		}
	}
	return best
}

// spared reports whether a sequence has given way as often as it must, unless nobody else can.
func (p *Planner) spared(s *slot) bool { return s.preempts >= p.cfg.MaxPreemptions }

// before reports whether a gives way before b.
func (p *Planner) before(a, b *slot) bool {
	spareA, spareB := p.spared(a), p.spared(b)
	switch {
	case spareA != spareB:
		return spareB
	case spareA: // the youngest
	case (a.rank == demoted) != (b.rank == demoted):
		return a.rank == demoted
	case a.Priority != b.Priority:
		return a.Priority < b.Priority
	case a.Deadline != b.Deadline:
		return a.Deadline == 0 || b.Deadline != 0 && a.Deadline > b.Deadline
	}
	return a.addedAt > b.addedAt || a.addedAt == b.addedAt && a.ID > b.ID
}

// preempt sends a running sequence back to the waiting list. What it has computed stays in the cache for as long as its
// pages are not needed.
func (p *Planner) preempt(i int) {
	s := &p.slots[i]
	p.batch.Preempted = append(p.batch.Preempted, Preemption{ID: s.ID, Generated: s.generated, Fed: s.fed})
	p.totals.Preemptions++
	w := waiter{Sequence: s.Sequence, generated: s.generated, preempts: s.preempts + 1, cached: s.cached, lost: s.fed, begun: s.begun,
		addedAt: s.addedAt, startedAt: s.startedAt, firstAt: s.firstAt, lastAt: s.lastAt}
	w.Prompt = append([]int32(nil), s.tokens...)
	r := s.rank
	p.publish(s)
	p.vacate(i, false)
	p.known[w.ID] = inWaiting
	p.waiting[r].putBack(w)
}
