package scheduler

import (
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
)

const (
	// closingMargin is how long a server may keep a chunk before it has handed it on and stored it.
	closingMargin = 5 * time.Second
	// maxClosings bounds what is kept; the oldest go first.
	maxClosings = 1 << 14
)

// closings keeps the chunks that tell clients of an end for a while. Nobody acknowledges them, and a server that is killed
// takes along what it has: its client would wait for ever. The owner of the run owns it.
type closings struct {
	sent       []closing // in order of at
	reconnects uint64    // that were answered
}

type closing struct {
	at    time.Time
	chunk core.Chunk
}

func (c *closings) keep(now time.Time, chunk core.Chunk) {
	if len(c.sent) == maxClosings { // a quarter at once: each drop moves the rest
		c.drop(maxClosings / 4)
	}
	c.sent = append(c.sent, closing{now, chunk})
}

func (c *closings) drop(n int) {
	rest := copy(c.sent, c.sent[n:])
	clear(c.sent[rest:])
	c.sent = c.sent[:rest]
}

// again returns what is to be sent again, because the connection is another one than before, and forgets what the server
// surely has. An ingress passes over the end of an answer that has ended.
func (c *closings) again(now time.Time, connected bool, reconnects uint64) (chunks []core.Chunk) {
	if !connected {
		return nil
	}
	if reconnects != c.reconnects {
		c.reconnects = reconnects
		for i := range c.sent {
			chunks = append(chunks, c.sent[i].chunk)
			c.sent[i].at = now
		}
		return chunks
	}
	n := 0
	for n < len(c.sent) && now.Sub(c.sent[n].at) > closingMargin {
		n++
	}
	if n > 0 {
		c.drop(n)
	}
	return nil
}
