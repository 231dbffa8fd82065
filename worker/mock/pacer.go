package mock

import "time"

// maxDebt bounds what a late wake-up takes off the next waits: a process that was stopped must not run for free after.
const maxDebt = 2 * time.Millisecond

// pacer waits for the length of a step. What one wait overran is taken off the next, so that steps have their length on
// average. The zero value waits with the runtime's timers, which are precise to a millisecond or two; open makes it
// precise to some tens of microseconds where the system can. It never spins.
type pacer struct {
	timer
	debt time.Duration
}

func (p *pacer) wait(d time.Duration) {
	if d <= p.debt {
		p.debt -= d
		return
	}
	d -= p.debt
	start := time.Now()
	p.sleep(d)
	p.debt = min(max(time.Since(start)-d, 0), maxDebt)
}
