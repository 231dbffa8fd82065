package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/cadence-slo/cadence/schema"
)

// More requests than a fold remembers end in another pool while this one is quiet. A restart reads the last requests of
// the quiet pool again, and runs none of them again: not one that finished, not one that could not be read.
func TestRestartOfAQuietPoolRunsNothingAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.schedule(config(), nil)
	in := r.ingress("i1")
	w1 := r.worker("w1", 2, 1)
	done, bad := in.submit(nil), newID(t)
	in.mu.Lock()
	in.clients[bad] = &answer{}
	in.mu.Unlock()
	body := fmt.Sprintf(`{"v":1,"request_id":%q,"ingress":"i1","tenant":"t","prompt":"!!"}`, bad)
	if _, err := in.client.PublishRequest(t.Context(), pool, bad, []byte(body)); err != nil {
		t.Fatal(err)
	}
	r.allSettled(done, bad)
	if err := s.halt(t); err != nil {
		t.Fatal(err)
	}
	const others = 1<<16 + 1
	w := r.client.NewEventWriter(t.Context(), others, func(id string, err error) { t.Errorf("%s: %v", id, err) })
	for n := range others {
		id := schema.RequestID(fmt.Sprintf("00000000-0000-7000-8000-%012d", n))
		if err := w.Emit(&schema.Event{Type: schema.Cancelled, Time: 1, Source: "s", Request: id, Pool: "q", Reason: string(schema.CancelDisconnect)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The stream would drop a second accepted of the same id, so that only a worker tells of a second run.
	w1.kill()
	w2 := r.worker("w2", 2, 1)
	r.schedule(config(), nil)
	r.allSettled(in.submit(nil)) // what was read before it has been looked at
	w2.do(func() {
		if w2.took != 1 {
			t.Errorf("%d requests ran after the restart, want the new one only", w2.took)
		}
	})
}
