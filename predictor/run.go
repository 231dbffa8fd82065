package predictor

import (
	"math"
	"slices"
)

// marks is how many parts of a run are found at once.
const marks = 96

// job is a sequence in a run.
type job struct {
	left  int // tokens of prefill
	held  int // tokens in the KV cache while it prefills
	more  int // tokens that it generates from now on, > 0
	done  int // of them, before its present place in the batch
	pages int // promised
	spare int // preemptions so far
	begun bool
	// ready is when it may start; from then on its k-th token from now comes in the round join+k-1, and it holds base tokens
	// more than there were rounds.
	ready, join, base float64
	start             float64 // of its last admission, ns from now
	first, finish     float64 // at the engine, ns from now
	by                float64 // its deadline, for the choice of a victim
}

// decoding is a sequence that decodes, until a round.
type decoding struct {
	end float64
	job int32
}

// point says when a round of decoding was done.
type point struct{ round, at float64 }

// room is what a sequence that has ended gives back.
type room struct {
	at    float64
	pages int
}

// run is one simulation. A round is a step in which everyone decodes who can; in a step in which only some do it is a part of one.
type run struct {
	jobs     []job      // running, waiting, the new one
	decode   []decoding // a heap by end
	prefill  []int32    // jobs, in order of admission
	again    []int32    // preempted, in order
	freed    []room     // in order of at, from the freedth on
	shares   []int      // scratch: of the prefills in a step
	line     []point
	marks    [marks]int32 // the first point at or after equal parts of all rounds
	marked   float64      // parts of a round
	apart    float64      // round in which a run with the new request became another
	curve    []Knot       // of the new request, if it runs
	next     int          // of those that wait
	last     int          // where they end: the new request is not, or is, among them
	own      int          // the new request's
	freedth  int
	taken    int     // slots
	promised int     // pages
	free     float64 // tokens that pages are there for, if they are tight
	held     float64 // tokens of those that decode, less the rounds of each
	now      float64
	round    float64
	look     float64 // when someone may be admitted
	nobody   bool    // waits
	busy     float64
	cost     float64 // of the new request
	without  *run    // the one without the new request, of the one with it; nil while that is not over
	forces   bool    // another gives way that would not without it
	forced   int     // knots of the curve before the first that does
	steps    int     // jumps
}

// begin is the present.
func (r *run) begin(p *plan, e *Engine, n *Sequence, l Lengths) {
	all := len(e.Running) + len(e.Waiting) + 1
	if cap(r.jobs) < all {
		r.jobs = make([]job, 0, 2*all)
	}
	*r = run{jobs: r.jobs[:0], decode: r.decode[:0], prefill: r.prefill[:0], again: r.again[:0], freed: r.freed[:0], shares: r.shares,
		line: r.line[:0], curve: r.curve[:0], next: len(e.Running), last: all - 1, own: all - 1, now: p.left, busy: p.left,
		free: float64(max(0, e.FreePages)) * float64(p.page)}
	const golden = 0.6180339887498949
	u := 0.5
	for i := range e.Running {
		r.add(p, &e.Running[i], l, u)
		if u += golden; u >= 1 {
			u--
		}
	}
	for i := range e.Waiting {
		r.add(p, &e.Waiting[i], l, u)
		if u += golden; u >= 1 {
			u--
		}
	}
	r.add(p, n, nil, 0)
	own := &r.jobs[r.own]
	own.ready = p.enter
	waits := p.static && slices.ContainsFunc(r.jobs[:len(e.Running)], func(j job) bool { return j.begun || j.held > 0 })
	for i := range e.Running {
		j := &r.jobs[i]
		if waits && !j.begun && j.held == 0 { // it is there for the next batch
			r.again = append(r.again, int32(i))
			continue
		}
		r.taken++
		r.promised += j.pages
		if j.left > 0 {
			r.prefill = append(r.prefill, int32(i))
			continue
		}
		if p.left == 0 {
			j.join = 1
			j.base = float64(j.held)
			r.decodes(int32(i), float64(j.more))
			continue
		}
		r.token(p, int32(i)) // of the present step
	}
	r.line = append(r.line, point{0, r.now})
}

