package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/mock"
)

// A request that was admitted and never fed, because another's prefill took the steps, waited until it was cancelled.
func TestCancelBeforeTheFirstStep(t *testing.T) {
	r := start(t, func(c *worker.Config, m *mock.Config) {
		c.MaxBatch, c.BatchTokens, c.ChunkTokens = 2, 2, 2
		m.StepBase = time.Millisecond // the cancel arrives long before the end of the first prefill
	})
	first, second := newRequest(t, make([]int32, 500), 1), newRequest(t, []int32{1, 2, 3}, 1)
	r.dispatch(1, item(t, first, 1), item(t, second, 1))
	r.wait("the first prefill", func() bool {
		return slices.ContainsFunc(r.events, func(e schema.Event) bool { return e.Type == schema.PrefillStarted && e.Request == first.ID })
	})
	if err := r.client.PublishCancel(&schema.Cancel{Request: second.ID, Reason: schema.CancelDisconnect}); err != nil {
		t.Fatal(err)
	}
	events := r.settled(second.ID, 1)
	if e := events[len(events)-1]; len(events) != 1 || e.Type != schema.Cancelled || e.QueueTime <= 0 {
		t.Errorf("%d events, the last %+v", len(events), e)
	}
	r.settled(first.ID, 1)
}
