package ingress

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
	"github.com/gofiber/fiber/v2"
)

// errDetached ends the connection of a client whose stream cannot go on there: it went away, or came back elsewhere.
var errDetached = errors.New("ingress: stream is not attached to this connection")

// body writes one answer to one client. Its owner is the connection's goroutine; what others may touch says so.
type body struct {
	s       *Server
	a       *answer
	conn    *conn          // nil if the connection cannot be watched
	encoder *openai.Stream // nil: the answer is not streamed
	woken   chan struct{}  // of capacity 1: there is something for the owner
	from    int64          // the next event to write
	begun   bool           // a text was written
	whole   bool           // everything was written

	ping  bool         // the answer's mutex guards it: a keep-alive comment is due
	wrote atomic.Int64 // when something was written last, in the server's nanoseconds
	spare []said       // for the texts of the next batch
}

// newBody makes a body for an answer on a client's connection.
func (s *Server) newBody(c *fiber.Ctx, a *answer) *body {
	b := &body{s: s, woken: make(chan struct{}, 1)}
	b.conn, _ = c.Context().Conn().(*conn)
	if a.stream {
		b.encoder = openai.NewStream(a.head, a.includeUsage)
	}
	b.wrote.Store(s.clock())
	return b
}

// batch is what there is to write.
type batch struct {
	detached bool
	ping     bool
	role     bool
	first    int64 // number of the event of texts[0]
	texts    []said
	// At the end of the answer, one of the two, with the number of its event.
	end    int64
	finish *schema.Finish
	failed *openai.Error
	usage  openai.Usage
}

// take waits until there is something to write, and takes all of it.
func (b *body) take() batch {
	a := b.a
	for {
		a.mu.Lock()
		if a.body != b {
			a.mu.Unlock()
			return batch{detached: true}
		}
		next := a.next()
		if b.from < next || b.ping || a.ended() {
			t := b.batch(next)
			a.mu.Unlock()
			return t
		}
		a.mu.Unlock()
		<-b.woken
	}
}

// takeAll waits for the end of the answer, and takes all of it.
func (b *body) takeAll() batch {
	a := b.a
	for {
		a.mu.Lock()
		switch {
		case a.body != b:
			a.mu.Unlock()
			return batch{detached: true}
		case a.ended():
			t := b.batch(a.next())
			a.mu.Unlock()
			return t
		}
		a.mu.Unlock()
		<-b.woken
	}
}

// batch takes what is there; next is the number of the event of the next text to come. The caller holds a.mu.
func (b *body) batch(next int64) batch {
	a := b.a
	t := batch{ping: b.ping, first: max(b.from, a.offset()), role: b.from < a.offset()}
	b.ping = false
	switch i := t.first - a.offset() - a.kept; {
	case i >= int64(len(a.texts)):
	case a.resumable():
		t.texts = a.texts[i:len(a.texts):len(a.texts)]
	default: // nobody can ask for them again, and the two slices take turns
		clear(b.spare)
		t.texts, a.texts = a.texts, b.spare[:0]
		b.spare = t.texts
		a.kept += int64(len(t.texts))
		a.size = 0
	}
	a.unread = 0
	b.from = max(b.from, next)
	if a.ended() {
		t.end = next
		if a.failed != nil {
			t.failed = a.clientError()
		} else {
			t.finish, t.usage = a.finish, a.usage()
		}
	}
	return t
}

// buffers are for encoded events; each belongs to one body while it writes.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// flushBytes is how much is gathered of a long batch before it is written.
const flushBytes = 32 << 10

// WriteTo writes events until the answer ends or the client is gone. Each write is flushed by the server.
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
	pooled := buffers.Get().(*[]byte)
	buf := (*pooled)[:0]
	defer func() {
		if cap(buf) <= 2*flushBytes {
			*pooled = buf
			buffers.Put(pooled)
		}
	}()
	write := func() error {
		if len(buf) == 0 {
			return nil
		}
		m, err := w.Write(buf)
		n += int64(m)
		buf = buf[:0]
		b.wrote.Store(b.s.clock())
		return err
	}
	for {
		t := b.take()
		if t.detached {
			return n, errDetached
		}
		if t.role {
			buf = b.encoder.AppendRole(buf, 0)
		}
		for i, text := range t.texts {
			if text.tokens == nil {
				buf = b.encoder.AppendText(buf, t.first+int64(i), text.text)
			} else {
				buf = b.encoder.AppendTokens(buf, t.first+int64(i), text.text, b.a.appendLogprobs(nil, text.tokens))
			}
			if len(buf) >= flushBytes {
				if err := write(); err != nil {
					return n, err
				}
			}
		}
		buf = b.appendEnd(buf, &t)
		if t.ping && len(buf) == 0 {
			buf = append(buf, openai.PingComment...)
		}
		if err := write(); err != nil {
			return n, err
		}
		if len(t.texts) > 0 && !b.begun {
			b.begun = true
			b.a.begin()
		}
		if t.finish != nil || t.failed != nil {
			b.whole = true
			return n, nil
		}
	}
}

// appendEnd appends the events that end a stream, those that the client has not seen.
func (b *body) appendEnd(buf []byte, t *batch) []byte {
	switch {
	case t.failed != nil:
		if b.from <= t.end {
			buf = b.encoder.AppendError(buf, t.end, t.failed)
		}
	case t.finish != nil:
		if b.from <= t.end {
			buf = b.encoder.AppendFinish(buf, t.end, t.finish.Reason)
		}
		if b.a.includeUsage && b.from <= t.end+1 {
			buf = b.encoder.AppendUsage(buf, t.end+1, t.usage)
		}
		buf = append(buf, openai.Done...)
	}
	return buf
}

// SupportsBodyWriteTo tells fasthttp to use WriteTo, which needs neither a pipe nor another goroutine.
func (b *body) SupportsBodyWriteTo() bool { return true }

// Read is never used; fasthttp's body streams must have it.
func (b *body) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Close is followed by CloseWithError.
func (b *body) Close() error { return nil }

// CloseWithError is called once, when the response was written or could not be.
func (b *body) CloseWithError(err error) error {
	if err == nil && b.whole {
		b.s.delivered(b)
	} else {
		b.s.lost(b)
	}
	return nil
}

// begin notes that a first text was written to a client.
func (a *answer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.firstWrite == 0 {
		a.firstWrite = time.Since(a.arrived)
	}
}
