package predictor

import (
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/batch"
)

// longest bounds lengths, so that no odd figure makes a run long or a sum overflow.
const longest = 1 << 20

// plan is what a run needs to know of an engine, in range.
type plan struct {
	profile  *profile.Profile
	slow     float64
	context  float64 // ns for each token held
	tokens   int     // in a step
	chunk    int
	slots    int
	promises int
	page     int
	context0 int // the longest sequence
	prefills bool
	static   bool
	wait     float64 // of a static batch
	target   float64 // ITL; 0: none
	tight    bool    // pages may run out
	spared   int     // preemptions after which a sequence is spared
	refill   float64
	enter    float64
	left     float64 // of the present step
}

func (p *plan) set(e *Engine) {
	c := &e.Plan
	*p = plan{profile: e.Profile, slow: 1, slots: max(1, c.MaxBatch), tokens: max(1, c.BatchTokens), page: max(1, c.PageTokens),
		prefills: c.Order == batch.PrefillFirst, static: c.Mode == batch.Static, wait: nanos(c.StaticWait), target: nanos(c.ITLTarget),
		spared: c.MaxPreemptions, refill: nanos(e.Refill), enter: nanos(e.Enter), left: nanos(e.StepLeft)}
	if e.Slow > 0 && e.Slow < 1e6 {
		p.slow = e.Slow
	}
	p.context = max(0, e.Profile.Cost.ContextToken)
	p.chunk = min(max(1, c.ChunkTokens), p.tokens)
	if c.Mode == batch.FIFO {
		p.slots = 1
	}
	p.promises = c.Promises()
	p.tight = c.Overcommit > 1
	if p.spared <= 0 {
		p.spared = 3
	}
	p.context0 = longest
	if c.ContextTokens > 0 && c.KVPages > 0 {
		p.context0 = min(c.ContextTokens, c.KVPages*p.page, longest)
	}
}

// step is how long n steps of equal composition take, whose context grows by so many tokens from each to the next.
func (p *plan) step(prefill, decodes int, context, growth, n float64) float64 {
	if prefill+decodes == 0 {
		return 0
	}
	one := float64(p.profile.Step(prefill, decodes, int(context)))
	return p.slow * max(0, n*one+p.context*growth*n*(n-1)/2)
}

func nanos(d time.Duration) float64 { return float64(max(0, d)) }
