package load

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// every returns n arrivals with a fixed distance.
func every(n int, d time.Duration) func(func(time.Duration) bool) {
	return func(yield func(time.Duration) bool) {
		for i := range n {
			if !yield(time.Duration(i) * d) {
				return
			}
		}
	}
}

// A server that answers nothing until it has seen every request must get every request, and those that came first must
// have waited longest: latency counts from the arrival that was intended.
func TestOpenLoop(t *testing.T) {
	const n, gap = 100, 3 * time.Millisecond
	var seen sync.WaitGroup
	seen.Add(n)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Done()
		seen.Wait()
		w.Header().Set("Content-Type", "text/event-stream")
		if _, err := io.WriteString(w, textA+done); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	c := newClient(t, srv.URL, nil)
	defer c.Close()
	records := make([]*Record, n)
	s, err := Run(t.Context(), Plan{
		Client: c, Arrivals: every(n, gap), Drain: 10 * time.Second, Interval: 100 * time.Millisecond,
		Next: func(i int) *Request { return &Request{Path: "/", ClientID: fmt.Sprint(i), Body: []byte("{}")} },
		Sink: func(r *Record) { records[r.Index] = r },
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Outcomes[OK] != n || s.Requests != n || s.Lag.Count != n || s.E2E.Count != n || s.TTFT.Count != n {
		t.Fatalf("%+v", s)
	}
	for i, r := range records {
		if left := time.Duration(n-1-i) * gap; r.TTFT < left || r.E2E < r.TTFT || r.Intended != time.Duration(i)*gap {
			t.Fatalf("request %d: ttft %v, e2e %v, want at least %v", i, r.TTFT, r.E2E, left)
		}
	}
	total := 0
	for _, iv := range s.Intervals {
		total += iv.OK
	}
	if len(s.Intervals) != 3 || total != n || s.Intervals[0].E2E.Count == 0 {
		t.Fatalf("intervals: %+v", s.Intervals)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Fatal(err)
	}
}

// A generator that is late itself must not hide it.
func TestLatenessOfTheGeneratorCounts(t *testing.T) {
	url := rawServer(t, func(int, int, *http.Request) string { return chunked(textA + done) })
	c := newClient(t, url, nil)
	r := c.do(t.Context(), &Request{Path: "/"}, time.Now().Add(-time.Second), &Record{})
	if r.Lag < time.Second || r.TTFT < r.Lag || r.E2E < r.TTFT {
		t.Fatalf("%+v", r)
	}
}

func TestDrainEndsOutstandingRequests(t *testing.T) {
	url, _, _ := endless(t) // which ends only when its clients have gone
	c := newClient(t, url, nil)
	defer c.Close()
	s, err := Run(t.Context(), Plan{Client: c, Arrivals: every(3, time.Millisecond), Drain: 50 * time.Millisecond,
		Next: func(int) *Request { return &Request{Path: "/"} }})
	if err != nil || s.Outcomes[Disconnected] != 3 {
		t.Fatalf("%+v, %v", s, err)
	}
}

func TestHistogram(t *testing.T) {
	h := NewHistogram(3)
	for i := 1; i <= 1000; i++ {
		h.Add(time.Duration(i) * time.Millisecond)
	}
	h.Add(-time.Second)
	h.Add(2 * time.Hour)
	d := h.Durations()
	near := func(got, want time.Duration) bool { return math.Abs(float64(got-want)) <= 0.002*float64(want) }
	if d.Count != 1002 || !near(d.P50, 500*time.Millisecond) || !near(d.P99, 990*time.Millisecond) || !near(d.Max, time.Hour) || !near(h.Quantile(0.9), 901*time.Millisecond) {
		t.Fatalf("%+v", d)
	}
	if zero := NewHistogram(2).Durations(); zero != (Durations{}) {
		t.Fatalf("%+v", zero)
	}
}
