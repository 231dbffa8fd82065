package worker

import (
	"sync"
	"time"

	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/digest"
	"github.com/cadence-slo/cadence/worker/radix"
)

// present is what the engine does now. The engine loop writes it when a step begins, before it goes into the engine for as long as
// that takes, and when there is none; the teller reads it at any time. Its mutex also guards every run's left and output. It is held
// for a microsecond, so that the loop never waits for what it is there for.
type present struct {
	mu       sync.Mutex
	step     uint64 // steps that were begun
	busy     bool
	began    time.Duration // the present step, on the worker's clock
	expected time.Duration // how long it takes; 0: not known
	pages    int           // free, or as soon as the prefix cache gives them up
	slow     float64       // see drift

	hashes  []uint64 // of cached prefixes under key, in no particular order
	key     uint64
	version uint64 // of hashes, from 1; 0: there are none yet
	behind  bool   // the cache has changed since
}

// prefixes is what the engine loop needs to tell of the prefix cache. The loop owns it.
type prefixes struct {
	tree  *radix.Tree // nil: nothing is told
	key   uint64      // of the present life
	known radix.Stats // of the tree when it was hashed
	none  bool        // it never was, with this key
	spare []uint64
	next  time.Duration // it is not hashed before
}

const (
	// digestGap is the least time between two hashings of the tree, and digestShare the part of the loop's time that they may take:
	// a microsecond for every fifty pages, so that only a large cache is told of less often.
	digestGap   = 50 * time.Millisecond
	digestShare = 100
)

// reset begins with another key.
func (p *prefixes) reset(key uint64) { p.key, p.none, p.next = key, true, 0 }

// collect hashes the tree into spare, if it has changed and it is time, and reports what it did and whether there is more to do.
func (p *prefixes) collect(now func() time.Duration) (done, behind bool) {
	if p.tree == nil {
		return false, false
	}
	s := p.tree.Stats()
	// Pages come without evictions only by insertions: when both are the same, so is the set.
	if !p.none && s.Pages == p.known.Pages && s.Evictions == p.known.Evictions {
		return false, false
	}
	begin := now()
	if begin < p.next {
		return false, true
	}
	p.spare = p.tree.Hashes(func(scope string) uint64 { return digest.Root(p.key, scope) }, digest.Extend, p.spare[:0])
	p.known, p.none = s, false
	end := now()
	p.next = end + max(digestGap, digestShare*(end-begin))
	return true, false
}

// begin notes what a step will do, before it does.
func (e *engine) begin(b *batch.Batch) {
	hashed, behind := e.prefixes.collect(e.now)
	free, slow := e.plan.Usage().FreePages, e.drift.slow()
	joined := false
	p := &e.present
	p.mu.Lock()
	p.step, p.busy, p.began, p.expected, p.pages, p.slow = b.Step, true, e.now(), scaled(e.said(b), slow), free, slow
	for _, x := range b.Preempted {
		r := e.runs[x.ID]
		r.left = int32(r.given() + x.Generated)
		r.output = int32(len(r.resume) + x.Generated)
	}
	for i := range b.Entries {
		x := &b.Entries[i]
		r := e.runs[x.ID]
		joined = joined || x.Start
		r.output, r.left = int32(len(r.resume)+len(r.generated)), 0
		if x.Prefill {
			r.left = int32(r.given()+len(r.generated)-len(x.Tokens)) - x.Pos
		}
	}
	e.hand(hashed, behind)
	p.mu.Unlock()
	if joined {
		poke(e.book.told)
	}
}

// rest notes that there is no step.
func (e *engine) rest() {
	hashed, behind := e.prefixes.collect(e.now)
	p := &e.present
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.expected, p.pages, p.slow = false, 0, e.plan.Usage().FreePages, e.drift.slow()
	e.hand(hashed, behind)
}

// expect notes what the prefix cache has of a run that waits now.
func (e *engine) expect(r *run, cached int) {
	e.present.mu.Lock()
	defer e.present.mu.Unlock()
	r.left -= int32(cached)
}

// hand gives the teller what was hashed. The caller holds the mutex.
func (e *engine) hand(hashed, behind bool) {
	p := &e.present
	p.behind = behind
	if hashed {
		p.hashes, e.prefixes.spare = e.prefixes.spare, p.hashes
		p.key = e.prefixes.key
		p.version++
	}
}

// said is what the profile says that a step takes; 0: nothing is known.
func (e *engine) said(b *batch.Batch) time.Duration {
	if e.profile == nil {
		return 0
	}
	return e.profile.Step(b.PrefillTokens, b.Decodes, b.ContextTokens)
}

// scaled brings what a profile says to the speed that was seen lately; 0 is not known.
func scaled(said time.Duration, slow float64) time.Duration {
	if slow == 0 {
		return said
	}
	return time.Duration(float64(said) * slow)
}

// given is how many tokens the attempt begins with.
func (r *run) given() int { return len(r.req.Prompt) + len(r.resume) }
