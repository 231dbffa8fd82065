package predictor

import "math"

// jumps bounds a run: each is an event, of which every sequence has a few.
const jumps = 4096

// forecast runs until nothing is left. When the new request would be admitted and is not to be, fork becomes what would be with it.
func (r *run) forecast(p *plan, fork *run) {
	if fork != nil && p.static {
		// A batch may be complete because of it.
		fork.copy(r)
		fork.last++
		fork = nil
	}
	for {
		if r.now >= r.look {
			r.admit(p, &fork)
		}
		if len(r.decode)+len(r.prefill) == 0 {
			if math.IsInf(r.look, 1) {
				return
			}
			r.now = max(r.now, r.look)
			continue
		}
		if r.steps++; r.steps > jumps+8*len(r.jobs) {
			r.give(p)
			if fork != nil {
				fork.copy(r)
			}
			return
		}
		r.jump(p)
	}
}

// give ends everything at once: the state is too odd to be followed.
func (r *run) give(p *plan) {
	for i := range r.jobs[:r.last] {
		if j := &r.jobs[i]; j.finish == 0 {
			if j.done == 0 {
				j.first = r.now
			}
			j.finish = r.now
		}
	}
}

// head is who is next, or -1.
func (r *run) head() int32 {
	switch {
	case len(r.again) > 0:
		return r.again[0]
	case r.next < r.last:
		return int32(r.next)
	}
	return -1
}

// admit lets in who fits, in order, and sees when to look again.
func (r *run) admit(p *plan, fork **run) {
	for r.freedth < len(r.freed) && r.freed[r.freedth].at <= r.now {
		r.taken--
		r.promised -= r.freed[r.freedth].pages
		r.freedth++
	}
	batch := r.taken == 0 // a static batch may start
	for {
		i := r.head()
		if i < 0 {
			if *fork == nil {
				r.look, r.nobody = math.Inf(1), true
				return
			}
			i = int32(r.own) // is next, in the other run
		}
		j := &r.jobs[i]
		r.look = r.fits(p, j, batch)
		if r.look > r.now {
			return
		}
		if int(i) == r.own && r.last == r.own {
			(*fork).copy(r)
			(*fork).last++
			(*fork).look, (*fork).apart = r.now, r.round
			*fork = nil
			continue
		}
		if len(r.again) > 0 {
			r.again = append(r.again[:0], r.again[1:]...)
		} else {
			r.next++
		}
		r.taken++
		r.promised += j.pages
		j.start = r.now
		r.free -= float64(j.left) + float64(p.page)/2
		r.prefill = append(r.prefill, i)
		if j.left == 0 { // one token at least is computed
			j.left, j.held = 1, j.held-1
		}
	}
}

// fits is when there may be room for a job, other things being equal: now, or when it is to be looked for again.
func (r *run) fits(p *plan, j *job, batch bool) float64 {
	alone := len(r.decode)+len(r.prefill) == 0
	if p.static {
		if !batch {
			return r.later()
		}
		if start := j.ready + p.wait; r.now < start && r.last-r.next+len(r.again) < p.slots && alone {
			return start
		}
	}
	if j.ready > r.now {
		return j.ready
	}
	if r.taken < p.slots && r.promised+j.pages <= p.promises {
		if !p.tight || alone || r.free >= float64(j.left+p.page+p.page*(len(r.decode)+len(r.prefill))) {
			return r.now
		}
	}
	if alone && r.freedth == len(r.freed) {
		return r.now // who fits nowhere is let in alone
	}
	return r.later()
}

// later is when something that was freed can be used.
func (r *run) later() float64 {
	if r.freedth < len(r.freed) {
		return r.freed[r.freedth].at
	}
	return math.Inf(1)
}

// jump does as many steps as have the same composition.
func (r *run) jump(p *plan) {
	if p.tight {
		r.makeRoom(p)
	}
	decodes := len(r.decode)
	budget := p.tokens
	if !p.prefills {
		budget = max(0, budget-decodes)
	}
	n, prefill, context := r.share(p, budget)
	rate := 1.0
	entered := decodes
	if p.prefills && p.tokens-prefill < decodes {
		entered = p.tokens - prefill
		rate = float64(entered) / float64(decodes)
	}
	if decodes > 0 {
		all := r.held + float64(decodes)*r.round
		if rate > 0 {
			if k := math.Ceil((r.decode[0].end - r.round) / rate * (1 - 1e-12)); k < n {
				n = max(1, k)
			}
		}
		context += all * rate
		if p.tight && r.free >= float64(decodes) {
			n = min(n, math.Floor(r.free/float64(decodes)))
		}
	}
	growth := float64(prefill + entered)
	if !math.IsInf(r.look, 1) && n > 1 {
		one := p.step(prefill, entered, context, growth, 1)
		if m := math.Ceil((r.look - r.now) / one); m < n {
			n = max(1, m)
		}
	}
	took := p.step(prefill, entered, context, growth, n)
	paid := r.cost
	decoded := r.attribute(p, prefill, entered, context, growth, n, took)
	if p.slow*p.context*growth*n*n > 0.02*took {
		// The curve bends: it would be off by an eighth of that in the middle.
		last := 0.0
		for _, part := range [...]float64{1. / 16, 1. / 8, 1. / 4, 1. / 2, 3. / 4} {
			m := math.Floor(n * part)
			if m == last {
				continue
			}
			last = m
			at := r.now + p.step(prefill, entered, context, growth, m)
			r.line = append(r.line, point{r.round + m*rate, at})
			if decoded {
				r.curve = append(r.curve, Knot{r.round + m*rate - r.jobs[r.own].join + 1, at, paid + (r.cost-paid)*m/n})
			}
		}
	}
	r.now += took
	r.busy += took
	r.round += n * rate
	r.free -= n * float64(entered)
	r.line = append(r.line, point{r.round, r.now})
	if decoded {
		r.curve = append(r.curve, Knot{r.round - r.jobs[r.own].join + 1, r.now, r.cost})
	}
	r.feed(p, int(n))
	for len(r.decode) > 0 && r.decode[0].end <= r.round+1e-6 {
		i := r.pop()
		j := &r.jobs[i]
		r.held -= j.base
		j.done = j.more
		r.ended(p, j, int(j.base+r.round))
	}
}

