package ingress

import (
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// gate bounds how many requests are held and how many of them wait for their first token, by number and by bytes of
// their bodies. A place is taken at once or not at all.
type gate struct {
	maxOpen, maxWaiting int
	maxBytes            int64

	mu      sync.Mutex
	closed  bool
	open    int
	waiting int
	bytes   int64
	empty   chan struct{} // closed once the gate is closed and nothing is open

	started int     // first tokens since the last tick
	rate    float64 // first tokens per second, smoothed
}

func newGate(maxOpen, maxWaiting int, maxBytes int64) *gate {
	return &gate{maxOpen: maxOpen, maxWaiting: maxWaiting, maxBytes: maxBytes, empty: make(chan struct{})}
}

// place is one request's share of the gate. The gate's mutex guards it.
type place struct {
	bytes         int64
	held, waiting bool
}

// reserve takes a place for a request with a body of so many bytes, or says why there is none.
func (g *gate) reserve(p *place, bytes int) schema.RefusalReason {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch n := int64(bytes); {
	case g.closed:
		return schema.RefusedDraining
	case g.open >= g.maxOpen, g.waiting >= g.maxWaiting, g.bytes+n > g.maxBytes:
		return schema.RefusedCapacity
	default:
		g.open++
		g.waiting++
		g.bytes += n
		*p = place{bytes: n, held: true, waiting: true}
		return ""
	}
}

// start says that the request does not wait any more. It may be repeated.
func (g *gate) start(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.waiting {
		g.started++
	}
	g.stopWaiting(p)
}

// free gives the place back. It may be repeated.
func (g *gate) free(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopWaiting(p)
	if p.held {
		p.held = false
		g.open--
		g.settle()
	}
}

func (g *gate) stopWaiting(p *place) {
	if p.waiting {
		p.waiting = false
		g.waiting--
		g.bytes -= p.bytes
	}
}

// settle closes empty if it is time.
func (g *gate) settle() {
	if !g.closed || g.open > 0 {
		return
	}
	select {
	case <-g.empty:
	default:
		close(g.empty)
	}
}

// close refuses every later request with RefusedDraining. The channel is closed when the last place is free.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.settle()
	return g.empty
}

func (g *gate) draining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// count returns the requests held, those waiting, and the waiting bytes.
func (g *gate) count() (open, waiting int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open, g.waiting, g.bytes
}

// tick updates the rate of first tokens; it is called about once per interval.
func (g *gate) tick(interval time.Duration) {
	const smooth = 10 * time.Second
	g.mu.Lock()
	defer g.mu.Unlock()
	now := float64(g.started) / interval.Seconds()
	g.started = 0
	w := min(1, float64(interval)/float64(smooth))
	g.rate += w * (now - g.rate)
}

// wait predicts how long a newcomer would wait for its first token: those before it at the present rate. 0 is unknown.
func (g *gate) wait() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rate < 0.01 {
		return 0
	}
	return time.Duration(float64(g.waiting) / g.rate * float64(time.Second))
}
