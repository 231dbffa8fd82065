package worker_test

import (
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/mock"
)

// wormhole passes connections on to a server, until it swallows what clients send: as a server does that dies with what
// it has taken.
type wormhole struct {
	l         net.Listener
	swallow   atomic.Bool
	swallowed chan int // bytes, as they vanish

	mu    sync.Mutex
	conns []net.Conn
}

func newWormhole(t *testing.T, server string) *wormhole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &wormhole{l: l, swallowed: make(chan int, 1<<12)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				in.Close()
				continue
			}
			h.mu.Lock()
			h.conns = append(h.conns, in, out)
			h.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(in, out); in.Close() })
			wg.Go(func() { h.pass(out, in); out.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		h.cut()
		wg.Wait()
	})
	return h
}

func (h *wormhole) pass(out, in net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := in.Read(b)
		if err != nil {
			return
		}
		if h.swallow.Load() {
			h.swallowed <- n
			continue
		}
		if _, err := out.Write(b[:n]); err != nil {
			return
		}
	}
}

// cut ends every connection.
func (h *wormhole) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		c.Close()
	}
	h.conns = nil
}

// Tokens that a dying server took along are sent again after the reconnection, the last ones included.
func TestLostTokensAreSentAgain(t *testing.T) {
	for name, tokens := range map[string]int{"in the middle": 120, "and the end": 25} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			h := newWormhole(t, r.srv.URL[len("nats://"):])
			direct := r.srv.URL
			r.srv.URL = "nats://" + h.l.Addr().String()
			r.run(func(_ *worker.Config, m *mock.Config) { m.StepBase = 5 * time.Millisecond })
			r.srv.URL = direct
			req := newRequest(t, []int32{1, 2, 3}, int32(tokens))
			r.accept(req, 1)
			r.wait("some tokens", func() bool { return len(r.chunks[req.ID]) >= 5 })
			h.swallow.Store(true)
			for lost := 0; lost < 20; lost++ { // of writes: more than 20 tokens, or all that is left and heartbeats
				<-h.swallowed
			}
			h.swallow.Store(false)
			h.cut()
			var got []int32
			r.wait("every token", func() bool {
				got = got[:0]
				finished := false
				sorted := slices.Clone(r.chunks[req.ID])
				for again := true; again; {
					again = false
					for _, c := range sorted {
						if int(c.Index) == len(got) && len(c.IDs) > 0 {
							got, again = append(got, c.IDs...), true
						}
						finished = finished || c.Finish != nil
					}
				}
				return finished && len(got) == tokens
			})
			if want := say(req, 1, tokens); !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			r.settled(req.ID, 1)
		})
	}
}
