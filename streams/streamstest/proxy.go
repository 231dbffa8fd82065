package streamstest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy passes connections on to a server until it is told to lose what one side sends, as happens with what is on the
// way when the other side dies. All methods and fields are for any goroutine.
type Proxy struct {
	// LoseRequests drops what clients send, LoseAnswers what the server does.
	LoseRequests, LoseAnswers atomic.Bool
	// Lost tells the bytes of each lost write of a client.
	Lost chan int

	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

// NewProxy starts a proxy in front of a server, until the end of the test.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{l: l, Lost: make(chan int, 1<<12)}
	server := s.URL[len("nats://"):]
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
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(lossy{out, &p.LoseRequests, p.Lost}, in); out.Close() })
			wg.Go(func() { _, _ = io.Copy(lossy{in, &p.LoseAnswers, nil}, out); in.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		wg.Wait()
	})
	return p
}

// URL is where clients connect.
func (p *Proxy) URL() string { return "nats://" + p.l.Addr().String() }

// Cut ends every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// lossy is a connection to write to that loses what it is given while lose is set.
type lossy struct {
	io.Writer
	lose *atomic.Bool
	lost chan<- int // nil: nobody wants to know
}

func (w lossy) Write(b []byte) (int, error) {
	if !w.lose.Load() {
		return w.Writer.Write(b)
	}
	if w.lost != nil {
		w.lost <- len(b)
	}
	return len(b), nil
}
