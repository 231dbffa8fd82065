package sim

import (
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// gateEvery is the ingress's heartbeat, at which it looks how fast first tokens come; gateSmooth is how far back it looks.
const gateEvery, gateSmooth = 500 * time.Millisecond, 10 * time.Second

// gate is the ingress's bound on requests: how many it holds, and how many of them wait for their first token. s.open has the
// former.
type gate struct {
	waiting int
	started int           // first tokens since the last look
	rate    float64       // first tokens per second, smoothed
	next    time.Duration // look
}

// gated reports whether the ingress has any bound.
func (c *Config) gated() bool { return c.MaxOpen > 0 || c.MaxWaiting > 0 }

// full reports whether there is no place for one more.
func (s *sim) full() bool {
	return s.cfg.MaxOpen > 0 && s.open >= s.cfg.MaxOpen || s.cfg.MaxWaiting > 0 && s.gate.waiting >= s.cfg.MaxWaiting
}

// turnAway answers a request that the gate has no place for.
func (s *sim) turnAway(r *request) {
	r.rec.RetryAfter = s.retryAfter(uint64(r.rec.Index))
	s.refuse(r, schema.RefusedCapacity)
}

// retryAfter is the ingress's advice: when those who wait now have their first tokens at the present rate, with jitter, in
// whole seconds. index is of the request that gets it.
func (s *sim) retryAfter(index uint64) time.Duration {
	wait := time.Second
	if s.gate.rate >= 0.01 {
		wait = max(wait, time.Duration(min(float64(s.gate.waiting)/s.gate.rate, 60)*float64(time.Second)))
	}
	jitter := time.Duration(mix(mix(s.cfg.Seed+0x7265)^index) % uint64(max(wait, 2*time.Second)))
	return (wait + jitter + time.Second - 1).Truncate(time.Second)
}

// enter counts a request that the gate lets in.
func (s *sim) enter(r *request) {
	if s.cfg.gated() {
		r.unheard = true
		s.gate.waiting++
	}
}

// heard notes that a first token, or the end, of a request reaches the ingress.
func (s *sim) heard(r *request) {
	if r.unheard {
		s.gate.started++
	}
	s.leave(r)
}

// leave notes that a request waits for its first token no more.
func (s *sim) leave(r *request) {
	if r.unheard {
		r.unheard = false
		s.gate.waiting--
	}
}

// look smooths the rate of first tokens, if it is time.
func (s *sim) look() {
	if !s.cfg.gated() || s.now < s.gate.next {
		return
	}
	s.gate.next = s.now + gateEvery
	s.gate.rate += float64(gateEvery) / float64(gateSmooth) * (float64(s.gate.started)/gateEvery.Seconds() - s.gate.rate)
	s.gate.started = 0
}
