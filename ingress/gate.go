package ingress

import (
	"sync"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/schema"
)

// refusedTenant is the gate's answer to a tenant that holds as much as it may. Elsewhere it is a lack of capacity.
const refusedTenant schema.RefusalReason = "tenant_capacity"

// gate bounds how many requests are held and how many of them wait for their first token, by number and by bytes of
// their bodies, and with its book what each tenant holds, and all in tokens. A place is taken at once or not at all.
type gate struct {
	maxOpen, maxWaiting int
	maxBytes            int64

	mu      sync.Mutex
	closed  bool
	open    int
	waiting int
	bytes   int64
	book    *admission.Book
	empty   chan struct{} // closed once the gate is closed and nothing is open

	started int     // first tokens since the last tick
	rate    float64 // first tokens per second, smoothed
}

// newGate returns an open gate, or admission.ErrConfig.
func newGate(c *Config) (*gate, error) {
	book, err := admission.NewBook(c.holds())
	if err != nil {
		return nil, err
	}
	return &gate{maxOpen: c.MaxOpen, maxWaiting: c.MaxWaiting, maxBytes: c.MaxWaitingBytes, book: book, empty: make(chan struct{})}, nil
}

// place is one request's share of the gate. The gate's mutex guards it.
type place struct {
	bytes         int64
	held, waiting bool
	hold          admission.Hold
}

// reserve takes a place for a tenant's request with a body of so many bytes, or says why there is none.
func (g *gate) reserve(p *place, tenant string, bytes int) schema.RefusalReason {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch n := int64(bytes); {
	case g.closed:
		return schema.RefusedDraining
	case g.open >= g.maxOpen, g.waiting >= g.maxWaiting, g.bytes+n > g.maxBytes:
		return schema.RefusedCapacity
	default:
		*p = place{}
		if reason := refusedBy(g.book.Reserve(&p.hold, tenant, admission.Amount{Bytes: n})); reason != "" {
			return reason
		}
		g.open++
		g.waiting++
		g.bytes += n
		p.bytes, p.held, p.waiting = n, true, true
		return ""
	}
}

// amend says how many tokens the request may take, or why it may not.
func (g *gate) amend(p *place, tokens int64) schema.RefusalReason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return refusedBy(g.book.Amend(&p.hold, admission.Amount{Bytes: p.bytes, Tokens: tokens}))
}

func refusedBy(r admission.Reason) schema.RefusalReason {
	if r == admission.TenantCapacity {
		return refusedTenant
	}
	return r.Refusal()
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
	g.book.Release(&p.hold)
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
