package validate

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/bench/workload"
)

// stub is a server that takes one request at a time, each for the same time, in the order of their arrival.
type stub struct {
	URL     string
	service time.Duration
	server  *http.Server
	done    chan error

	mu       sync.Mutex
	free     time.Time // when it is done with all that have come
	arrivals map[string]time.Time
}

// answer is one token.
const answer = "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"length\"}],\"usage\":null}\n\n" +
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}\n\ndata: [DONE]\n\n"

// startStub starts a server; a service of 0 answers everything at once.
func startStub(service time.Duration) (*stub, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &stub{URL: "http://" + l.Addr().String(), service: service, done: make(chan error, 1), arrivals: map[string]time.Time{}}
	s.server = &http.Server{Handler: s}
	go func() { s.done <- s.server.Serve(l) }()
	return s, nil
}

// stop closes all connections.
func (s *stub) stop() error {
	err := s.server.Close()
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// ServeHTTP implements http.Handler.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	s.mu.Lock()
	s.arrivals[r.Header.Get("X-Request-Id")] = now
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(s.service)
	ready := s.free
	s.mu.Unlock()
	if s.service > 0 && !wait(r.Context(), time.Until(ready)) {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write([]byte(answer)) // a client that has gone needs no answer
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// smallest is a workload of one token for one.
func smallest() (workload.Source, error) {
	spec, err := workload.Parse(json.RawMessage(`{"name":"smallest","shared_ratio":0,"unique_tokens":{"min":1,"max":1},"output":{"fixed":1}}`))
	if err != nil {
		return nil, err
	}
	return workload.New(spec, workload.Vocabulary{1, 2}, 1)
}
