package ingress_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

// raw sends a request on a connection of its own.
func (h *harness) raw(t testing.TB, path, body string, headers ...string) net.Conn {
	t.Helper()
	c := h.dial(t)
	var more strings.Builder
	for i := 0; i < len(headers); i += 2 {
		fmt.Fprintf(&more, "%s: %s\r\n", headers[i], headers[i+1])
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", path, more.String(), len(body), body); err != nil {
		t.Fatal(err)
	}
	return c
}

// Whatever the server is doing or not doing for a client, it notices within a second that the client went away, with
// the default interval.
func TestSilentDisconnectCancels(t *testing.T) {
	cfg := config()
	cfg.Watch = 250 * time.Millisecond
	h := start(t, cfg)
	streamed, plain := chatBody("a", `,"stream":true`), chatBody("a", "")
	for name, c := range map[string]struct {
		body   string
		tokens int32
		leave  func(net.Conn)
	}{
		"queued, streamed":           {streamed, 0, func(c net.Conn) { c.Close() }},
		"queued, not streamed":       {plain, 0, func(c net.Conn) { c.Close() }},
		"after tokens, streamed":     {streamed, 3, func(c net.Conn) { c.Close() }},
		"after tokens, not streamed": {plain, 3, func(c net.Conn) { c.Close() }},
		"reset":                      {streamed, 0, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); c.Close() }},
		"with a pipelined request":   {streamed, 0, func(c net.Conn) { _, _ = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); c.Close() }},
		"half closed":                {plain, 0, func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }},
	} {
		conn := h.raw(t, chatPath, c.body)
		r := h.next()
		r.tokens(1, 0, c.tokens)
		if c.tokens > 0 {
			eventually(t, "first token", func() bool { return h.in.Stats().Running == 1 })
		}
		begin := time.Now()
		c.leave(conn)
		reason := streamstest.Receive(t, r.cancelled)
		took := time.Since(begin)
		if reason != schema.CancelDisconnect || took > time.Second {
			t.Errorf("%s: %s after %v", name, reason, took)
		}
		if e := h.event(r.ID, schema.CancelRequested); e.Reason != string(schema.CancelDisconnect) {
			t.Errorf("%s: %+v", name, e.Event)
		}
		if d := h.event(r.ID, schema.Delivered); d.Reason != string(schema.OutcomeDisconnected) {
			t.Errorf("%s: %+v", name, d.Event)
		}
		eventually(t, "free place", func() bool { return h.in.Stats().Open == 0 })
		r.tokens(1, c.tokens, c.tokens+2) // late tokens find nobody, and harm nobody
	}
}

// A client that stays is not cut off by a request that it pipelines, nor by the read deadline of its header.
func TestSilentClientThatStaysIsKept(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.HeaderTimeout, cfg.Watch = 50*time.Millisecond, 5*time.Millisecond
	h := start(t, cfg)
	c := h.raw(t, chatPath, chatBody("a", ""))
	r := h.next()
	if _, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case reason := <-r.cancelled:
		t.Fatalf("cancelled: %s", reason)
	case <-time.After(300 * time.Millisecond):
	}
	short(r)
	out, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(out), `"finish_reason":"stop"`) || !strings.Contains(string(out), `"alive"`) {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestKeepAliveComments(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.KeepAlive, cfg.Watch = 30*time.Millisecond, 5*time.Millisecond
	h := start(t, cfg)
	s := h.open(t, completionPath, `{"model":"mock-1","prompt":"a","stream":true,"max_tokens":2}`)
	r := h.next()
	for range 3 {
		if e := streamstest.Receive(t, s.events); e.comment != "ping" || e.id != "" || e.data != "" {
			t.Fatalf("%+v", e)
		}
	}
	r.tokens(1, 0, 2)
	r.finish(1, 2, schema.FinishStop)
	if _, text := s.rest(); text != r.words(1, 0, 2) {
		t.Fatalf("%q", text)
	}
	// A refusal is a status, however long it takes: no comment has committed a 200.
	h.post(t, completionPath, `{"model":"mock-1","prompt":"a","stream":true,"n":0}`).want(t, 400, "invalid_value")
}

// A client that does not read is cut, in time and memory that are bounded, and others do not notice.
func TestSlowReaderIsCut(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.BufferBytes = 32 << 10
	cfg.WriteTimeout = time.Second
	h := start(t, cfg)
	conn := h.raw(t, chatPath, chatBody("a", `,"stream":true`))
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	slow := h.next()
	other := h.open(t, chatPath, chatBody("b", `,"stream":true`))
	quick := h.next()
	text := strings.Repeat("x", 8<<10)
	cut := func() bool {
		select {
		case reason := <-slow.cancelled:
			if reason != schema.CancelSlowReader {
				t.Fatalf("cancelled: %s", reason)
			}
			return true
		default:
			return false
		}
	}
	i := int32(0)
	for ; !cut(); i++ {
		if i == 10_000 {
			t.Fatal("not cut after 80 MB")
		}
		slow.publish(&schema.Chunk{Attempt: 1, Index: i, IDs: schema.Tokens{1}, Text: text})
		quick.tokens(1, i, i+1)
		if got := other.next().text(t); i > 0 && got != quick.word(1, i-1) {
			t.Fatalf("the other stream: token %d is %q", i-1, got)
		}
	}
	if e := h.event(slow.ID, schema.CancelRequested); e.Reason != string(schema.CancelSlowReader) {
		t.Errorf("%+v", e.Event)
	}
	quick.finish(1, i, schema.FinishStop)
	if events, _ := other.rest(); events[len(events)-1].data != "[DONE]" {
		t.Errorf("the other stream ended with %+v", events)
	}
	// It never reads: the write is given up.
	h.event(slow.ID, schema.Delivered)
	eventually(t, "free place", func() bool { return h.in.Stats().Open == 0 })
}

// A slow reader that reads on is told why its stream ended.
func TestSlowReaderIsTold(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.BufferBytes = 32 << 10
	h := start(t, cfg)
	conn := h.raw(t, chatPath, chatBody("a", `,"stream":true`))
	r := h.next()
	text := strings.Repeat("x", 8<<10)
	for i := int32(0); len(r.cancelled) == 0; i++ {
		r.publish(&schema.Chunk{Attempt: 1, Index: i, IDs: schema.Tokens{1}, Text: text})
		h.flush(t)
	}
	var end []byte
	buf := make([]byte, 1<<16)
	for !strings.Contains(string(end), "\r\n0\r\n\r\n") {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, end[max(0, len(end)-300):])
		}
		end = append(end[max(0, len(end)-4096):], buf[:n]...)
	}
	if !strings.Contains(string(end), `"code":"slow_reader"`) || strings.Contains(string(end), "[DONE]") {
		t.Errorf("the stream ended with %q", end[max(0, len(end)-300):])
	}
}
