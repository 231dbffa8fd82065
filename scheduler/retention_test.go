package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/scheduler"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// EVENTS turns over several times: the claim is renewed before retention drops it, and the scheduler goes on.
func TestClaimOutlivesRetention(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.client.JetStream().Stream(t.Context(), streams.Events)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes = 1 << 20
	first := r.schedule(config(), func(s *scheduler.Scheduler) { s.RenewEvery(5 * time.Millisecond) })
	in := r.ingress("i1")
	w1 := r.worker("w1", 2, 1)
	r.allSettled(in.submit(nil))
	if _, err := r.client.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	// The one that sees the turnover has accepted nothing itself.
	if err := first.halt(t); err != nil {
		t.Fatal(err)
	}
	first = r.schedule(config(), func(s *scheduler.Scheduler) { s.RenewEvery(5 * time.Millisecond) })
	epochs := 0
	for range 8 { // each a third of what the stream holds
		for range 40 {
			e := &schema.Event{Type: schema.Received, Time: 1, Source: "i2", Request: newID(t), Pool: pool, Tenant: "t", Ingress: "i2", Message: strings.Repeat("x", 8<<10)}
			if _, err := r.client.PublishEvent(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		u, err := r.client.Usage(t.Context(), streams.Events)
		if err != nil {
			t.Fatal(err)
		}
		if u.Bytes > u.MaxBytes/2 {
			r.until("a claim that retention spares", func() bool {
				epochs = 0
				for _, e := range r.log {
					if e.Type == schema.Epoch {
						epochs++
					}
				}
				return r.fold.Epoch[pool] >= u.FirstSeq+(u.LastSeq-u.FirstSeq)/2
			})
		}
	}
	if epochs < 2 {
		t.Errorf("%d epochs", epochs)
	}
	// The next scheduler finds no trace of the request that was served, and does not serve it again.
	if err := first.halt(t); err != nil {
		t.Fatal(err)
	}
	w1.kill()
	w2 := r.worker("w2", 2, 1)
	r.schedule(config(), nil)
	r.allSettled(in.submit(nil))
	w2.do(func() {
		if w2.took != 1 {
			t.Errorf("%d requests ran after the restart, want the new one only", w2.took)
		}
	})
}
