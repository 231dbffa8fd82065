package ingress_test

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

func (h *harness) seal(t testing.TB, id schema.RequestID, attempt uint32) *schema.SealReply {
	t.Helper()
	reply, err := h.client.Seal(t.Context(), h.in.ID(), &schema.Seal{Request: id, Attempt: attempt})
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// The first worker is lost in the middle, its successor goes on behind what was relayed, and the first comes back: the
// client gets every token once, and none that was sent changes.
func TestSealThenAnotherAttempt(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	if h.seal(t, "0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01", 1).Known {
		t.Error("an unknown request is known")
	}
	s := h.open(t, chatPath, chatBody("a", `,"stream":true`))
	r := h.next()
	s.next() // the role
	r.tokens(1, 0, 3)
	for i := range int32(3) {
		if got := s.next().text(t); got != r.word(1, i) {
			t.Fatalf("token %d is %q", i, got)
		}
	}
	for range 2 { // asking again gives the same answer
		reply := h.seal(t, r.ID, 1)
		if !reply.Known || len(reply.Relayed) != 3 || reply.Relayed[2] != 2 || reply.Finish != nil {
			t.Fatalf("%+v", reply)
		}
		r.tokens(1, 3, 6) // the lost worker is not dead
	}
	r.publish(&schema.Chunk{Attempt: 1, Index: 6, Error: &schema.Error{Code: schema.FailedEngine}})
	r.tokens(2, 3, 5)
	r.tokens(1, 5, 6)
	r.finish(1, 6, schema.FinishStop)
	r.tokens(2, 5, 7)
	r.finish(2, 7, schema.FinishStop)
	_, text := s.rest()
	if want := r.words(2, 3, 7); text != want || s.err != nil {
		t.Fatalf("text %q, want %q, %v", text, want, s.err)
	}
	if d := h.event(r.ID, schema.Delivered); d.Reason != string(schema.OutcomeComplete) || d.OutputTokens != 7 {
		t.Errorf("%+v", d.Event)
	}
}

// A seal of an answer that was relayed to its end says so: nothing is to be done again.
func TestSealOfAWholeAnswer(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	s := h.open(t, chatPath, chatBody("a", `,"stream":true`), "X-Resume-Grace-Ms", "10000")
	r := h.next()
	short(r)
	s.rest()
	reply := h.seal(t, r.ID, 1)
	if !reply.Known || reply.Finish == nil || reply.Finish.OutputTokens != 8 || len(reply.Relayed) != 8 {
		t.Fatalf("%+v", reply)
	}
}

// Nothing is written beyond a gap before it is filled.
func TestStreamWaitsAtAGap(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Silence = time.Hour // only the gap tells
	h := start(t, cfg)
	s := h.open(t, chatPath, chatBody("a", `,"stream":true`))
	r := h.next()
	r.tokens(1, 0, 2)
	// Tokens 2 to 4 come late: live they are behind the ones after them.
	r.tokens(1, 5, 7)
	r.finish(1, 7, schema.FinishStop)
	var got string
	for range 3 {
		got += s.next().text(t)
	}
	if got != r.words(1, 0, 2) {
		t.Fatalf("before the gap: %q", got)
	}
	r.tokens(1, 2, 5)
	_, text := s.rest()
	if text != r.words(1, 2, 7) {
		t.Fatalf("after the gap: %q", text)
	}
}

// relayTCP forwards connections to a server, and can be cut and joined again.
type relayTCP struct {
	ln net.Listener
	to string
	wg sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newRelayTCP(t testing.TB, to string) *relayTCP {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relayTCP{ln: ln, to: to, conns: map[net.Conn]struct{}{}}
	r.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.forward(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		r.set(true)
		r.wg.Wait()
	})
	return r
}

func (r *relayTCP) forward(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer up.Close()
	r.mu.Lock()
	if r.cut {
		r.mu.Unlock()
		return
	}
	r.conns[c], r.conns[up] = struct{}{}, struct{}{}
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(up, c)
		up.Close()
	}()
	_, _ = io.Copy(c, up)
	c.Close()
	<-done
}

func (r *relayTCP) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	for c := range r.conns {
		c.Close()
		delete(r.conns, c)
	}
}

// What the worker sends while the ingress has lost NATS is in the store alone, and is looked for when NATS is back:
// whether later tokens show the gap or the end itself is missing.
func TestReconnectionFillsGaps(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Silence = time.Hour
	nats := streamstest.Start(t)
	wire := newRelayTCP(t, strings.TrimPrefix(nats.URL, "nats://"))
	to := streams.DefaultConfig()
	to.URL = "nats://" + wire.ln.Addr().String()
	its, err := streams.Connect(t.Context(), to, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(its.Close)
	h := startOn(t, cfg, nats.Client(t), its, mockModel())
	ready := func() int { return h.get(t, "/ready").StatusCode }
	for name, whole := range map[string]bool{"the end is missing": true, "later tokens come": false} {
		eventually(t, "readiness", func() bool { return ready() == 200 })
		s := h.open(t, chatPath, chatBody("a", `,"stream":true`))
		r := h.next()
		r.tokens(1, 0, 2)
		for range 3 {
			s.next()
		}
		wire.set(true)
		eventually(t, "disconnection", func() bool { return ready() == 503 })
		r.tokens(1, 2, 600) // more than one reading takes at once
		if whole {
			r.finish(1, 600, schema.FinishStop)
		}
		h.flush(t)
		wire.set(false)
		eventually(t, "reconnection", func() bool { return ready() == 200 })
		if !whole {
			r.tokens(1, 600, 602)
			r.finish(1, 602, schema.FinishStop)
		}
		_, text := s.rest()
		want := r.words(1, 2, 600)
		if !whole {
			want = r.words(1, 2, 602)
		}
		if text != want || s.err != nil {
			t.Fatalf("%s: %d bytes of %d, %v", name, len(text), len(want), s.err)
		}
	}
	if n := h.metric(t, "cadence_ingress_filled_tokens_total"); n < 2*598 {
		t.Errorf("%d tokens came from the store", n)
	}
}

// While NATS is away, the ingress is not ready, refuses at once, and stores what it has to tell when NATS is back.
func TestWithoutNATS(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	cfg := streams.ServerConfig{Dir: t.TempDir(), Durability: streams.DurableProcess, Listen: "127.0.0.1:0"}
	server, err := streams.StartServer(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	connect := func() *streams.Client {
		to := streams.DefaultConfig()
		to.URL = server.URL()
		c, err := streams.Connect(t.Context(), to, nil, log, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	mine, its := connect(), connect()
	if err := mine.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := startOn(t, config(), mine, its, mockModel())
	ready := func() int { return h.get(t, "/ready").StatusCode }
	eventually(t, "ready", func() bool { return ready() == 200 })

	cfg.Listen = strings.TrimPrefix(server.URL(), "nats://")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not ready", func() bool { return ready() == 503 })
	if body := h.get(t, "/ready").body; !strings.Contains(body, `"reason":"disconnected"`) {
		t.Errorf("ready: %s", body)
	}
	begin := time.Now()
	res := h.post(t, chatPath, chatBody("a", ""))
	e := res.want(t, 503, "not_ready")
	if took := time.Since(begin); e.Reason != "unavailable" || res.Header.Get("Retry-After") == "" || took > time.Second {
		t.Errorf("%+v after %v", e, took)
	}
	if server, err = streams.StartServer(cfg, log); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { return ready() == 200 })
	if ev := h.event(schema.RequestID(res.Header.Get("X-Cadence-Request-Id")), schema.Refused); ev.Reason != "unavailable" {
		t.Errorf("%+v", ev.Event)
	}
}
