package scheduler

import (
	"testing"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
)

// An end that a dying server may have taken along is sent again on the next connection, once for each.
func TestClosingsAreSentAgain(t *testing.T) {
	var c closings
	start := time.Now()
	at := start.Add
	chunk := func(n int32) core.Chunk { return core.Chunk{Ingress: "i1", Chunk: schema.Chunk{Index: n}} }
	expect := func(what string, got []core.Chunk, want ...int32) {
		t.Helper()
		same := len(got) == len(want)
		for i := 0; same && i < len(got); i++ {
			same = got[i].Chunk.Index == want[i]
		}
		if !same {
			t.Errorf("%s: %d chunks, want %v", what, len(got), want)
		}
	}
	c.keep(at(0), chunk(1))
	c.keep(at(4*time.Second), chunk(2))
	expect("the same connection", c.again(at(closingMargin+time.Second), true, 0)) // and the first one has arrived
	expect("a long outage", c.again(at(time.Minute), false, 0))
	c.keep(at(time.Minute), chunk(3))
	expect("another connection", c.again(at(2*time.Minute), true, 1), 2, 3)
	expect("still that", c.again(at(2*time.Minute+time.Second), true, 1))
	expect("and another", c.again(at(2*time.Minute+2*time.Second), true, 2), 2, 3)
	expect("nothing new", c.again(at(3*time.Minute), true, 2))
	if len(c.sent) != 0 {
		t.Errorf("%d kept", len(c.sent))
	}
	for range 2 * maxClosings {
		c.keep(at(0), chunk(0))
	}
	if n := len(c.sent); n > maxClosings || n < maxClosings/2 {
		t.Errorf("%d kept", n)
	}
}
