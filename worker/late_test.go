package worker_test

import (
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/mock"
)

// A request whose time is over, and that is to be ended then, fails with the code for that; the client hears it, and nothing is left.
func TestLateRequestsEnd(t *testing.T) {
	r := start(t, func(_ *worker.Config, m *mock.Config) { m.StepBase = 2 * time.Millisecond })
	req := newRequest(t, []int32{1, 2, 3}, 100)
	req.IgnoreEOS, req.OnDeadline, req.Budget = true, schema.OnDeadlineCancel, 30*time.Millisecond
	x := item(t, req, 1)
	x.Budget = 30 * time.Millisecond // 100 steps take 200
	if v := r.dispatch(1, x); v[0] != schema.VerdictAccepted {
		t.Fatal(v)
	}
	events := r.settled(req.ID, 1)
	if e := events[len(events)-1]; e.Type != schema.Failed || e.Reason != string(schema.FailedDeadline) || e.OutputTokens >= 100 {
		t.Errorf("%+v", e)
	}
	if err := events[len(events)-1].Validate(); err != nil {
		t.Error(err)
	}
	r.idle()
}

// A guaranteed request is taken beyond the slots, but not beyond what there is for guaranteed ones, and has a place at once if its longest answer
// needs all of its time; whoever gave way says what it would have said.
func TestGuaranteedIsTakenBeyondTheSlots(t *testing.T) {
	r := start(t, func(c *worker.Config, m *mock.Config) { c.MaxBatch, m.StepBase = 2, 2*time.Millisecond })
	best := []*schema.Request{newRequest(t, []int32{1, 2, 3}, 450), newRequest(t, []int32{4, 5, 6}, 450)}
	for _, req := range best {
		req.IgnoreEOS = true
		r.accept(req, 1)
	}
	more := newRequest(t, []int32{7}, 10)
	if v := r.dispatch(1, item(t, more, 1)); v[0] != schema.VerdictFull {
		t.Fatalf("best effort beyond the slots: %v", v)
	}
	var promised []*schema.Request
	for range 3 {
		req := newRequest(t, []int32{7, 8, 9}, 300)
		req.IgnoreEOS, req.Stop = true, []string{"what is not said"} // it may end at any time
		req.Class, req.Budget = schema.Guaranteed, time.Minute
		promised = append(promised, req)
	}
	var items []schema.DispatchItem
	for _, req := range promised {
		x := item(t, req, 1)
		x.Budget = 700 * time.Millisecond // 300 steps take 600
		items = append(items, x)
	}
	if v := r.dispatch(1, items...); v[0] != schema.VerdictAccepted || v[1] != schema.VerdictAccepted || v[2] != schema.VerdictFull {
		t.Fatalf("guaranteed beyond the slots: %v", v)
	}
	for _, req := range append(best, promised[:2]...) {
		a := r.answer(req.ID, 1, 0)
		want := say(req, 1, int(req.MaxTokens))
		a.check(t, want, textOf(t, want...), schema.FinishLength)
	}
	gave := 0
	for _, req := range best {
		gave += preempted(t, r.settled(req.ID, 1), req, 0)
	}
	if gave == 0 {
		t.Error("nobody gave way")
	}
	r.idle()
}
