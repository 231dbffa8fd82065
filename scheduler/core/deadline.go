package core

import (
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
)

// haste is how many times the least that a guaranteed request may still take is kept in hand before best effort gives way to it:
// a full engine's steps take a few times as long as its shortest.
const haste = 4

// expires reports whether a request is to end when it cannot meet its objectives any more.
func (r *request) expires() bool {
	return r.OnDeadline == schema.OnDeadlineCancel && (r.Budget > 0 || r.TTFTBudget > 0)
}

// doomed reports whether a waiting request cannot meet its objectives any more, even on the fastest of its workers, and that is to
// have consequences that it has not had.
func (c *Core) doomed(l *lane, r *request, now int64) bool {
	if r.late || r.Budget <= 0 && r.TTFTBudget <= 0 || r.OnDeadline == schema.OnDeadlineContinue {
		return false
	}
	return l.speed.Doomed(r.objectives(now), r.prefill(), max(1, int(r.MinTokens)-len(r.resume)))
}

// pressed reports whether a waiting request may miss its objectives if it does not run now, with the longest answer that it may have. On
// workers of unknown speed it may.
func (c *Core) pressed(l *lane, r *request, now int64) bool {
	left := r.objectives(now)
	if l.speed.Step == 0 {
		return left != deadline.Left{}
	}
	within := func(left time.Duration, tokens int) bool {
		return left != 0 && float64(left) < haste*float64(l.speed.Least(r.prefill(), tokens))
	}
	return within(left.E2E, int(r.MaxTokens)-len(r.resume)) || within(left.TTFT, 1)
}

// tooLate ends a request that cannot meet its objectives any more.
func (c *Core) tooLate(r *request, now int64) {
	c.end(r, schema.Failed, string(schema.FailedDeadline), "waited "+seconds(now-r.since)+" in the queue, and could not be in time any more", now)
}
