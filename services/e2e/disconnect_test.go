package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/mock"
)

// A client that set a grace time, drops its connection and comes back gets exactly the rest: while the answer is being
// made, after it has ended, and when it drops again.
func TestResume(t *testing.T) {
	s := startUp(t, engineSteps...)
	c := s.client()
	for name, test := range map[string]struct {
		drops    []int // after so many events each
		afterEnd bool  // come back only when the answer has ended
	}{"once": {[]int{5}, false}, "again and again": {[]int{1, 2, 3, 1}, false}, "after its end": {[]int{7}, true}} {
		t.Run(name, func(t *testing.T) {
			j := makeJobs(1, 40, 40)[0]
			want := j.answer(t, mock.FreeConfig(), j.tokens)
			r := j.request(t, "resume-"+name)
			r.Header = map[string]string{"X-Resume-Grace-Ms": "10000"}
			var got string
			var ids []string
			for _, drop := range test.drops {
				r.DropAfterEvents = drop
				rec := c.Do(t.Context(), r)
				if rec.Outcome != load.Disconnected || rec.Events != drop {
					t.Fatalf("%+v", rec)
				}
				got, ids = got+rec.Text, append(ids, rec.EventIDs...)
				r.LastEventID = rec.LastEventID
			}
			r.DropAfterEvents = 0
			if test.afterEnd {
				eventually(t, 10*time.Second, "the answer ends", func() error {
					var stats struct{ Kept int }
					if err := s.get("/stats", &stats); err != nil || stats.Kept == 0 {
						return fmt.Errorf("%d answers are kept, %w", stats.Kept, err)
					}
					return nil
				})
			}
			rec := c.Do(t.Context(), r)
			if err := j.complete(rec); err != nil {
				t.Fatalf("after coming back: %v", err)
			}
			got, ids = got+rec.Text, append(ids, rec.EventIDs...)
			if got != want {
				t.Fatal(firstDifference(got, want))
			}
			for i, id := range ids {
				if want := fmt.Sprintf("%s/%d", rec.RequestID, i); id != want {
					t.Fatalf("event %d has id %q, want %q: %v", i, id, want, ids)
				}
			}
			if again := c.Do(t.Context(), &load.Request{Path: r.Path, Body: r.Body, LastEventID: fmt.Sprintf("%s/%d", rec.RequestID, len(ids)+5)}); again.Outcome != load.HTTPError {
				t.Errorf("an event that does not exist: %+v", again)
			}
		})
	}
}

// A client without a grace time that goes away frees what its request held within a second, whether it is decoding
// or waits in the queue.
func TestDisconnectFreesPages(t *testing.T) {
	d := deploy(t, []string{"worker-a"}, "--backend", "mock", "--mock-step", "20ms", "--mock-prefill-rate", "0", "--sequences", "2")
	c, log := d.client(), d.log()
	page := d.metricsURL("worker-a")
	send := func(name string, n int, drop time.Duration) <-chan []*load.Record {
		requests := make([]*load.Request, n)
		for i, j := range makeJobs(n, 1000, 1000) {
			requests[i] = j.request(t, fmt.Sprintf("%s-%d", name, i))
			requests[i].DropAfter = drop
		}
		done := make(chan []*load.Record, 1)
		go func() { done <- all(t.Context(), c, requests) }()
		return done
	}
	// Each request would run for 20 s; two fill the worker.
	running := send("running", 2, 2*time.Second)
	eventually(t, 10*time.Second, "both run", func() error {
		if n, err := d.running(); err != nil || n < 2 {
			return fmt.Errorf("%d run, %w", n, err)
		}
		return nil
	})
	if n, err := metric(page, "cadence_worker_kv_reserved_pages"); err != nil || n < 2*1000/16 {
		t.Fatalf("%v pages are reserved, %v", n, err)
	}
	waiting := <-send("waiting", 3, 500*time.Millisecond)
	ended := func(records []*load.Record, gone time.Time, check func(*life) error) {
		t.Helper()
		eventually(t, 10*time.Second, "one end each", func() error {
			events, err := log.read()
			if err != nil {
				return err
			}
			for i, r := range records {
				if r.Outcome != load.Disconnected {
					t.Fatalf("%d: %+v", i, r)
				}
				l := lifeOf(events, schema.RequestID(r.RequestID))
				if len(l.terminals) != 1 || l.terminals[0].Type != schema.Cancelled {
					return fmt.Errorf("%d: ends %v", i, kinds(l.terminals))
				}
				if late := time.Unix(0, l.terminals[0].StoredAt).Sub(gone); late > time.Second {
					t.Fatalf("%d: cancelled %v after the client went", i, late)
				}
				if err := check(l); err != nil {
					t.Fatalf("%d: %v", i, err)
				}
			}
			return nil
		})
	}
	ended(waiting, time.Now(), func(l *life) error {
		if l.attempts > 0 {
			return errors.New("dispatched to a full worker")
		}
		return nil
	})
	records := <-running
	gone := time.Now()
	eventually(t, time.Second-time.Since(gone), "pages are free", func() error {
		n, err := metric(page, "cadence_worker_kv_reserved_pages")
		if err == nil && n > 0 {
			err = fmt.Errorf("%v are held", n)
		}
		return err
	})
	t.Logf("free after %v", time.Since(gone).Round(time.Millisecond))
	ended(records, gone, func(l *life) error {
		if l.attempts != 1 {
			return fmt.Errorf("%d attempts", l.attempts)
		}
		return nil
	})
	for _, r := range records {
		if r.TextEvents == 0 {
			t.Errorf("%s had not begun", r.ClientID)
		}
	}
	d.stop()
}
