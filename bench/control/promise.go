package control

import (
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/schema"
)

// Promises counts requests that asked for a guarantee, in all phases of a run, and what became of those that got one.
type Promises struct {
	Asked   int // requests that want a guarantee and have an E2E objective
	Given   int // of them; the others were refused or served as best effort
	Kept    int // of those given: answered within all of their objectives
	Broken  int // late, or ended by us
	Left    int // the client went within its objective, or the run ended then
	Refused int // of those that asked
}

// Add adds others' counts.
func (p *Promises) Add(q Promises) {
	p.Asked, p.Given, p.Kept, p.Broken = p.Asked+q.Asked, p.Given+q.Given, p.Kept+q.Kept, p.Broken+q.Broken
	p.Left, p.Refused = p.Left+q.Left, p.Refused+q.Refused
}

// Attainment is the part of the promises that was kept, of those of which that is known; 1 if there are none.
func (p *Promises) Attainment() float64 {
	if n := p.Kept + p.Broken; n > 0 {
		return float64(p.Kept) / float64(n)
	}
	return 1
}

// end counts how a promise ended.
func (p *Promises) end(r *record.Request, slo record.SLO) {
	switch open := r.Outcome == record.Timeout || r.Outcome == record.Censored; {
	case slo.Keeps(r):
		p.Kept++
	case open && r.E2E <= slo.E2E:
		p.Left++
	default:
		p.Broken++
	}
}

// wants reports whether a request asks for a guarantee.
func (c *Control) wants(class string, index int) bool {
	return class == string(schema.Guaranteed) || c.o.Guarantee > 0 && c.chance(index, 0x67756172) < c.o.Guarantee
}