// share divides a step's budget among those that prefill, and says for how many steps it stays so.
func (r *run) share(p *plan, budget int) (n float64, prefill int, context float64) {
	r.shares = r.shares[:0]
	n = math.Inf(1)
	bounded := p.target > 0 && len(r.decode) > 0
	slack, perToken := p.target, 0.0
	if bounded {
		decodes := len(r.decode)
		slack -= p.step(0, decodes, r.held+float64(decodes)*r.round, 0, 1) + p.slow*max(0, p.profile.Cost.Prefill)
		perToken = p.slow * (p.profile.Cost.PrefillToken + p.context)
	}
	for _, i := range r.prefill {
		if prefill == budget {
			break
		}
		j := &r.jobs[i]
		a := min(j.left, p.chunk, budget-prefill)
		if bounded && perToken > 0 {
			own := p.slow * p.context * float64(j.held)
			fits := int(min(max(0, (slack-own)/perToken), longest))
			if prefill == 0 {
				fits = max(fits, p.page)
			}
			a = min(a, fits)
			slack -= own + perToken*float64(a)
		}
		r.shares = append(r.shares, a)
		if a == 0 {
			continue
		}
		prefill += a
		context += float64(j.held + a)
		if a == j.left {
			n = 1
			continue
		}
		k := float64(int32(j.left) / int32(a))
		if bounded {
			k = min(k, max(8, math.Floor(k/8))) // the target leaves less as the context grows
		}
		n = min(n, k)
	}
	return n, prefill, context
}

// feed moves prefills on by n steps.
func (r *run) feed(p *plan, n int) {
	if len(r.shares) == 0 {
		return
	}
	kept := 0
	for k, i := range r.prefill {
		j := &r.jobs[i]
		if k < len(r.shares) {
			a := n * r.shares[k]
			j.left -= a
			j.held += a
		}
		if j.left == 0 {
			r.token(p, i)
			continue
		}
		r.prefill[kept] = i
		kept++
	}
	r.prefill = r.prefill[:kept]
}

// attribute counts what the new request adds to the steps that it is in, and reports whether it decodes in them.
func (r *run) attribute(p *plan, prefill, decodes int, context, growth, n, took float64) bool {
	j := &r.jobs[r.own]
	if r.next <= r.own || j.done >= j.more {
		return false
	}
	if j.left > 0 {
		k := len(r.prefill) - 1 // it was admitted last, but for those that were preempted after it
		for k >= 0 && r.prefill[k] != int32(r.own) {
			k--
		}
		if k < 0 || k >= len(r.shares) || r.shares[k] == 0 {
			return false
		}
		a := r.shares[k]
		r.cost += max(0, took-p.step(prefill-a, decodes, context-float64(j.held+a), growth-float64(a), n))
		return false
	}
	r.cost += max(0, took-p.step(prefill, max(0, decodes-1), context-j.base-r.round, growth-1, n))
	return true
}

// makeRoom preempts until those that decode have pages for a token each.
func (r *run) makeRoom(p *plan) {
	for r.free < float64(len(r.decode)) && len(r.decode)+len(r.prefill) > 1 {
		victim := int32(-1)
		consider := func(i int32) {
			j := &r.jobs[i]
			if j.spare >= p.spared {
				return
			}
			if victim < 0 || j.by > r.jobs[victim].by || j.by == r.jobs[victim].by && i > victim {
				victim = i
			}
		}
		for _, d := range r.decode {
			consider(d.job)
		}
		for _, i := range r.prefill {
			consider(i)
		}
		if victim < 0 {
			return // everyone is spared: as if there were pages
		}
		r.preempt(p, victim)
	}
}

// preempt sends a job back to wait, ahead of the others, with all to compute again.
func (r *run) preempt(p *plan, i int32) {
	j := &r.jobs[i]
	j.spare++
	held := j.held
	if r.without != nil && !r.forces && int(i) != r.own && j.spare > r.without.jobs[i].spare {
		r.forces, r.forced = true, len(r.curve)
	}
	for k, d := range r.decode {
		if d.job != i {
			continue
		}
		r.held -= j.base
		held = int(j.base + r.round)
		j.done = j.more - int(math.Ceil(d.end-r.round))
		n := len(r.decode) - 1
		x := r.decode[n]
		r.decode = r.decode[:n]
		if k < n {
			r.sink(k, x)
			r.rise(k)
		}
		break
	}
	for k, q := range r.prefill {
		if q == i {
			r.prefill = append(r.prefill[:k], r.prefill[k+1:]...)
			break
		}
	}
	r.free += float64(held) + float64(p.page)/2
	j.left, j.held = j.left+held, 0
	r.taken--
	r.promised -= j.pages
	at := 0
	for at < len(r.again) && r.again[at] < i {
		at++
	}
	r.again = append(r.again, 0)
	copy(r.again[at+1:], r.again[at:])
	r.again[at] = i
	r.look, r.nobody = r.now, false
}

// rise moves the k-th of those that decode up to its place.
func (r *run) rise(k int) {
	h := r.decode
	for k > 0 {
		up := (k - 1) / 2
		if h[up].end <= h[k].end {
			return
		}
		h[up], h[k] = h[k], h[up]
		k = up
	}
}
