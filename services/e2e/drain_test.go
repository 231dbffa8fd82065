package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/worker/mock"
)

// SIGTERM under load, to one process with everything and to a lone ingress: not ready at once, late arrivals are refused
// with advice, running streams finish, and the process ends with code 0.
func TestDrain(t *testing.T) {
	t.Run("up", func(t *testing.T) {
		s := startUp(t, engineSteps...)
		drain(t, s, s.upstream.Signal, s.upstream.Done(), s.upstream.ExitCode)
	})
	t.Run("ingress", func(t *testing.T) {
		d := deploy(t, []string{"worker-a"}, engineSteps...)
		p := d.services["ingress"].p
		drain(t, &d.site, p.Signal, p.Done(), p.ExitCode)
	})
}

func drain(t *testing.T, s *site, signal func(os.Signal) error, exited <-chan struct{}, code func() int) {
	const n = 12
	c := s.client()
	jobs := makeJobs(n, 100, 120)
	requests := make([]*load.Request, n)
	for i, j := range jobs {
		requests[i] = j.request(t, fmt.Sprintf("drain-%d", i))
	}
	done := make(chan []*load.Record, 1)
	go func() { done <- all(context.WithoutCancel(t.Context()), c, requests) }()
	eventually(t, 10*time.Second, "all streams running", func() error {
		if running, err := s.running(); err != nil || running < n {
			return fmt.Errorf("%d of %d, %w", running, n, err)
		}
		return nil
	})
	if err := signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	eventually(t, 500*time.Millisecond, "not ready", func() error {
		resp, err := http.Get(s.url + "/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			return errors.New(resp.Status)
		}
		return nil
	})
	unready := time.Since(begin)
	late := c.Do(t.Context(), jobs[0].request(t, "late"))
	if late.Outcome != load.Refused || late.Status != http.StatusServiceUnavailable || late.Reason != "draining" || late.RetryAfter < time.Second {
		t.Errorf("a late arrival got %+v", late)
	}
	if err := s.get("/health", nil); err != nil {
		t.Errorf("alive while draining: %v", err)
	}
	for i, r := range <-done {
		if err := jobs[i].complete(r); err != nil {
			t.Errorf("%d: %v", i, err)
		} else if want := jobs[i].answer(t, mock.FreeConfig(), jobs[i].tokens); r.Text != want {
			t.Errorf("%d: %s", i, firstDifference(r.Text, want))
		}
	}
	finished := time.Since(begin)
	select {
	case <-exited:
	case <-time.After(20 * time.Second):
		t.Fatal("it has not ended 20 s after its last stream")
	}
	if code() != 0 {
		t.Errorf("exit code %d", code())
	}
	t.Logf("not ready after %v, last stream after %v, exit after %v", unready.Round(time.Millisecond), finished.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
}
