package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/mock"
)

// childURL in the environment makes this test binary a worker of the server there.
const childURL = "CADENCE_WORKER_TEST_URL"

// child runs a worker until it is told to stop, and prints the id of each of its lives.
func child(url string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := func() error {
		cfg := streams.DefaultConfig()
		cfg.URL = url
		c, err := streams.Connect(ctx, cfg, nil, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			return err
		}
		defer c.Close()
		m := mock.FreeConfig()
		m.StepBase = 5 * time.Millisecond
		b, err := mock.New(m)
		if err != nil {
			return err
		}
		wc := worker.DefaultConfig()
		wc.Pool, wc.Heartbeat, wc.FenceAfter = "p", 50*time.Millisecond, 500*time.Millisecond
		w, err := worker.New(wc, c, b, slog.New(slog.DiscardHandler), registry())
		if err != nil {
			return err
		}
		return w.Run(ctx)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A worker that was stopped and goes on does not say one more word under its old id, and comes back under a new one.
func TestFrozenProcessComesBackAsAnotherWorker(t *testing.T) {
	r := newRig(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+r.srv.URL)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() {
		lines, text := bufio.NewScanner(stderr), ""
		for lines.Scan() {
			text += lines.Text() + "\n"
		}
		said <- text
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		text := <-said
		if err := cmd.Wait(); err != nil {
			t.Errorf("child: %v: %s", err, text)
		}
	})
	r.wait("worker_up", func() bool { return r.count(schema.WorkerUp) == 1 })
	old := r.events[0].Worker
	req := newRequest(t, []int32{1}, 2000)
	if v := r.dispatchTo(old, 1, item(t, req, 1)); v[0] != schema.VerdictAccepted {
		t.Fatalf("verdict %s", v[0])
	}
	r.wait("tokens", func() bool { return len(r.chunks[req.ID]) > 3 })
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("not stopped: %v, %v", status, err)
	}
	thaw := time.AfterFunc(time.Second, func() {
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	defer thaw.Stop()
	// While it is frozen, a dispatch goes to its old subject; when it thaws it must not take it.
	late := make(chan []schema.Verdict, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	go func() {
		reply, err := r.client.Dispatch(ctx, old, &schema.Dispatch{Pool: "p", Epoch: 1, Items: []schema.DispatchItem{item(t, newRequest(t, []int32{1}, 1), 1)}})
		if err != nil {
			late <- nil
			return
		}
		late <- reply.Verdicts
	}()
	var states, chunks int
	r.wait("silence", func() bool { // what was on the way when it froze has arrived when the second half begins
		states, chunks = len(r.states), len(r.chunks[req.ID])
		return true
	})
	r.wait("another worker_up", func() bool { return r.count(schema.WorkerUp) == 2 })
	cancel() // an answer has come by now, or none will
	if v := <-late; len(v) > 0 && v[0] != schema.VerdictDraining {
		t.Errorf("the late dispatch: %v", v)
	}
	fresh := r.events[len(r.events)-1].Worker
	if fresh == old {
		t.Fatal("the same id")
	}
	r.wait("a heartbeat of the new life", func() bool { return len(r.states) > 0 && r.states[len(r.states)-1].Worker == fresh })
	next := newRequest(t, []int32{1}, 5)
	if v := r.dispatchTo(fresh, 1, item(t, next, 1)); v[0] != schema.VerdictAccepted {
		t.Fatalf("verdict %s", v[0])
	}
	r.answer(next.ID, 1, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	// At most what was in flight in the moment of the stop came after it.
	if n := len(r.chunks[req.ID]) - chunks; n > 3 {
		t.Errorf("%d chunks of the old life after it was frozen", n)
	}
	for _, s := range r.states[min(states+2, len(r.states)):] {
		if s.Worker == old {
			t.Errorf("a heartbeat of the old life after it was frozen")
		}
	}
	for i := range r.events {
		if e := &r.events[i]; e.Request == req.ID && e.Type.Terminal() {
			t.Errorf("the old life said %s", e.Type)
		}
	}
}

func TestWorkerThatTheLogDeclaresLostComesBackAsAnother(t *testing.T) {
	r := start(t, func(_ *worker.Config, m *mock.Config) { m.StepBase = time.Millisecond })
	old := r.w.ID()
	req := newRequest(t, []int32{1}, 500)
	r.accept(req, 1)
	r.wait("tokens", func() bool { return len(r.chunks[req.ID]) > 3 })
	if _, err := r.client.PublishEvent(t.Context(), &schema.Event{Type: schema.WorkerDown, Time: 1, Source: "scheduler", Worker: old, Pool: "p", Reason: string(schema.DownLost)}); err != nil {
		t.Fatal(err)
	}
	r.wait("another worker_up", func() bool { return r.count(schema.WorkerUp) == 2 })
	s := r.lastState("a heartbeat of the new life", func(s *schema.WorkerState) bool { return s.Worker != old })
	if s.Running+s.Waiting != 0 || s.KVFreePages != s.KVPages {
		t.Errorf("the new life begins with %+v", s)
	}
	// The request goes on here, as the next attempt.
	r.mu.Lock()
	var sealed []int32
	for _, c := range r.chunks[req.ID] {
		sealed = append(sealed, c.IDs...)
	}
	r.mu.Unlock()
	r.accept(req, 2, sealed...)
	rest := say(req, 2, 500-len(sealed), sealed...)
	r.answer(req.ID, 2, len(sealed)).check(t, rest, textOf(t, rest...), schema.FinishLength)
	if got := types(r.settled(req.ID, 2)); !slices.Equal(got, []schema.Type{schema.PrefillStarted, schema.FirstToken, schema.Finished}) {
		t.Errorf("events %v", got)
	}
}

// The server is gone for a moment: nothing is lost.
func TestShortOutageIsSurvived(t *testing.T) {
	r := start(t, func(c *worker.Config, m *mock.Config) {
		c.Heartbeat, c.FenceAfter = 100*time.Millisecond, 10*time.Second
		m.StepBase = time.Millisecond
	})
	old := r.w.ID()
	req := newRequest(t, []int32{1}, 400)
	r.accept(req, 1)
	r.wait("tokens", func() bool { return len(r.chunks[req.ID]) > 0 })
	r.srv.Restart(t)
	r.settled(req.ID, 1)
	if r.w.ID() != old {
		t.Error("a short outage ended the worker's life")
	}
	r.accept(newRequest(t, []int32{1}, 1), 1)
}

// The server is gone for longer than the scheduler waits: what ran is abandoned, and another worker comes up.
func TestLongOutageEndsALife(t *testing.T) {
	r := start(t, func(c *worker.Config, m *mock.Config) {
		c.Heartbeat, c.HeartbeatGap, c.FenceAfter = 5*time.Millisecond, time.Millisecond, 25*time.Millisecond // shorter than any restart
		m.StepBase = time.Millisecond
		m.ContextTokens, m.KVCells = 1<<20, 1<<20
	})
	req := newRequest(t, []int32{1}, 1_000_000)
	old := r.w.ID()
	if v := r.dispatchTo(old, 1, item(t, req, 1)); v[0] != schema.VerdictAccepted {
		t.Fatalf("verdict %s", v[0])
	}
	r.srv.Restart(t)
	s := r.lastState("a heartbeat of a new life", func(s *schema.WorkerState) bool { return s.Worker != old })
	if s.Running+s.Waiting != 0 || s.KVFreePages != s.KVPages {
		t.Errorf("the new life begins with %+v", s)
	}
	r.wait("its worker_up", func() bool {
		for i := range r.events {
			if e := &r.events[i]; e.Type == schema.WorkerUp && e.Worker == s.Worker {
				return true
			}
		}
		return false
	})
	for _, e := range r.of(req.ID, 1) {
		if e.Type.Terminal() {
			t.Errorf("the old life said %s", e.Type)
		}
	}
}
