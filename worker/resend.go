package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/nats-io/nats.go"
)

const (
	// resendMargin is how long a server may keep what it has taken before it has handed it on and stored it: TOKENS is
	// persisted without waiting, and a server that is killed takes its buffers along.
	resendMargin = time.Second
	// resendBytes bounds what is kept of chunks, about; the oldest go first.
	resendBytes = 16 << 20
)

// sentChunk is a chunk on its way.
type sentChunk struct {
	at    time.Duration // on the worker's clock
	to    schema.IngressID
	chunk schema.Chunk
}

func (s *sentChunk) bytes() int {
	n := 160 + 4*len(s.chunk.IDs) + len(s.chunk.Text)
	if l := s.chunk.Logprobs; l != nil {
		n += 4*len(l.Chosen) + 8*len(l.Top)
	}
	return n
}

// unconfirmed keeps the chunks that a server which died would take along: tokens are sent without an acknowledgement.
// After a reconnection they are sent again; an ingress passes over what it has. The publisher adds, the resender takes.
type unconfirmed struct {
	mu    sync.Mutex
	sent  []sentChunk // in order of at
	bytes int
}

// keep adds a chunk; it copies what the publisher uses again.
func (u *unconfirmed) keep(at time.Duration, to schema.IngressID, c *schema.Chunk) {
	s := sentChunk{at: at, to: to, chunk: *c}
	s.chunk.IDs, s.chunk.Logprobs = slices.Clone(c.IDs), c.Logprobs.Clone()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent = append(u.sent, s)
	u.bytes += s.bytes()
	if u.bytes > resendBytes { // a quarter at once: each drop moves the rest
		n := 0
		for ; u.bytes > resendBytes/4*3; n++ {
			u.bytes -= u.sent[n].bytes()
		}
		u.drop(n)
	}
}

// confirm forgets what was sent before a time.
func (u *unconfirmed) confirm(before time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for ; n < len(u.sent) && u.sent[n].at < before; n++ {
		u.bytes -= u.sent[n].bytes()
	}
	u.drop(n)
}

// drop removes the first n. The caller holds mu and has counted their bytes.
func (u *unconfirmed) drop(n int) {
	if n == 0 {
		return
	}
	rest := copy(u.sent, u.sent[n:])
	clear(u.sent[rest:])
	u.sent = u.sent[:rest]
}

// all returns what is kept, in order.
func (u *unconfirmed) all() []sentChunk {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.sent)
}

// link is what the resender must know of the connection.
type link interface {
	PublishChunk(in schema.IngressID, c *schema.Chunk) error
	Flush(ctx context.Context) error
}

// resender sends unconfirmed chunks again after each reconnection. Its goroutine owns seen.
type resender struct {
	kept *unconfirmed
	link link
	nc   *nats.Conn
	now  func() time.Duration
	log  *slog.Logger
	seen uint64 // reconnections that were answered
}

// run serves until ctx ends, looking at the connection every interval and when it comes back.
func (r *resender) run(ctx context.Context, interval time.Duration) {
	status := r.nc.StatusChanged(nats.CONNECTED)
	defer r.nc.RemoveStatusListener(status)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-status:
		case <-tick.C:
		}
		r.look(ctx, interval)
	}
}

// look sends again what a lost connection may have taken along, and forgets what the server surely has: what was sent
// well before a round trip on a connection that has not changed since.
func (r *resender) look(ctx context.Context, patience time.Duration) {
	if !r.nc.IsConnected() {
		return
	}
	if n := r.nc.Stats().Reconnects; n != r.seen {
		r.seen = n
		r.repeat()
	}
	begin := r.now()
	once, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.link.Flush(once); err == nil && r.nc.Stats().Reconnects == r.seen {
		r.kept.confirm(begin - resendMargin)
	}
}

// repeat does so for lives that are over too: their events may be on the way, and an answer whose finished is stored
// before the worker_down has to arrive. If it was sealed instead, its ingress passes over the tokens.
func (r *resender) repeat() {
	n := 0
	all := r.kept.all()
	for i := range all {
		s := &all[i]
		if err := r.link.PublishChunk(s.to, &s.chunk); err != nil {
			r.log.Error("tokens not sent again", "request_id", string(s.chunk.Request), "attempt", s.chunk.Attempt, "error", err)
			continue
		}
		n++
	}
	if n > 0 {
		r.log.Info("tokens sent again after a reconnection", "chunks", n)
	}
}
