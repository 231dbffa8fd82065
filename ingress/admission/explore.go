package admission

import "time"

// Explore says how much of what the rule refuses is admitted by chance, so that the model keeps learning of it.
type Explore struct {
	// Rate is the probability, in [0, 1]; 0: none is.
	Rate float64
	// Tokens is how many tokens (prompt and cap) of such requests may be admitted in a second on each worker, on average, ≥ 0.
	Tokens float64
	// Burst is how many may be admitted at once, ≥ 0. Larger requests are never explored.
	Burst float64
}

// DefaultExplore returns 1 %, with at most some hundredths of what a small CPU engine computes.
func DefaultExplore() Explore { return Explore{Rate: 0.01, Tokens: 20, Burst: 4096} }

// Validate returns ErrConfig, naming the key and the allowed values.
func (e *Explore) Validate() error {
	const most = 1e12
	switch {
	case !within(e.Rate, 0, 1):
		return bad("explore.rate", e.Rate, "0 to 1")
	case !within(e.Tokens, 0, most):
		return bad("explore.tokens", e.Tokens, "0 to 1e12")
	case !within(e.Burst, 0, most):
		return bad("explore.burst", e.Burst, "0 to 1e12")
	}
	return nil
}

// quota is the tokens that may be explored now: a bucket that starts full.
type quota struct {
	level float64
	at    time.Duration
	begun bool
}

// fill lets time pass.
func (q *quota) fill(e *Explore, now time.Duration, workers float64) {
	if !q.begun {
		q.level, q.at, q.begun = e.Burst, now, true
		return
	}
	if now > q.at {
		q.level = min(e.Burst, q.level+float64(e.Tokens*workers)*(now-q.at).Seconds())
		q.at = now
	}
}

// chance returns with which probability a request of so many tokens is explored: Rate, or 0 if there is no room for it.
func (q *quota) chance(e *Explore, tokens int64) float64 {
	if float64(tokens) > q.level {
		return 0
	}
	return e.Rate
}

// take spends the tokens of a request that is explored.
func (q *quota) take(tokens int64) { q.level -= float64(tokens) }
