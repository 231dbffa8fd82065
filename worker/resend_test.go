package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/mock"
)

// Tokens that a dying server took along are sent again after the reconnection, the last ones included.
func TestLostTokensAreSentAgain(t *testing.T) {
	for name, tokens := range map[string]int{"in the middle": 120, "and the end": 25} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			h := streamstest.NewProxy(t, r.srv)
			direct := r.srv.URL
			r.srv.URL = h.URL()
			r.run(func(_ *worker.Config, m *mock.Config) { m.StepBase = 5 * time.Millisecond })
			r.srv.URL = direct
			req := newRequest(t, []int32{1, 2, 3}, int32(tokens))
			r.accept(req, 1)
			r.wait("some tokens", func() bool { return len(r.chunks[req.ID]) >= 5 })
			h.LoseRequests.Store(true)
			for lost := 0; lost < 20; lost++ { // of writes: more than 20 tokens, or all that is left and heartbeats
				<-h.Lost
			}
			h.LoseRequests.Store(false)
			h.Cut()
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
