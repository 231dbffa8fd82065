package services

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A process is ready from when all of it is up until it is told to stop.
func TestReadiness(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	process := &readiness{ctx: ctx}
	f := OpsFlags{Pprof: true}
	server := httptest.NewServer(f.handler(newRegistry(), process))
	defer server.Close()
	status := func(path string) int {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := status("/ready"); got != http.StatusServiceUnavailable {
		t.Errorf("before it is up: %d", got)
	}
	if got := status("/health"); got != http.StatusOK {
		t.Errorf("health: %d", got)
	}
	process.up.Store(true)
	if got := status("/ready"); got != http.StatusOK {
		t.Errorf("when it is up: %d", got)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		if got := status(path); got != http.StatusOK {
			t.Errorf("%s: %d", path, got)
		}
	}
	stop()
	if got := status("/ready"); got != http.StatusServiceUnavailable {
		t.Errorf("when it stops: %d", got)
	}
}