// add brings a sequence in. Its length is the quantile u of what is left, or its cap without a distribution.
func (r *run) add(p *plan, s *Sequence, l Lengths, u float64) {
	prompt := min(max(1, int(s.PromptTokens)), longest)
	done := min(max(0, int(s.OutputTokens)), longest)
	limit := min(max(1, int(s.CapTokens)), longest)
	if prompt < p.context0 {
		limit = min(limit, p.context0-prompt)
	}
	j := job{left: min(max(0, int(s.PrefillTokens)), prompt+done), more: max(1, limit-done), begun: done > 0,
		pages: (min(prompt+limit, max(p.context0, prompt+1)) + p.page - 1) / p.page, by: math.Inf(1)}
	j.held = prompt + done - j.left
	if l != nil && j.more > 1 {
		q := l.Quantile(s.Lengths, int32(done), int32(limit), u)
		if q < float64(j.more) {
			j.more = max(1, int(q))
		}
	}
	j.ready = max(0, p.enter-nanos(s.Age))
	if s.E2E > 0 {
		j.by = nanos(s.E2E) - nanos(s.Age)
	}
	if s.Guaranteed {
		j.by -= 1e18 // gives way last
	}
	r.jobs = append(r.jobs, j)
}

// copy makes r what o is.
func (r *run) copy(o *run) {
	old := *r
	*r = *o
	r.jobs = over(old.jobs, o.jobs)
	r.decode = over(old.decode, o.decode)
	r.prefill = over(old.prefill, o.prefill)
	r.again = over(old.again, o.again)
	r.freed = over(old.freed, o.freed[o.freedth:])
	r.freedth = 0
	r.shares = old.shares
	r.line = over(old.line, o.line)
	r.curve = old.curve[:0]
}

// over is from, in to's memory if it has room.
func over[T any](to, from []T) []T { return append(to[:0], from...) }

// decodes puts a job among those that decode, for so many rounds.
func (r *run) decodes(i int32, rounds float64) {
	j := &r.jobs[i]
	r.held += j.base
	r.decode = append(r.decode, decoding{r.round + rounds, i})
	h := r.decode
	k := len(h) - 1
	x := h[k]
	for k > 0 {
		up := (k - 1) / 2
		if h[up].end <= x.end {
			break
		}
		h[k] = h[up]
		k = up
	}
	h[k] = x
}

// pop takes the job out that is first to end.
func (r *run) pop() int32 {
	h := r.decode
	top := h[0].job
	n := len(h) - 1
	x := h[n]
	r.decode = h[:n]
	if n > 0 {
		r.sink(0, x)
	}
	return top
}

// sink puts x where k was, or below.
func (r *run) sink(k int, x decoding) {
	h := r.decode
	for {
		c := 2*k + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].end < h[c].end {
			c++
		}
		if x.end <= h[c].end {
			break
		}
		h[k] = h[c]
		k = c
	}
	h[k] = x
}

// token is the one that follows the last token of a prefill. The job decodes from then on, or has ended.
func (r *run) token(p *plan, i int32) {
	j := &r.jobs[i]
	if j.done == 0 {
		j.first = r.now
	}
	j.join = r.round - float64(j.done)
	j.done++
	j.held++
	if int(i) == r.own {
		r.curve = append(r.curve, Knot{float64(j.done), r.now, r.cost})
	}
	if j.done >= j.more {
		r.ended(p, j, j.held)
		return
	}
	j.base = float64(j.held) - r.round
	r.decodes(i, float64(j.more-j.done))
}

// ended gives back what a job held.
func (r *run) ended(p *plan, j *job, held int) {
	j.finish = r.now
	r.free += float64(held) + float64(p.page)/2
	r.freed = append(r.freed, room{r.now + p.refill, j.pages})
	if !r.nobody {
		r.look = min(r.look, r.now+p.refill)
	}
}
